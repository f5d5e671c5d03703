#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# states.sh SOURCE - an id of the software device and its connection change their state in one place each, which has the table
# of what may follow what: the builds with assertions stop at any other step.
set -euo pipefail
cd "$1"

changes=$(grep -rnE --include='*.[ch]' '(conn->|conn\.|id->)state = ' device/src/soft/cm)
wrong=$(grep -vE '^device/src/soft/cm/(id|conn)\.c:' <<< "$changes" || true)
if [[ -n $wrong ]]; then
    printf 'a state is changed elsewhere than where its table is:\n%s\n' "$wrong"
    exit 1
fi
for file in id conn; do
    count=$(grep -c "^device/src/soft/cm/$file.c:" <<< "$changes" || true)
    if [[ $count != 1 ]]; then
        echo "device/src/soft/cm/$file.c changes a state in $count places"
        exit 1
    fi
done
for table in soft_cm_id_enter:id soft_cm_conn_enter:conn; do
    if ! awk -v name="${table%:*}" 'index($0, "void " name "(") { on = 1 }
        on && /ASSERT\(/ { checks = 1 } on && /^}/ { on = 0 } END { exit !checks }' "device/src/soft/cm/${table#*:}.c"; then
        echo "${table%:*}() does not look into its table"
        exit 1
    fi
done
