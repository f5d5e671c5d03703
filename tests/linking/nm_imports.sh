#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# nm_imports.sh FILE - FILE lists the library's object files. Only those of src/fabric may import
# ibv_* or rdma_*: everything else goes through the fabric's table. The hot verbs are inline calls
# through ibv_context.ops and import nothing.
set -euo pipefail
list=$1

status=0 inside=0 outside=0
while IFS= read -r object; do
    [[ -n $object ]] || continue
    [[ -f $object ]] || { echo "no such object file: $object"; exit 1; }
    imports=$(nm --undefined-only "$object" | awk '$2 ~ /^(ibv|rdma)_/ { print $2 }')
    if [[ $object == */src/fabric/* ]]; then
        [[ -z $imports ]] || inside=$((inside + 1))
        continue
    fi
    outside=$((outside + 1))
    if [[ -n $imports ]]; then
        printf '%s imports:\n%s\n' "$object" "$imports"
        status=1
    fi
done < "$list"

if ((inside == 0 || outside == 0)); then
    echo "looked at $outside objects outside src/fabric, found imports in $inside inside it:" \
        "this test does not see the library"
    status=1
fi
exit $status
