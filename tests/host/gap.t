#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The gap between records of the log (disk/gap.c) is learned where it is of use, and only there:
# tests/gap tells it how long records took on a disk that is made up.

set -uo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$work/tests"
cp -r "$top/disk" "$work/"
cp -r "$top/tests/gap" "$work/tests/"
if ! make -s -B -C "$work/tests/gap" cowgap >"$work/out" 2>&1; then
	echo "1..1"
	echo "not ok 1 - the learner can be built"
	sed 's/^/# /' "$work/out"
	exit 1
fi
"$work/tests/gap/cowgap"
