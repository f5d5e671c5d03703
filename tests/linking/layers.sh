#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# layers.sh SOURCE - what the folders of src/, device/ and common/ include of each other. Includes point down:
#
#   common <- base <- device/include <- fabric <- pool <- core <- { cm, datapath } <- node
#   common <- device/src <- device/dropin
#
# There is no exception. What a folder asks of one beside or above it is in src/core/upcalls.h.
#
# Inside of device/src/soft the folders are floors, and includes point down there as well, but for a few that are named below:
#
#   ipc <- object <- fault <- rc <- ud <- iwarp <- verbs <- cm <- control
#
# And so they are inside of src/datapath:
#
#   loop <- rx <- tx <- rpc <- rndv <- rma <- session <- progress
#
# What a floor of those asks of one above it is declared in src/datapath/loop/upward.h.
#
# What a floor of the device asks of one above it is in device/src/soft/ipc/upcalls.h and device/src/soft/object/upcalls.h. A message goes through
# none of these tables.
set -euo pipefail
cd "$1"

# One line for each include of another folder: FILE FOLDER OTHER
includes=$(grep -rnoE --include='*.[ch]' '^#include "[a-z]+/' common src |
    sed -E 's#^((src/)?([a-z]+)/[^:]*):.*"([a-z]+)/$#\1 \3 \4#' | awk '$2 != $3')
if (($(wc -l <<< "$includes") < 50)); then
    echo "hardly an include in src: this test does not see the library"
    exit 1
fi

awk '
    BEGIN {
        split("common base soft fabric pool core cm node", names)
        for (i in names) rank[names[i]] = i
        rank["datapath"] = rank["cm"]
    }
    !($2 in rank) || !($3 in rank) { print "a folder that is in no layer: " $0; bad = 1; next }
    rank[$3] >= rank[$2] { # beside is up as well
        print $1 ": its include of " $3 " points up"
        bad = 1
    }
    $3 == "soft" && $2 != "fabric" { print $1 ": the software device is known to src/fabric alone"; bad = 1 }
    END { exit bad }' <<< "$includes"

# What the library takes of the device is what stands in device/include; the device takes nothing of the library.
wrong=$(grep -rnE --include='*.[ch]' '^#include "soft/' src tools/src bench | grep -vE '"soft/[a-z]+[.]h"$' || true)
wrong+=$(grep -rnE --include='*.[ch]' '^#include ("[a-z_]+/|<sluice/)' device/bench device/dropin device/include device/src |
    grep -vE '"(soft|common)/|^device/dropin/.*"dropin/' || true)
if [[ -n $wrong ]]; then
    printf 'includes between the library and its device:\n%s\n' "$wrong"
    exit 1
fi

# The pool keeps buffers, and does not know what lies in them.
if grep -rnw --include='*.[ch]' 'sluice_msg' src/pool; then
    echo "src/pool knows messages"
    exit 1
fi

# What a session sends over now is asked by session_connection(); the files named set it.
if grep -rnE --include='*.[ch]' '(->|[.])connection\b' src |
    grep -vE '^src/(core/session.h|node/sessions.c|datapath/session/(reap|connections|down).c):'; then
    echo "the connection of a session is reached without session_connection()"
    exit 1
fi

# What a device has beyond verbs is asked by the calls of fast.h, which say what holds where it has none.
if grep -rnE --include='*.[ch]' '(->|[.])fast\b' src | grep -v '^src/fabric/'; then
    echo "the table of fast.h is looked at above src/fabric"
    exit 1
fi

# includes_up FOLDER FLOORS UPS - of the includes on standard input, FILE HEADER each, none points up but those named.
includes_up() {
    awk -v folder="$1" -v floors="$2" -v ups="$3" '
    BEGIN {
        count = split(floors, names, " ")
        for (i = 1; i <= count; i++) rank[names[i]] = i
        count = split(ups, lines, "\n")
        for (i = 1; i <= count; i++) {
            split(lines[i], word, " ")
            if (word[1]) may[word[1] " " word[2]] = 1
        }
    }
    {
        if ($1 !~ /\//) next # upcalls.c fills the tables in
        split($1, from, "/"); split($2, to, "/")
        if (!(from[1] in rank) || !(to[1] in rank)) {
            print folder "/" $1 ": its include of " $2 " is of no floor"
            bad = 1
        } else if (rank[to[1]] > rank[from[1]]) {
            seen[$0] = 1
            if ($0 in may) next
            print folder "/" $1 ": its include of " $2 " points up"
            bad = 1
        }
    }
    END {
        for (pair in may)
            if (!(pair in seen)) {
                print "no include any more, to be taken out of the list: " pair
                bad = 1
            }
        exit bad
    }'
}

# ---- the floors of the data path ------------------------------------------------------------------

data_floors="loop rx tx rpc rndv rma session progress"
# Includes that point up: FILE HEADER, and why. More than these fail, and so does one that is no include any more.
data_ups=(
    "loop/loop.c rx/recv_queue.h     a loop opens with what every list of receives has"
    "loop/loop.c rx/srq.h            and with its shared receives, and closes them"
    "loop/loop.c session/reap.h      the last sessions are freed when it closes"
    "rx/recv_queue.c rpc/client.h    what adds up: replies that took a receive which was set aside"
    "rx/landing.c rndv/rndv.h         which large message the peer owes, and that one may find memory now"
    "tx/coalesce.c rpc/client.h      a request that goes with others gets its number when they are posted"
    "tx/iov.c rma/one_sided.h        a message in pieces and an operation begin alike"
    "tx/iov.c rndv/rndv.h            a large one is announced"
    "tx/iov.c rndv/rts.h             and so is each of its pieces"
    "tx/send.c rpc/client.h          a request is admitted, or waits, with the other messages"
    "tx/send.c rndv/rts.h            a large message that is next is announced at once"
    "rpc/client.c rndv/rndv.h        a large request or reply"
    "rpc/client.c rndv/rts.h         is announced"
)

data=$(grep -rnoE --include='*.[ch]' '^#include "datapath/[^"]+"' src/datapath |
    sed -E 's|^src/datapath/([^:]*):.*"datapath/(.*)"$|\1 \2|')
if (($(wc -l <<< "$data") < 100)); then
    echo "hardly an include in src/datapath: this test does not see the data path"
    exit 1
fi
((${#data_ups[@]} <= 15)) || { echo "${#data_ups[@]} includes of src/datapath may point up, which is more than fifteen"; exit 1; }
includes_up src/datapath "$data_floors" "$(printf '%s\n' "${data_ups[@]}")" <<< "$data"

# ---- the floors of the device ---------------------------------------------------------------------

floors="ipc object fault rc ud iwarp verbs cm control"
# Includes that point up: FILE HEADER, and why. More than these fail, and so does one that is no include any more.
ups=(
    "rc/progress.c ud/ud_recv.h      polling: datagrams are received as direct as messages are"
    "rc/progress.c iwarp/qp_tcp.h    polling: and so is what comes over TCP"
    "rc/requester.c ud/ud.h          posting: a work request is a datagram"
    "rc/requester.c iwarp/qp_tcp.h   posting: it goes over TCP"
    "rc/qp_timer.c ud/ud.h           the engine makes the progress of a queue pair that no thread polls"
    "rc/qp_timer.c iwarp/qp_engine.h    the same of one over TCP"
)
# Files that all need each other, each .c counted with its .h, are at most so many,
circle_max=8
# but for the circles of these files: FILE, the largest number, and what ties them. The numbers may only become smaller.
circles=(
    "rc/progress 25   posting and progress, which the first four includes above tie to ud/ and to iwarp/"
    "cm/id 25         an id has its connection, its port and its channel, and their events and messages find the id"
)

# One line for each include: FILE HEADER, both below device/src/soft. The headers without a folder are what the device offers (device/include).
soft=$(grep -roE --include='*.[ch]' '^#include "soft/[^"]+"' device/src/soft |
    sed -E 's|^device/src/soft/([^:]*):.*"soft/(.*)"$|\1 \2|' | grep -vE ' [a-z]+[.]h$')
if (($(wc -l <<< "$soft") < 300)); then
    echo "hardly an include in device/src/soft: this test does not see the device"
    exit 1
fi
((${#ups[@]} <= 10)) || { echo "${#ups[@]} includes of device/src/soft may point up, which is more than ten"; exit 1; }

includes_up device/src/soft "$floors" "$(printf '%s\n' "${ups[@]}")" <<< "$soft"

# ---- circles: files of the device that all need each other, each .c counted with its .h ------------

awk -v circle_max="$circle_max" -v circles="$(printf '%s\n' "${circles[@]}")" '
    function walk(start, next_of, found,    queue, head, tail, at, list, n, i) {
        split("", found)
        found[start] = 1
        queue[tail++] = start
        while (head < tail) {
            at = queue[head++]
            n = split(next_of[at], list, " ")
            for (i = 1; i <= n; i++)
                if (!(list[i] in found)) {
                    found[list[i]] = 1
                    queue[tail++] = list[i]
                }
        }
    }
    {
        from = $1; to = $2
        sub(/[.][ch]$/, "", from); sub(/[.][ch]$/, "", to)
        if (from == to) next
        above[to] = above[to] " " from
        below[from] = below[from] " " to
        files[from]; files[to]
    }
    END {
        count = split(circles, lines, "\n")
        for (i = 1; i <= count; i++) {
            split(lines[i], word, " ")
            named[word[1]] = word[2]
        }
        for (file in files) {
            if (file in counted) continue
            walk(file, below, down)
            walk(file, above, up)
            size = 0; names = ""; most = circle_max; which = ""
            for (other in down)
                if (other in up) {
                    size++
                    names = names " " other
                    counted[other]
                    if (other in named) {
                        most = named[other]
                        which = other
                    }
                }
            if (size > most) print "device/src/soft: " size " files need each other, more than " most ":" names
            if (which != "" && size < most) print "the circle of " which " has only " size " files, to be written down"
            if (size > most || which != "" && size < most) bad = 1
        }
        exit bad
    }' <<< "$soft"
