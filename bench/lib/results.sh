# shellcheck shell=bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# results.sh - what bench/compare does with a figure: a line a round, medians at the end, as text, JSON
# and a picture. Sourced.
#
# A figure has a line for each round in $work/f.NAME: "ours other ratio floor nic ratio". "ours" is Sluice's, "other" that of
# the program beside it, and "nic" Sluice's on profile nic, where the software device has no shorter ways than a NIC; the last
# ratio is of "nic" to "other". Both are "-" where that was not measured. What the figure is stands in $work/about.NAME: "bar unit
# aim other".

say() {
    if [ "$json" = 0 ]; then printf "$@"; fi
}

median() { # median FILE COLUMN
    awk -v c="$2" '{ print $c }' "$1" | sort -g |
        awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

heading() {
    say '%-26s %4s %7s %14s %14s %-6s %8s %14s %8s %9s  %s\n' figure bar round sluice other unit ratio nic ratio floor aim
}

line() { # line NAME BAR ROUND OURS OTHER UNIT RATIO NIC RATIO FLOOR AIM
    local nic=$8 nic_ratio=$9
    [[ $nic == - ]] || nic=$(printf %.1f "$nic") nic_ratio=$(printf %.2f "$nic_ratio")
    say '%-26s %4s %7s %14.1f %14.1f %-6s %8.2f %14s %8s %9.1f  %s\n' "${@:1:7}" "$nic" "$nic_ratio" "${@:10}"
}

ratio_of() { # ratio_of OURS OTHER
    awk -v x="$1" -v y="$2" 'BEGIN { printf "%.4f", (y > 0 ? x / y : 0) }'
}

# result NAME BAR UNIT AIM OTHER-NAME OURS OTHER [NIC [OTHER-OF-NIC]]: a figure of this round; nothing if one is missing
result() {
    local ratio nic=- nic_ratio=-
    [[ $6 =~ ^[0-9] && $7 =~ ^[0-9] ]] || return 0
    ratio=$(ratio_of "$6" "$7")
    [[ ! ${8:-} =~ ^[0-9] ]] || nic=$8 nic_ratio=$(ratio_of "$8" "${9:-$7}")
    echo "$2 $3 $5 $4" >"$work/about.$1"
    echo "$6 $7 $ratio ${floor:-0} $nic $nic_ratio" >>"$work/f.$1"
    line "$1" "$2" "$round" "$6" "$7" "$3" "$ratio" "$nic" "$nic_ratio" "${floor:-0}" "$4"
}

# percentiles WHO SIZE P50 P99 P999: kept for the end, in columns like a figure's
percentiles() {
    [[ $3 =~ ^[0-9] ]] || return 0
    echo "$3 $4 $5 ${floor:-0}" >>"$work/p.$1.$2"
}

missing() { # missing PROGRAM PACKAGE
    if [ "$json" = 1 ]; then
        printf '{"missing":"%s","package":"%s"}\n' "$1" "$2"
    else
        printf 'not installed: %s (package %s)\n' "$1" "$2"
    fi
}

skipped() { # skipped SECTION WHY
    if [ "$json" = 1 ]; then
        printf '{"skipped":"%s","why":"%s"}\n' "$1" "$2"
    else
        printf 'skipped: %s: %s\n' "$1" "$2"
    fi
}

summary() {
    local file name bar unit other aim who size nic nic_ratio
    say '# medians of %s rounds; the ratio is the median of the rounds'"'"' ratios; nic: on profile nic\n' "$rounds"
    heading
    for file in "$work"/f.*; do
        [ -e "$file" ] || continue
        name=${file##*/f.}
        read -r bar unit other aim <"$work/about.$name"
        nic=- nic_ratio=-
        grep -q -- ' - -$' "$file" || nic=$(median "$file" 5) nic_ratio=$(median "$file" 6)
        line "$name" "$bar" median "$(median "$file" 1)" "$(median "$file" 2)" "$unit" \
            "$(median "$file" 3)" "$nic" "$nic_ratio" "$(median "$file" 4)" "$aim"
        [ "$json" = 0 ] || printf '{"figure":"%s","bar":"%s","unit":"%s","rounds":%s,"sluice":%s,"other":%s,"other_name":"%s","ratio":%s,"sluice_nic":%s,"ratio_nic":%s,"floor_ns":%s,"aim":"%s"}\n' \
            "$name" "$bar" "$unit" "$(wc -l <"$file")" "$(median "$file" 1)" "$(median "$file" 2)" \
            "$other" "$(median "$file" 3)" "${nic/#-/null}" "${nic_ratio/#-/null}" "$(median "$file" 4)" "$aim"
    done
    say '# one way, ns: medians of the rounds'"'"' percentiles\n%-26s %12s %12s %12s %9s\n' program p50 p99 p99.9 floor
    for file in "$work"/p.*; do
        [ -e "$file" ] || continue
        name=${file##*/p.} size=${file##*.}
        who=${name%."$size"}
        say '%-26s %12.1f %12.1f %12.1f %9.1f\n' "$who, $size B" "$(median "$file" 1)" \
            "$(median "$file" 2)" "$(median "$file" 3)" "$(median "$file" 4)"
        [ "$json" = 0 ] || printf '{"percentiles":"%s","size":%s,"rounds":%s,"p50_ns":%s,"p99_ns":%s,"p999_ns":%s,"floor_ns":%s}\n' \
            "$who" "$size" "$(wc -l <"$file")" "$(median "$file" 1)" "$(median "$file" 2)" \
            "$(median "$file" 3)" "$(median "$file" 4)"
    done
}

# plot FILE.svg: the ratios, one bar a figure
plot() {
    local file
    if ! command -v gnuplot >/dev/null; then
        echo "compare: no picture: gnuplot is not installed (package gnuplot-nox)" >&2
        return
    fi
    for file in "$work"/f.*; do
        [ -e "$file" ] && echo "${file##*/f.} $(median "$file" 3)"
    done >"$work/plot"
    [ -s "$work/plot" ] || return 0
    gnuplot <<TXT || echo "compare: gnuplot failed, no picture" >&2
set terminal svg size 1000,500 font "sans,11"
set output "$1"
set title "Sluice over the other, medians of $rounds rounds (software device, this machine)"
set logscale y
set grid ytics
set style fill solid 0.6
set boxwidth 0.7
set xtics rotate by -40 noenhanced
set ylabel "ratio"
unset key
plot "$work/plot" using 0:2:xtic(1) with boxes lc rgb "#3465a4", 1 with lines lc rgb "#888888"
TXT
}
