#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# judge_malformed.sh EXPECTED THEIRS OURS [NAMES] - what malformed_peer said of two listeners, line by line: they react alike,
# or as EXPECTED says, in lines "NAME: THEIRS | OURS | why", where NAME without its revision is that of both. A difference that
# is not there, one that is gone and an input that only one of the two was given fail. NAMES gets what was taken otherwise
# than expected, a name a line.
set -euo pipefail
export LC_ALL=C

awk -v names="${4:-/dev/null}" '
    # A connection that is closed with something unread is reset by TCP: what was unread is a matter of time.
    function read_line() {
        at = match($0, /: [^:]*$/)
        name = substr($0, 1, at - 1)
        reaction = substr($0, at + 2)
        if (reaction == "reset")
            reaction = "closed"
        return at > 0
    }
    function wrong(text) {
        print "FAILED: " text
        failed++
    }
    function wrong_pair(name, text) {
        wrong(text)
        sub(/^revision [12], /, "", name)
        print name > names
    }
    /^#/ || /^$/ { next }
    FILENAME == ARGV[1] {
        at = index($0, ": ")
        if (at == 0 || split(substr($0, at + 2), part, / [|] /) != 3 || part[1] == part[2])
            wrong("no difference is named by: " $0)
        expected[substr($0, 1, at - 1)] = part[1] " | " part[2]
        next
    }
    !read_line() { wrong("cannot be read: " $0) }
    FILENAME == ARGV[2] { theirs[name] = reaction; next }
    { ours[name] = reaction }
    END {
        for (name in theirs)
            if (!(name in ours))
                wrong("our end was not asked: " name)
        for (name in ours) {
            key = name
            if (!(key in expected))
                sub(/^revision [12], /, "", key)
            said = theirs[name] " | " ours[name]
            count++
            if (!(name in theirs))
                wrong("their end was not asked: " name)
            else if (key in expected) {
                met[key] = 1
                different++
                if (said != expected[key])
                    wrong_pair(name, name ": " said ", expected: " expected[key])
            } else if (theirs[name] != ours[name])
                wrong_pair(name, "a difference that is not listed: " name ": " said)
        }
        for (key in expected)
            if (!(key in met))
                wrong("listed, and not played: " key)
        if (count < 25)
            wrong("inputs: " count + 0)
        printf "%d malformed inputs, %d of them with a listed difference\n", count, different
        exit failed > 0
    }' "$1" "$2" "$3"
