#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# repository_doc.sh - what stands beside the sources agrees with them: the newest heading of docs/changes.md is the tag of the
# version in the public header, .editorconfig says what .clang-format does, the workflow runs the gate by .ci/run, and the
# commands, files and headings that SECURITY.md and the template of a pull request name exist.
set -u
cd "$(dirname "$0")/../.." || exit 1
failed=0

fail() {
    echo "repository_doc: $1" >&2
    failed=1
}

version=$(sed -nE 's/^#define SLUICE_VERSION_(MAJOR|MINOR|PATCH) +([0-9]+).*/\2/p' include/sluice/sluice.h | paste -sd.)
newest=$(grep -m1 -E '^## ' docs/changes.md)
[[ "$newest " == "## v$version "* ]] || fail "docs/changes.md begins with '$newest', the header says v$version"

# of FILE KEY: its value, with blanks left out
of() {
    sed -nE "s/^$2 *[=:] *([^ ]*) *$/\1/p" "$1" | head -1
}
[[ $(of .editorconfig indent_size) == "$(of .clang-format IndentWidth)" ]] || fail "two widths of an indent"
[[ $(of .editorconfig max_line_length) == "$(of .clang-format ColumnLimit)" ]] || fail "two lengths of a line"

grep -qE '^ +- run: \./\.ci/run$' .github/workflows/gate.yml || fail "the workflow does not run .ci/run"
[[ -x .ci/run ]] || fail ".ci/run cannot be run"

for page in SECURITY.md .github/pull_request_template.md; do
    while read -r name; do
        [[ -e $name ]] || fail "$page names $name, which is not there"
    done < <(grep -oE '(\./)?(docs|tests|tools)/[A-Za-z0-9_./-]*[A-Za-z0-9/]' "$page" | sort -u)
done
anchor=$(sed -nE 's/.*security\.md#([a-z-]+).*/\1/p' SECURITY.md | head -1)
grep -E '^#+ ' docs/security.md | sed -E 's/^#+ //' | tr 'A-Z ' 'a-z-' | grep -qx "$anchor" ||
    fail "docs/security.md has no heading '$anchor'"
exit $failed
