#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Snapshots are made, deleted, dropped and merged at random beside writers whose copies and
# commits take their time in a slow store: every byte is what a model in memory says (seeds
# are printed; COWSNAP_SEED repeats one).

. "$(dirname "$0")/common.sh"

need_target delay

OPS=$(scaled 1200)

plan 4

# slow NAME DEV READ WRITE: DEV, with READ and WRITE milliseconds added to each read and write.
slow()
{
	dmcreate "$1" "$(delay_table "$2" "$3" "$4")"
}

# model WORDS ARGS...: one point.
model()
{
	local words=$1 rc=0 name

	shift
	dd if=/dev/zero of=/dev/mapper/slow bs=4096 count=1 oflag=direct status=none
	timeout 300 "$TOOLS/cowmodel" --ops "$OPS" ${COWSNAP_SEED:+--seed "$COWSNAP_SEED"} "$@" \
		>"$TEST_TMP/model.log" 2>&1 || rc=$?
	is "$rc" 0 "$words"
	tail -n 60 "$TEST_TMP/model.log" | sed 's/^# //' | diag
	for name in $(dmsetup ls | sed -n 's/^\(cowmodel-[^\t]*\).*/\1/p' | sort -r); do
		dmsetup remove --retry "$name"
	done
}

exact_copies
base=$(mkloop 4200K)
store=$(mkloop 64M)
small=$(mkloop 3M)
slow slow "$store" 4 20
model "writes of the store take 20 ms" --threads 6 --origin "$base" \
	--store /dev/mapper/slow:8 --ids 5
dmreload slow "$(delay_table "$store" 30 1)"
model "reads of the store take 30 ms" --threads 6 --origin "$base" \
	--store /dev/mapper/slow:16 --ids 4
slow home "$base" 15 1
dmreload slow "$(delay_table "$store" 1 5)"
model "reads of the origin take 15 ms" --threads 6 --origin /dev/mapper/home \
	--store /dev/mapper/slow:8 --ids 4
dmremove slow
slow slow "$small" 2 10
model "a small store that overflows, writes take 10 ms" --threads 6 --origin "$base" \
	--store /dev/mapper/slow:8:small --ids 3
