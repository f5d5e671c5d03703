#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# bench_cases.sh - each case of sluice-bench runs, once and briefly: bench/cases.txt lists them, and what a machine
# may lack. No figure is looked at. Then the same results with a case taken out, and with one that went
# wrong, must not pass.
set -euo pipefail

bin=${SLUICE_BIN_DIR:?SLUICE_BIN_DIR is not set}/../bench
listed=$(dirname "$0")/../../bench/cases.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
failed=0

fail() {
    echo "bench_cases: $*" >&2
    failed=1
}

[ -x "$bin/sluice-bench" ] || {
    echo "SKIPPED: BUILT WITHOUT THE BENCHMARKS (SLUICE_BENCH)" >&2
    exit 77
}

# The cases that this machine must have, with what they may lack.
without=mimalloc
if ldconfig -p | grep -F 'libmimalloc.so.2 ' >/dev/null; then without=; fi
awk -v without="$without" '!/^#/ && (without == "" || $2 != without)' "$listed" >"$work/expected"

# results JSON: NAME|ITERATIONS|ERROR of each case, as it is known in the list.
results() {
    awk '
        { value = $0; sub(/^[^:]*: "?/, "", value); sub(/"?,?$/, "", value) }
        /^ *"name":/ {
            name = value
            sub(/\/(real|manual)_time$/, "", name)
            error = ""
        }
        /^ *"error_message":/ { error = value }
        /^ *"iterations":/ { print name "|" value "|" error }' "$1"
}

# judge RESULTS: a line for each case that is missing, unknown, or has no result that counts.
judge() {
    awk '
        FILENAME == ARGV[1] {
            split($0, word, " ")
            lacks[word[1]] = substr($0, length(word[1]) + 1) " "
            next
        }
        {
            split($0, field, "|")
            name = field[1]
            error = field[3]
            if (!(name in lacks)) {
                print name " is not in bench/cases.txt"
                next
            }
            seen[name]++
            excused = error ~ /^not here: needs two CPUs/ && lacks[name] ~ / cpus / ||
                      error == "not here: no user events" && lacks[name] ~ / events / ||
                      error ~ /^not here: / && lacks[name] ~ / watched /
            if (error != "" && !excused)
                print name ": " error
            else if (error == "" && field[2] < 1)
                print name " did not run"
        }
        END {
            for (name in lacks)
                if (seen[name] != 1)
                    print name " has " seen[name] + 0 " results"
        }' "$work/expected" "$1"
}

status=0
"$bin/sluice-bench" --benchmark_min_time=0.001 --benchmark_format=json >"$work/json" 2>"$work/err" || status=$?
[ "$status" = 0 ] || fail "sluice-bench ends with status $status: $(tail -n 3 "$work/err")"
results "$work/json" >"$work/results"
judge "$work/results" >"$work/wrong"
[ ! -s "$work/wrong" ] || fail "$(cat "$work/wrong")"
grep -F '|not here: ' "$work/results" || true # for whoever reads the log

# A case that vanishes, one that goes wrong, one that does nothing, and one that nobody listed are found.
refused() { # refused WHAT SED-PROGRAM
    sed "$2" "$work/results" >"$work/changed"
    ! cmp -s "$work/results" "$work/changed" || fail "$1 was not tried"
    judge "$work/changed" >"$work/wrong"
    [ -s "$work/wrong" ] || fail "$1 passes"
}
refused "a case that is missing" '/^pool\/miss\/32|/d'
refused "a case that goes wrong" 's/^\(pool\/miss\/32\)|.*/\1|0|failed: no memory/'
refused "an excuse that does not count" 's/^\(pool\/miss\/32\)|.*/\1|0|not here: needs two CPUs/'
refused "a case without an iteration" 's/^\(pool\/miss\/32\)|[0-9]*/\1|0/'
refused "a case nobody listed" 's/^pool\/miss\/32|.*/&\npool\/miss\/33|1|/'
exit $failed
