#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# gate.sh - tools/run-tests over passes that are not real: what it counts, tries again, leaves out, and says in
# the end. cmake, clang-format and the kernel's guest are stand-ins; ctest is real and runs the tests of a folder
# that each case makes for the preset.
set -euo pipefail
source=$(cd "${1:?the checkout}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CI
real_ctest=$(command -v ctest)
export STATE=$work/state

# ---- a checkout with the scripts and nothing else --------------------------------------------------

mkdir -p "$work/tree" "$work/bin"
cp -R "$source/tools" "$work/tree/"
cd "$work/tree"
printf 'build/\nout\n' > .gitignore
cat > tools/run-kernel-tests << 'END'
#!/bin/sh
case "$*" in
    *--prepare*) cat "$STATE/prepared" ;;
    *)
        until=$STATE/$(cat "$STATE/guest-until" 2> /dev/null) # what the guest's tests wait for, if anything
        for i in $(seq 300); do
            [ ! -e "$until" ] || break
            sleep 0.1
        done
        [ -e "$until" ] || { echo 'FAILED   stock/connect_test (30 s)'; echo '0 passed, 1 failed, 0 skipped'; exit 1; }
        [ ! -e "$STATE/guest" ] || { cat "$STATE/guest"; exit "$(cat "$STATE/guest-status")"; } ;;
esac
case "$*" in
    *"--short --only connect_test --only"*) echo 'passed   stock/connect_test (1.0 s)'
        echo '1 passed, 0 failed, 0 skipped' ;;
esac
END
git init -q . && git add -A && git -c user.name=t -c user.email=t@t.invalid commit -q -m tree
for name in cmake dpkg-query; do
    printf '#!/bin/sh\necho installed\n' > "$work/bin/$name"
done
printf '#!/bin/sh\n[ "$1" != --version ] || echo "clang-format version 14.0"\n' > "$work/bin/clang-format"
chmod +x "$work"/bin/* tools/run-kernel-tests
PATH=$work/bin:$PATH

bad=0
fail() {
    printf 'FAILED: %s: %s\n' "$case" "$*" >&2
    sed 's/^/    | /' out >&2 || true
    bad=1
}
case_is() {
    case=$1
    rm -rf build out "$work/state"
    mkdir -p build/release build/asan "$work/state"
    echo 'prepared stock' > "$STATE/prepared"
    fake asan good true
    printf '    case %s\n' "$1"
}
# fake PRESET NAME COMMAND... - a test of that preset, with the label unit
fake() {
    local preset=$1 name=$2
    shift 2
    printf 'add_test(%s bash -c "%s")\nset_tests_properties(%s PROPERTIES LABELS unit TIMEOUT 100)\n' \
        "$name" "$*" "$name" >> "build/$preset/CTestTestfile.cmake"
}
run() { # ARGUMENTS... - leaves all it prints in `out` and its status in `status`
    status=0
    ./tools/run-tests "$@" > out 2>&1 < /dev/null || status=$?
}
says() { grep -qE -- "$1" out || fail "it does not say: $1"; }
says_not() { ! grep -qE -- "$1" out || fail "it says: $1"; }
ends() { # STATUS LINE
    [[ $status == "$1" ]] || fail "exit status $status, not $1"
    [[ $(tail -n 1 out) == "$2" ]] || fail "its last line is \"$(tail -n 1 out)\", not \"$2\""
    grep -q "^$(git rev-parse HEAD) [a-z]*: $2, [0-9]* s: " build/run-tests.last ||
        fail "build/run-tests.last: $(cat build/run-tests.last 2>&1)"
}
# Fails the first time it is run, with the text; passes afterwards.
once() { printf '%s' "test -e $work/state/$1 && exit 0; touch $work/state/$1; echo '$2'; exit ${3:-1}"; }

# ---- cases ----------------------------------------------------------------------------------------

case_is a_green_run_counts_every_pass
fake release good true
run
ends 0 '4 passed, 0 failed'
grep -q ' clean: ' build/run-tests.last || fail "the tree is clean"
says_not unsteady

case_is a_failure_fails_twice
fake release good true
fake release broken "echo this is broken; exit 1"
run
ends 1 '4 passed, 1 failed'
says '^failed in release: broken$'
[[ $(grep -c 'once more, alone: broken' out) == 1 ]] || fail "not tried once more"

case_is chance_is_named_and_its_output_kept
fake release shaky "$(once shaky 'too slow')"
run
ends 0 '4 passed, 0 failed'
[[ $(tail -n 3 out | grep -c '^unsteady: shaky (release)$') == 1 ]] || fail "not named at the end"
grep -q 'too slow' build/unsteady/shaky.release || fail "its output is not kept"

case_is four_chances_are_too_many
for i in 1 2 3 4; do
    fake release "shaky$i" "$(once "shaky$i" 'too slow')"
done
run
ends 1 '7 passed, 1 failed'

# What is final, one by one: text, exit status, what ctest is to be told.
for text in 'wrong data: message 3: byte 4 of 5 differs' '4 bytes of 0x7ffc12 and 0x55aa differ:' \
    'ERROR: AddressSanitizer: heap-use-after-free' 'x.c:3:4: runtime error: shift exponent' \
    'Test failed with exception: Segmentation fault(11)' 'LeakSanitizer: detected memory leaks' \
    'WARNING: ThreadSanitizer: data race' '*** stack smashing detected ***' 'free(): invalid pointer' \
    'a: b.c:4: f: Assertion 0 failed.'; do
    case_is "no_second_try_after $text"
    fake release final "$(once final "$text")"
    run
    ends 1 '3 passed, 1 failed'
    says 'final is not tried again'
done
case_is no_second_try_after_a_crash
fake release final 'kill -SEGV \$\$'
run
ends 1 '3 passed, 1 failed'
says 'final is not tried again'

case_is a_budget_that_is_over_begins_nothing
for budget in 3 12 48; do # seconds: the first passes begin within one of them, however slow the machine is
    rm -f "$work/state/begun" build/release/CTestTestfile.cmake
    fake release slow "touch $work/state/begun; sleep $((budget + 1))"
    run --budget "$(awk -v s="$budget" 'BEGIN { print s / 60 }')"
    [[ ! -e $work/state/begun ]] || break
done
ends 0 '2 passed, 0 failed, 2 skipped'
says '^NOT RUN: ASAN: THE BUDGET'
says '^NOT RUN: SMOKE: THE BUDGET'

case_is a_pass_at_its_limit_names_what_it_did_not_run
sed -i 's/^release  *[0-9]*/release 3/' tools/run-tests
for name in first second third; do
    fake release "$name" sleep 30
done
for i in 1 2 3 4 5 6 7 8 9; do # more than can begin
    fake release "late$i" sleep 30
done
run --only release
git checkout -q tools/run-tests
says '^NOT RUN: RELEASE: ITS TIME WAS OVER BEFORE .*LATE9'
[[ $(tail -n 1 out) == *' skipped' && $status != 0 ]] || fail "$(tail -n 1 out), status $status: nothing ran"

case_is a_run_that_is_ended_is_not_green
fake release good true
fake release endless "touch $work/state/begun; sleep 100"
./tools/run-tests > out 2>&1 < /dev/null &
pid=$!
for ((i = 0; i < 600; i++)); do
    [[ ! -e $work/state/begun ]] || break
    sleep 0.1
done
kill -TERM "$pid"
status=0
wait "$pid" || status=$?
((status != 0)) || fail "exit status 0"
[[ $(tail -n 1 out) =~ ^[0-9]+\ passed,\ [1-9] ]] || fail "its last line is \"$(tail -n 1 out)\""
grep -qE '[^0-9]0 failed' build/run-tests.last && fail "build/run-tests.last is green"

case_is a_kernel_that_cannot_be_had_is_skipped_in_capitals
fake release good true
echo 'skipped  stock: the package of the kernel is not to be had' > "$STATE/prepared"
run
ends 0 '3 passed, 0 failed, 1 skipped'
says '^NOT RUN: SMOKE: THE PACKAGE OF THE KERNEL IS NOT TO BE HAD'

case_is a_kernel_that_was_not_there_in_time_is_skipped
fake release good true
: > "$STATE/prepared"
run
ends 0 '3 passed, 0 failed, 1 skipped'
says '^NOT RUN: SMOKE: WHAT ITS GUEST NEEDS'

# guest STATUS LINE... - what the guest's tests print and how they end
guest() {
    echo "$1" > "$STATE/guest-status"
    shift
    printf '%s\n' "$@" > "$STATE/guest"
}
case_is a_kernel_that_is_lost_later_is_skipped_too
fake release good true
guest 77 'skipped  stock: the cache cannot be written' '0 passed, 0 failed, 1 skipped'
run
ends 0 '3 passed, 0 failed, 1 skipped'
says '^NOT RUN: SMOKE: THE CACHE CANNOT BE WRITTEN'

case_is versions_that_were_not_judged_are_named_at_the_end
fake release good true
guest 0 'passed   stock/connect_test (1.0 s)' 'not as judged: stock: linux is 2, judged was 1' \
    '1 passed, 0 failed, 0 skipped'
run
ends 0 '4 passed, 0 failed'
[[ $(tail -n 3 out | grep -c '^not as judged: stock: linux is 2, judged was 1$') == 1 ]] || fail "not named at the end"

case_is what_was_not_run_is_no_test_to_try_again
fake release good true
guest 1 'passed   stock/connect_test (1.0 s)' 'FAILED   stock: 1 programs were not run' '1 passed, 1 failed, 0 skipped'
run --only smoke
ends 1 '1 passed, 1 failed'
! grep -q 'once more' out || fail "tried again"
says '^failed in smoke: stock: 1 programs were not run'

case_is a_guest_that_ended_early_is_not_green
for code in 1 77 143; do
    fake release good true
    guest "$code" '0 passed, 0 failed, 0 skipped'
    run --only smoke
    ends 1 '0 passed, 1 failed'
done

case_is asan_is_built_beside_the_guest
fake release good true
printf '#!/bin/sh\ncase "$*" in *build*asan*) touch "$STATE/asan-begun" ;; esac\n' > "$work/bin/cmake"
echo asan-begun > "$STATE/guest-until"
run
printf '#!/bin/sh\n' > "$work/bin/cmake"
ends 0 '4 passed, 0 failed'

case_is what_does_not_build_fails
fake release good true
printf '#!/bin/sh\ncase "$*" in *asan*) exit 1 ;; esac\n' > "$work/bin/cmake"
run
printf '#!/bin/sh\n' > "$work/bin/cmake"
ends 1 '3 passed, 1 failed'

case_is wrong_arguments_are_told
for arguments in --nonsense "--only nothing" "--only" "--budget x" "--all --only asan" "--only asan --only tsan"; do
    # shellcheck disable=SC2086 # words
    run $arguments
    [[ $status == 2 ]] || fail "$arguments: exit status $status"
    says '^error: '
done
run --list
[[ $status == 0 ]] && says '^release .*gate' && says '^tsan .*all'

[[ -n $real_ctest ]]
exit "$bad"
