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

# A packet within a frame is with the packet that ends it. One that brings nothing new, as all its bytes came before, is not
# looked into: tshark's own word for it is a guess by time, so that is counted here.
"${read_it[@]}" -Y 'tcp.len > 0' -T fields -e frame.number -e tcp.stream -e tcp.srcport -e tcp.seq -e tcp.nxtseq \
    -e iwarp_mpa -e tcp.reassembled_in > "$work/packets" 2> "$work/said" || fail "tshark: $(tail -3 "$work/said")"
awk -F '\t' '
    function joins(a, b) { return from[a] <= to[b] && from[b] <= to[a] }
    # The bytes that were seen of a direction are ranges 0 .. count - 1 of it, no two of which touch.
    function add(way, begin, end,    i, new) {
        new = way SUBSEP "new"
        from[new] = begin
        to[new] = end
        for (i = count[way] - 1; i >= 0; i--)
            if (joins(new, way SUBSEP i)) {
                from[new] = from[way, i] < from[new] ? from[way, i] : from[new]
                to[new] = to[way, i] > to[new] ? to[way, i] : to[new]
                count[way]--
                from[way, i] = from[way, count[way]]
                to[way, i] = to[way, count[way]]
            }
        from[way, count[way]] = from[new]
        to[way, count[way]] = to[new]
        count[way]++
    }
    function is_repeated(way, begin, end,    i) {
        for (i = 0; i < count[way]; i++)
            if (from[way, i] <= begin && end <= to[way, i])
                return 1
        return 0
    }
    {
        way = $2 SUBSEP $3
        if ($6 == "" && $7 == "" && !is_repeated(way, $4 + 0, $5 + 0))
            print $1
        add(way, $4 + 0, $5 + 0)
    }' "$work/packets" > "$work/rest"
[[ ! -s $work/rest ]] || fail "$(wc -l < "$work/rest") packets belong to no frame, the first: $(head -1 "$work/rest")"

grep -o 'OpCode: [A-Za-z ]*' "$work/all" | sort | uniq -c | sort -rn |
    awk -v n="$sums" '{ $2 = ""; line = line (NR > 1 ? "," : "") $0 }
        END { print n " frames, good check values:", line }'
