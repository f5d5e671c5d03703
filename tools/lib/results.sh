# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# results.sh - what came of a pass of tests: counting, the one second try, and the names of what was not
# run. Sourced after common.sh by run-tests; the sums are its own variables below.

passed=0 failed=0 skipped=0
failures=() # "PASS: what failed there", told at the end
unrun=()    # "PASS: what did not run, and why", told in capitals
unsteady=() # tests that failed once and passed alone
judged=()   # "KERNEL: PACKAGE is VERSION, judged was VERSION", told at the end

UNSTEADY_MAX=3        # so many in one run; more of them fail it
UNSTEADY=build/unsteady # keeps what they printed when they failed

# What no second try takes back: a crash, what a sanitizer found, and data that is wrong, lost or doubled
# (tests/support/verdict.h prints the last; the line about bytes is cmocka's own).
FINAL='wrong data: |[0-9]+ bytes of 0x[0-9a-f]+ and 0x[0-9a-f]+ differ|Test failed with exception'
FINAL+='|(Address|Leak|Thread|UndefinedBehavior)Sanitizer|: runtime error: |stack smashing detected'
FINAL+='|Assertion .* failed|^(free|malloc|realloc|corrupted|double free)[^ ]*\(?\)?.*: |core dumped'

# pass_is TITLE PASSED FAILED SKIPPED [NAMES] - adds a pass to the sums. NAMES: what failed.
pass_is() {
    passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
    (($3 == 0)) || failures+=("$1: ${5:-$3 tests}")
    note "$1: $2 passed, $3 failed, $4 skipped"
}

# not_run TITLE COUNT WHY - counts as skipped, and is told in capitals.
not_run() {
    skipped=$((skipped + $2))
    unrun+=("$1: $3")
    warn "NOT RUN: ${1^^}: $3"
}

# junit_results FILE - a line "STATUS NAME" for each test of ctest's JUnit file: run, fail, skip. A test
# whose program is missing is "notrun" there like a skipped one, but it did not skip: it failed.
junit_results() {
    awk '
        function settle() {
            if (status == "disabled" || (status == "notrun" && excused)) status = "skip"
            else if (status != "run" && status != "") status = "fail"
            if (status != "") print status, name
            status = ""; excused = 0
        }
        /^[ \t]*<testcase / {
            settle()
            name = $0; sub(/.*<testcase name="/, "", name); sub(/".*/, "", name)
            status = $0; sub(/.* status="/, "", status); sub(/".*/, "", status)
        }
        /^[ \t]*<skipped message="SKIP_/ { excused = 1 }
        END { settle() }' "$1"
}

# junit_output FILE NAME - what that test printed.
junit_output() {
    awk -v wanted="$2" '
        /^[ \t]*<testcase / {
            name = $0; sub(/.*<testcase name="/, "", name); sub(/".*/, "", name)
        }
        name != wanted { next }
        /<system-out>/ { inside = 1; sub(/.*<system-out>/, "") }
        inside {
            last = sub(/<\/system-out>.*/, "")
            gsub(/&lt;/, "<"); gsub(/&gt;/, ">"); gsub(/&quot;/, "\""); gsub(/&apos;/, "\047"); gsub(/&amp;/, "\\&")
            print
            if (last) exit
        }' "$1"
}

# is_final FILE - whether the output of a failed test, or ctest's word about it, allows no second try.
is_final() {
    LC_ALL=C grep -qaE "$FINAL" "$1"
}

# shown LOG SECONDS COMMAND... - runs it for so long at most, its output to LOG and to ours; its status. All of it is
# in LOG when this returns, but for what a process that was left behind may still say.
shown() {
    local log=$1 fd tee status=0 tries
    shift
    exec {fd}> >(exec tee "$log")
    tee=$!
    spawn "$@" >&"$fd" 2>&1 < /dev/null {fd}>&-
    exec {fd}>&-
    reap "$CHILD" || status=$?
    for ((tries = 600; tries > 0; tries--)); do
        kill -0 "$tee" 2> /dev/null || break
        sleep 0.05
    done
    kill "$tee" 2> /dev/null || true
    return "$status"
}

# ctest_run SECONDS JUNIT LOG DIR ARGUMENTS... - one ctest run, which ends by itself after so many seconds,
# with $wrapper before the command. Shows what it prints.
ctest_run() {
    local seconds=$1 junit=$2 log=$3 dir=$4
    shift 4
    rm -f "$junit"
    # The limit behind it is the last resort: what it ends leaves no results.
    shown "$log" $((seconds + 120)) ${wrapper[@]+"${wrapper[@]}"} ctest --test-dir "$dir" --output-on-failure \
        --test-output-size-failed 4194304 --stop-time "$(date -d "+$seconds sec" +%H:%M:%S)" \
        --output-junit "$junit" "$@"
}

# ctest_pass TITLE SECONDS DIR ARGUMENTS... - a pass of ctest: runs it, tries again what may be tried again,
# and adds it to the sums. For what 10 stands, and that it means two CPUs, is in tests/CMakeLists.txt.
ctest_pass() {
    local title=$1 seconds=$2 dir=$3 status=0 began=$SECONDS
    local junit=$WORK/junit.$1.xml log=$WORK/ctest.$1.log
    shift 3
    step "testing: $title"
    ctest_run "$seconds" "$junit" "$log" "$dir" -j 10 "$@" || status=$?
    ctest_settle "$title" $((seconds - (SECONDS - began))) "$dir" "$junit" "$log" "$status" "$@"
}

# ctest_settle TITLE SECONDS-LEFT DIR JUNIT LOG STATUS ARGUMENTS...
ctest_settle() {
    local title=$1 left=$2 dir=$3 junit=$4 log=$5 status=$6 word name good=0 skips=0 stopped=0
    local bad=() broken=() cut='' missing=()
    shift 6
    [[ -s $junit ]] || : > "$junit"
    mkdir -p build/results && cp "$junit" "build/results/${title// /_}.xml" # for tools/record-seconds
    while read -r word name; do
        case $word in
            run) good=$((good + 1)) ;;
            skip) skips=$((skips + 1)) ;;
            fail) bad+=("$name") ;;
        esac
    done < <(junit_results "$junit")
    if grep -qs 'stop time has been passed' "$log"; then
        stopped=1 # the last ones were cut off, and did not fail
        cut=$(tail -n 60 "$log" | sed -n 's/^ *[0-9]*\/[0-9]* .*: \([^ ]*\) .*\*\*\*Timeout.*/\1/p' | tail -n 10)
    fi
    for name in ${bad[@]+"${bad[@]}"}; do
        if grep -qxF "$name" <<< "$cut"; then
            continue
        elif second_try "$title" "$dir" "$junit" "$log" "$name" "$left" "${#bad[@]}"; then
            good=$((good + 1))
        else
            broken+=("$name")
        fi
    done
    if ((good + skips + ${#bad[@]} == 0 && !stopped)) || ((status != 0 && ${#bad[@]} == 0 && !stopped)); then
        broken+=("ctest itself (status $status after $((good + skips)) results)")
    fi
    pass_is "$title" "$good" "${#broken[@]}" "$skips" "${broken[*]-}"
    if ((stopped)); then
        mapfile -t missing < <(comm -13 <(junit_results "$junit" | cut -d ' ' -f 2 | grep -vxF "$cut" | sort) \
            <(ctest --test-dir "$dir" -N "$@" | sed -n 's/^ *Test *#[0-9]*: //p' | sort))
        not_run "$title" "${#missing[@]}" "its time was over before ${missing[*]}"
    fi
}

# second_try TITLE DIR JUNIT LOG NAME SECONDS-LEFT FAILED - runs a failed test once more, alone. True: it
# passed. What crashed or saw wrong data has had its chance, and so has a pass of which much failed.
second_try() {
    local title=$1 dir=$2 junit=$3 log=$4 name=$5 left=$6 count=$7 out
    mkdir -p "$UNSTEADY"
    out=$UNSTEADY/$name.${title// /_}
    {
        grep -aE "Test +#[0-9]+: ${name//./\\.} \.* *" "$log" || true
        junit_output "$junit" "$name"
    } > "$out"
    if is_final "$out" || grep -qaE '\*\*\*(Exception|Not Run)' "$out"; then
        note "$name is not tried again: see $out"
        return 1
    fi
    ((count <= 2 * UNSTEADY_MAX && left > 0)) || return 1
    step "once more, alone: $name ($title)"
    ctest_run "$((left > 600 ? 600 : left))" "$WORK/again.xml" "$WORK/again.log" "$dir" -R "^$name\$" || true
    if [[ $(junit_results "$WORK/again.xml" 2> /dev/null) == "run $name" ]]; then
        unsteady+=("$name ($title)")
        cp "$WORK/again.xml" "build/results/again.$name.xml"
        return 0
    fi
    return 1
}

# program_pass TITLE SECONDS RESULTS COMMAND... - a pass by a program that prints a line "passed|FAILED|skipped
# NAME (SECONDS): TROUBLE" for each test and ends with "N passed, N failed, N skipped", and that leaves what a
# test printed in the folder RESULTS. `again NAME` must run one of its tests once more. Its status is 0, 1 with
# failed tests, or 77 with skipped ones only: with another one it ended early.
program_pass() {
    local title=$1 seconds=$2 results=$3 out=$WORK/$1.log p=0 f=0 s=0 name trouble broken=() status=0
    shift 3
    step "testing: $title"
    shown "$out" "$seconds" "$@" || status=$?
    program_judged "$out"
    if ! [[ $(tail -n 1 "$out") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
        pass_is "$title" 0 1 0 "it did not end as it should (status $status)"
        return
    fi
    p=${BASH_REMATCH[1]} f=${BASH_REMATCH[2]} s=${BASH_REMATCH[3]}
    if ((f == 0 && status != 0 && (status != 77 || s == 0))) || ((p + f + s == 0)); then
        pass_is "$title" "$p" 1 "$s" "it ended early (status $status)"
        return
    fi
    while read -r name trouble; do
        if [[ $name == *: ]]; then # no test: what is said of the whole pass
            broken+=("$name $trouble")
        elif program_again "$title" "$name" "$trouble" "$results/$name.out" "$f"; then
            p=$((p + 1)) f=$((f - 1))
        else
            broken+=("$name")
        fi
    done < <(sed -n 's/^FAILED  *\([^ ]*\)/\1/p' "$out")
    # What it could not run at all has a colon after its name.
    while read -r trouble; do
        s=$((s - 1))
        not_run "$title" 1 "$trouble"
    done < <(sed -n 's/^skipped  *[^ ]*: *//p' "$out")
    pass_is "$title" "$p" "$f" "$s" "${broken[*]-}"
}

# program_judged FILE - takes over which versions are not the judged ones.
program_judged() {
    local line
    while IFS= read -r line; do
        [[ " ${judged[*]-} " == *" $line "* ]] || judged+=("$line")
    done < <(sed -n 's/^not as judged: //p' "$1")
}

# program_again TITLE NAME TROUBLE FILE FAILED - second_try for such a program. A kernel in trouble is final.
program_again() {
    local title=$1 name=$2 trouble=$3 file=$4 count=$5 out
    mkdir -p "$UNSTEADY"
    out=$UNSTEADY/${name//\//.}.${title// /_}
    { printf '%s %s\n' "$name" "$trouble" && cat "$file" 2> /dev/null; } > "$out" || true
    if is_final "$out" || [[ $trouble == *"kernel: "* || $trouble == *"exit status 86"* ]]; then
        note "$name is not tried again: see $out"
        return 1
    fi
    ((count <= 2 * UNSTEADY_MAX)) || return 1
    step "once more, alone: $name"
    again "$name" || return 1
    unsteady+=("$name")
}

# unsteady_end - too much chance in one run is no chance.
unsteady_end() {
    local name
    for name in ${unsteady[@]+"${unsteady[@]}"}; do
        printf 'unsteady: %s\n' "$name"
    done
    if ((${#unsteady[@]} > UNSTEADY_MAX)); then
        failed=$((failed + 1))
        failures+=("all: ${#unsteady[@]} tests are unsteady, which are more than $UNSTEADY_MAX")
    fi
}
