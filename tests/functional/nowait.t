#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# I/O that must not wait (RWF_NOWAIT) is done or refused with EAGAIN, never half
# done and never an error of another kind, on both sides.

. "$(dirname "$0")/common.sh"

need xfs_io

# nowait DEV COMMAND...: complete, again or failed. xfs_io tells errors in words.
nowait()
{
	local dev=$1 out

	shift
	out=$(xfs_io -d -c "$*" "$dev" 2>&1)
	case $out in
	*"Resource temporarily unavailable"*) echo again ;;
	*65536/65536* | *4096/4096*) echo complete ;;
	*) echo "failed: $out" ;;
	esac
}

# write_all DEV IMAGE LETTER: 64 writes without waiting; those done go to the image.
write_all()
{
	local dev=$1 image=$2 letter=$3 i result

	for ((i = 0; i < 32; i++)); do
		result=$(nowait "$dev" "pwrite -V 1 -N -S $letter -b 4096 $((i * 36864)) 4096")
		case $result in
		complete) xfs_io -c "pwrite -S $letter $((i * 36864)) 4096" "$image" >/dev/null ;;
		again) ;;
		*) diag "$result" && return 1 ;;
		esac
	done
}

base=$(mkloop 4M)
store=$(mkloop 16M)
fill "$base" "$TEST_TMP/old"
cp "$TEST_TMP/old" "$TEST_TMP/new"
cp "$TEST_TMP/old" "$TEST_TMP/private"
origin_up o "$base"
if [[ $(nowait /dev/mapper/o "pread -V 1 -N -b 4096 0 4096") = *"not supported"* ]]; then
	skip_all "the kernel offers no NOWAIT here"
fi
plan 7
snap_up s "$base" "$store" N 8
ok "writes to the origin are done or put off" write_all /dev/mapper/o "$TEST_TMP/new" 0x55
ok "the origin has those that were done, and no others" same /dev/mapper/o "$TEST_TMP/new"
ok "the snapshot has the old data" same /dev/mapper/s "$TEST_TMP/old"
ok "writes to the snapshot are done or put off" write_all /dev/mapper/s "$TEST_TMP/private" 0x66
ok "the snapshot has those that were done, and no others" same /dev/mapper/s "$TEST_TMP/private"
put /dev/mapper/o "$TEST_TMP/new" 0 65536
is "$(nowait /dev/mapper/o "pwrite -V 1 -N -S 0x77 -b 4096 4096 4096")" complete \
	"a write to a preserved chunk need not wait"
is "$(nowait /dev/mapper/s "pread -V 1 -N -b 4096 4096 4096")" complete \
	"a read of a preserved chunk need not wait"
