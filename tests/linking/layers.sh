#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# layers.sh SOURCE - what the folders of src/ include of each other. Includes point down:
#
#   base <- soft <- fabric <- pool <- core <- { cm, datapath } <- node        (dropin beside fabric)
#
# There is no exception. What a folder asks of one beside or above it is in src/core/upcalls.h.
#
# Inside of src/soft the lowest folder is ipc: it includes no other one. What it asks of them is in src/soft/ipc/upcalls.h.
set -euo pipefail
cd "$1"

# One line for each include of another folder: FILE FOLDER OTHER
includes=$(grep -rnoE --include='*.[ch]' '^#include "[a-z]+/' src |
    sed -E 's|^(src/([a-z]+)/[^:]*):.*"([a-z]+)/$|\1 \2 \3|' | awk '$2 != $3')
if (($(wc -l <<< "$includes") < 50)); then
    echo "hardly an include in src: this test does not see the library"
    exit 1
fi

awk '
    BEGIN {
        split("base soft fabric pool core cm node", names)
        for (i in names) rank[names[i]] = i
        rank["dropin"] = rank["fabric"]
        rank["datapath"] = rank["cm"]
    }
    !($2 in rank) || !($3 in rank) { print "a folder that is in no layer: " $0; bad = 1; next }
    # Beside is up as well, but for the device that a drop-in is made of.
    rank[$3] >= rank[$2] && !($2 == "dropin" && $3 == "fabric") {
        print $1 ": its include of " $3 " points up"
        bad = 1
    }
    END { exit bad }' <<< "$includes"

if grep -rnE --include='*.[ch]' '^#include "soft/' src/soft/ipc | grep -v '#include "soft/ipc/'; then
    echo "points up: src/soft/ipc is the lowest folder of src/soft"
    exit 1
fi
