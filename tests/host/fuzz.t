#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Damaged stores, as many as there is time for, do not bring the tools to touch
# memory that is not theirs, nor to break what tests/fuzz/target.c says they promise.
# COWSNAP_FUZZ_CASES says how many, COWSNAP_FUZZ_SEED which.

set -uo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "1..2"
mkdir -p "$work/tests"
cp -r "$top/tools" "$top/include" "$work/"
cp -r "$top/tests/fuzz" "$work/tests/"
if make -B -C "$work/tests/fuzz" fuzz >"$work/out" 2>&1; then
	echo "ok 1 - the fuzz target can be built"
else
	echo "not ok 1 - the fuzz target can be built"
	sed 's/^/# /' "$work/out"
	exit 1
fi
rc=0
cases=${COWSNAP_FUZZ_CASES:-3000}
timeout "$((cases > 6000 ? cases / 10 : 500))" nice make -s -C "$work/tests/fuzz" run N="$cases" \
	SEED="${COWSNAP_FUZZ_SEED:-$RANDOM}" >"$work/out" 2>&1 || rc=$?
sed 's/^/# /' "$work/out"
((rc == 0)) || printf 'not '
echo "ok 2 - no damaged store breaks a promise of the tools"
