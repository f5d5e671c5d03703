#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# judge_capture.sh FILE [MESSAGE]... - what tshark says of captured iWARP: every byte of TCP belongs to a frame that it
# can read, every check value is right, no frame is malformed, and each MESSAGE was seen ("Read Request" and so on, in
# its words). It reads the frames one by one, in the order of their streams (kernel/capture_frames.c). Exit status 77: there is
# no tshark, or no compiler.
set -euo pipefail
export LC_ALL=C

file=$1
shift
cc=${CC:-cc}
for program in tshark "$cc"; do
    command -v "$program" > /dev/null || { echo "SKIPPED: not installed: $program" && exit 77; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/judge.XXXXXX")
trap 'rm -rf "$work"' EXIT
export HOME=$work XDG_CONFIG_HOME=$work # none of the user's settings

fail() {
    echo "FAILED: $*"
    exit 1
}

"$cc" -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -o "$work/capture_frames" \
    "$(dirname "${BASH_SOURCE[0]}")/../kernel/capture_frames.c"
frameless=0
"$work/capture_frames" "$file" "$work/frames" > "$work/frameless" || frameless=$?
((frameless < 2)) || fail "$(< "$work/frameless")"
# Ports of other protocols are chosen at times. Short messages are taken for two protocols that may be within iWARP, and are
# not.
read_it=(tshark -n -r "$work/frames" -o tcp.try_heuristic_first:TRUE --disable-heuristic rpcrdma_iwarp
    --disable-heuristic smb_direct_iwarp)

"${read_it[@]}" -O iwarp_mpa,iwarp_ddp_rdmap > "$work/all" 2> "$work/said" || fail "tshark: $(tail -3 "$work/said")"
sums=$(grep -c 'CRC check: ' "$work/all") || true
good=$(grep -c 'CRC check: .*(Good CRC32)' "$work/all") || true
((sums > 0)) || fail "no check value was seen"
((good == sums)) || fail "$((sums - good)) of $sums check values are wrong: $(grep -m 1 'CRC check: .*Bad' "$work/all")"
! grep -i -m 1 'malformed' "$work/all" || fail "a frame is malformed"
for message; do
    grep -q "OpCode: $message (" "$work/all" || fail "no $message was seen"
done

((frameless == 0)) || fail "$(< "$work/frameless")"
"${read_it[@]}" -Y 'tcp.len > 0 && !iwarp_mpa' > "$work/rest" 2> "$work/said" || fail "tshark: $(tail -3 "$work/said")"
[[ ! -s $work/rest ]] || fail "$(wc -l < "$work/rest") frames are none of iWARP, the first: $(head -1 "$work/rest")"

grep -o 'OpCode: [A-Za-z ]*' "$work/all" | sort | uniq -c | sort -rn |
    awk -v n="$sums" '{ $2 = ""; line = line (NR > 1 ? "," : "") $0 }
        END { print n " frames, good check values:", line }'
