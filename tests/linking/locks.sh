#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# locks.sh SOURCE - a function of the software device whose comment says that its caller has a lock checks it: the builds with
# assertions stop where it is called without. A comment says so where it begins with the lock, "control lock", "qp->lock" or
# "poll_lock", or has one of them with "held" behind it. It stands above the function or its declaration, or behind it.
set -euo pipefail
cd "$1"

mapfile -t files < <(find device/src/soft -name '*.[ch]' | LC_ALL=C sort)
awk '
    # The locks that the caller has, by the comment: "c" control, "q" of the queue pair, "p" of the CQ.
    function locks(text,    got) {
        gsub(/[\/*]+/, " ", text)
        gsub(/[ \t\n]+/, " ", text)
        sub(/^ /, "", text)
        text = tolower(text)
        if (text ~ /lock not held|not with the control lock|takes qp->lock/) return ""
        if (text ~ /^(the )?control lock([.,:;]| held|$| *$)|control lock held|with the control lock|[.;] control lock[.]?/) got = got "c"
        if (text ~ /^qp->lock, control lock/) got = got "c"
        if (text ~ /^(the )?qp->lock|qp->lock held|control lock, qp->lock/) got = got "q"
        if (text ~ /^(the |the cq.s )?poll_lock|poll_lock held/) got = got "p"
        return got
    }
    BEGIN {
        all_locks = "cqp"
        pattern["c"] = "soft_assert_locked\\(\\)"
        pattern["q"] = "spin_assert_held\\(&[a-z_>-]+->lock\\)"
        pattern["p"] = "spin_assert_held\\(&[a-z_>-]+->poll_lock\\)"
    }
    FNR == 1 { comment = ""; open = 0; pending = ""; inside = 0 }
    inside {
        body = body "\n" $0
        if ($0 ~ /^}/) {
            inside = 0
            for (i = 1; i <= 3; i++) {
                lock = substr(all_locks, i, 1)
                key = (static_here ? FILENAME ":" : "") name SUBSEP lock
                if (index(said, lock)) { wanted[key] = where; }
                if (body ~ pattern[lock]) checked[key] = 1
                defined[key] = where
            }
        }
        next
    }
    pending == "" && /^ *\/\*/ { comment = ""; open = 1 }
    open { comment = comment " " $0; if (/\*\//) { open = 0; above = FNR } ; next }
    pending != "" || /^[A-Za-z_].*\(/ {
        if (pending == "") { begins = FNR; if (above != FNR - 1) comment = "" }
        pending = pending " " $0
        clean = pending
        trailing = ""
        while (match(clean, /\/\*[^*]*\*\//)) {
            trailing = trailing " " substr(clean, RSTART, RLENGTH)
            clean = substr(clean, 1, RSTART - 1) substr(clean, RSTART + RLENGTH)
        }
        sub(/ +$/, "", clean)
        if (clean !~ /[{;]$/) { if (FNR - begins > 8) pending = ""; next }
        pending = ""
        gsub(/__attribute__ *\(\([^)]*\)*\)\)/, "", clean)
        if (clean ~ /^ *(typedef|extern|union|enum|_Static)/ || !match(clean, /[a-z_][a-z0-9_]* *\(/)) { comment = ""; next }
        name = substr(clean, RSTART, RLENGTH)
        sub(/ *\($/, "", name)
        if (index(substr(clean, 1, RSTART), "=")) { comment = ""; next }
        static_here = clean ~ /^ *static/ && FILENAME ~ /[.]c$/
        said = locks(comment) locks(trailing)
        where = FILENAME ":" begins
        if (clean ~ /[{]$/) { inside = 1; body = ""; comment = ""; next }
        for (i = 1; i <= length(said); i++) {
            key = (static_here ? FILENAME ":" : "") name SUBSEP substr(said, i, 1)
            wanted[key] = where
        }
        comment = ""
        next
    }
    !/^$/ { comment = "" }
    END {
        for (key in wanted) {
            count++
            if (!(key in defined)) continue # an entry of a table
            if (key in checked) continue
            split(key, part, SUBSEP)
            print defined[key] ": " part[1] "() does not check the lock that its comment names (" wanted[key] ")"
            bad = 1
        }
        if (count < 60) { print "only " count + 0 " comments name a lock: this test does not see the device"; bad = 1 }
        exit bad
    }' "${files[@]}" | LC_ALL=C sort
