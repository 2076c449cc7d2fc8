#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Random parallel operations on an origin and several snapshots, every byte
# compared with a model in memory; seeds are printed (COWSNAP_SEED repeats one).

. "$(dirname "$0")/common.sh"

OPS=$(scaled 3000)

plan 8

# model WORDS ARGS...: one point; what it prints is shown.
model()
{
	local words=$1 rc=0

	shift
	"$TOOLS/cowmodel" --ops "$OPS" ${COWSNAP_SEED:+--seed "$COWSNAP_SEED"} "$@" >"$TEST_TMP/model.log" 2>&1 || rc=$?
	is "$rc" 0 "$words"
	tail -n 120 "$TEST_TMP/model.log" | sed 's/^# //' | diag
	for name in $(dmsetup ls | sed -n 's/^\(cowmodel-[^\t]*\).*/\1/p' | sort -r); do
		dmsetup remove --retry "$name"
	done
}

# The last chunk is a part of one.
odd_bytes=$((24 * 1048576 + 24 * 512))
base=$(mkloop $odd_bytes)
store1=$(mkloop 32M)
store2=$(mkloop 32M)
store3=$(mkloop 32M)
model "chunks 8, 32 and 128" --origin "$base" \
	--store "$store1:8" --store "$store2:32" --store "$store3:128"
model "chunks 8 and 1024, 8 threads" --threads 8 --origin "$base" \
	--store "$store1:8" --store "$store2:1024"
small=$(mkloop 3M)
model "one store overflows" --origin "$base" \
	--store "$store1:16" --store "$small:8:small"
base4=$(mkloop $odd_bytes --sector 4096)
store4=$(mkloop 32M --sector 4096)
model "4096-byte sectors" --origin "$base4" --store "$store4:8" --store "$store2:64"
hot=$(mkloop 4200K)
model "a small origin, hot all over" --threads 6 --origin "$hot" \
	--store "$store1:8" --store "$store3:8" --store "$store2:256"
# Five times all of the origin, and what is written to the snapshots.
ids=$(mkloop 200M)
model "ids of one persistent store, chunk 8" --origin "$base" --store "$ids:8" --ids 5
dd if=/dev/zero of="$ids" bs=4096 count=1 status=none
model "ids of one persistent store, chunk 32, all in one place" --threads 6 \
	--origin "$hot" --store "$ids:32" --ids 4
dd if=/dev/zero of="$store4" bs=4096 count=1 status=none
model "ids of one persistent store, 4096-byte sectors, a store that overflows" --origin "$base4" \
	--store "$store4:8:small" --ids 3
