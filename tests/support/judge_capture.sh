#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# judge_capture.sh FILE [MESSAGE]... - what tshark says of captured iWARP: every byte of TCP belongs to a frame that it
# can read, every check value is right, no frame is malformed, and each MESSAGE was seen ("Read Request" and so on, in
# its words). Exit status 77: there is no tshark.
set -euo pipefail
export LC_ALL=C

file=$1
shift
command -v tshark > /dev/null || { echo "SKIPPED: not installed: tshark" && exit 77; }
# Ports of other protocols are chosen at times, and what two processors send may be captured in another order. Short
# messages are taken for two protocols that may be within iWARP, and are not.
read_it=(tshark -n -2 -r "$file" -o tcp.try_heuristic_first:TRUE
    -o tcp.reassemble_out_of_order:TRUE --disable-heuristic rpcrdma_iwarp --disable-heuristic smb_direct_iwarp)
work=$(mktemp -d "${TMPDIR:-/tmp}/judge.XXXXXX")
trap 'rm -rf "$work"' EXIT
export HOME=$work XDG_CONFIG_HOME=$work # none of the user's settings

fail() {
    echo "FAILED: $*"
    exit 1
}

"${read_it[@]}" -O iwarp_mpa,iwarp_ddp_rdmap > "$work/all" 2> "$work/said" || fail "tshark: $(tail -3 "$work/said")"
sums=$(grep -c 'CRC check: ' "$work/all") || true
good=$(grep -c 'CRC check: .*(Good CRC32)' "$work/all") || true
((sums > 0)) || fail "no check value was seen"
((good == sums)) || fail "$((sums - good)) of $sums check values are wrong: $(grep -m 1 'CRC check: .*Bad' "$work/all")"
! grep -i -m 1 'malformed' "$work/all" || fail "a frame is malformed"
for message; do
    grep -q "OpCode: $message (" "$work/all" || fail "no $message was seen"
done

# A packet that brings nothing new is not looked into, and one within a frame is with the packet that ends it.
"${read_it[@]}" -Y 'tcp.len > 0 && !iwarp_mpa && !tcp.reassembled_in &&
    !tcp.analysis.retransmission && !tcp.analysis.fast_retransmission && !tcp.analysis.spurious_retransmission' \
    > "$work/rest" 2> "$work/said" || fail "tshark: $(tail -3 "$work/said")"
[[ ! -s $work/rest ]] || fail "$(wc -l < "$work/rest") packets belong to no frame: $(head -1 "$work/rest")"

grep -o 'OpCode: [A-Za-z ]*' "$work/all" | sort | uniq -c | sort -rn |
    awk -v n="$sums" '{ $2 = ""; line = line (NR > 1 ? "," : "") $0 }
        END { print n " frames, good check values:", line }'
