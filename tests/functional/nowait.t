#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# I/O that must not wait (RWF_NOWAIT) is done or refused with EAGAIN, never half
# done and never an error of another kind, on both sides.

. "$(dirname "$0")/common.sh"

# nowait DEV IMAGE r|w LETTER BYTES OFFSET...: what came of each.
nowait()
{
	"$TOOLS/cowio" nowait "$@"
}

offsets()
{
	seq 0 36864 $((4 * 1048576 - 65536))
}

base=$(mkloop 4M)
store=$(mkloop 16M)
fill "$base" "$TEST_TMP/old"
cp "$TEST_TMP/old" "$TEST_TMP/new"
cp "$TEST_TMP/old" "$TEST_TMP/private"
origin_up o "$base"
if [[ $(nowait /dev/mapper/o - r A 4096 0) = *"not supported"* ]]; then
	skip_all "the kernel offers no NOWAIT here"
fi
plan 9

# lawful RESULTS: each line is one of the two results that are allowed.
lawful()
{
	sort "$1" | uniq -c
	! grep -vx 'complete\|Resource temporarily unavailable' "$1"
}

# try SIDE IMAGE LETTER BYTES
try()
{
	# shellcheck disable=SC2046  # numbers
	nowait "/dev/mapper/$1" "$2" w "$3" "$4" $(offsets) >"$TEST_TMP/results"
	ok "$4-byte writes to $1 are done or put off" lawful "$TEST_TMP/results"
	ok "$1 has the $4-byte writes that were done, and no others" same "/dev/mapper/$1" "$2"
}

snap_up s "$base" "$store" N 8
try o "$TEST_TMP/new" B 4096
ok "the snapshot has the old data" same /dev/mapper/s "$TEST_TMP/old"
try s "$TEST_TMP/private" P 16384
try o "$TEST_TMP/new" C 65536
put /dev/mapper/o "$TEST_TMP/new" 0 65536
is "$(nowait /dev/mapper/o - w D 4096 4096)" complete \
	"a write to a preserved chunk need not wait"
is "$(nowait /dev/mapper/s - r A 4096 4096)" complete \
	"a read of a preserved chunk need not wait"
