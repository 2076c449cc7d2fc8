#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# io_uring, which first tries not to wait, gets no EAGAIN from origins, snapshots and
# merges on devices with few tags, however large its requests are.

. "$(dirname "$0")/common.sh"

need fio
need_target delay

# One job after the other: directions, and each size with both sorts of buffers.
job_file()
{
	local rw size fixed

	printf '[global]\nioengine=io_uring\ndirect=1\nsize=3m\nallow_file_create=0\n'
	for rw in "$@"; do
		for size in 4k 64k 256k 1m 2m; do
			for fixed in 0 1; do
				printf '[%s-%s-%d]\nstonewall\nrw=%s\nbs=%s\nfixedbufs=%d\n' \
					"$rw" "$size" "$fixed" "$rw" "$size" "$fixed"
			done
		done
	done
}

# fails DEV DEPTH RW...: the jobs that ended with an error.
fails()
{
	local dev=$1 depth=$2

	shift 2
	job_file "$@" >"$TEST_TMP/jobs.fio"
	fio --filename="$dev" --iodepth="$depth" --iodepth_batch="$depth" \
		"$TEST_TMP/jobs.fio" >"$TEST_TMP/fio.log" 2>&1
	if ! grep -q 'err=' "$TEST_TMP/fio.log"; then
		head -3 "$TEST_TMP/fio.log"
	else
		sed -n 's/^\([a-z]*-[0-9a-z-]*\): (.*err= *\([1-9][0-9]*\).*/\1 err=\2/p' "$TEST_TMP/fio.log"
	fi
}

# Few tags, and requests that stay under way for a while.
few_tags()
{
	mkram "$1" hw_queue_depth=4 submit_queues=1 irqmode=2 completion_nsec=20000
}

scatter()
{
	local -a places=()
	local i

	for ((i = 0; i < 800; i++)); do
		places+=($((RANDOM % 4096 * 4096)) 4096)
	done
	put /dev/mapper/o - "${places[@]}"
}

merging()
{
	[[ $(status o) =~ ^([0-9]+)/[0-9]+\ ([0-9]+)\  ]] && ((BASH_REMATCH[1] > BASH_REMATCH[2]))
}

base=$(few_tags 16)
p=$(few_tags 48)
n=$(few_tags 48)
fill "$base" -
dd if=/dev/zero of="$p" bs=4096 count=1 conv=fsync status=none
origin_up o "$base"
snap_up p "$base" "$p" P 8
snap_up n "$base" "$n" N 8
fio --name=probe --ioengine=io_uring --filename=/dev/mapper/o --direct=1 --rw=read \
	--size=64k --allow_file_create=0 >"$TEST_TMP/fio.log" 2>&1 ||
	skip_all "no io_uring here"
plan 7

scatter
is "$(fails /dev/mapper/p 8 randread)" "" "reads of a persistent snapshot get no error"
is "$(fails /dev/mapper/n 32 read)" "" "reads of a transient snapshot get no error"
is "$(fails /dev/mapper/p 8 write)" "" "writes to a persistent snapshot get no error"
is "$(fails /dev/mapper/n 32 write)" "" "writes to a transient snapshot get no error"
is "$(fails /dev/mapper/o 32 write read)" "" "first writes and reads of the origin get no error"
dmremove n
dm message p 0 set throttle 1
dmremove p
# Each stretch takes 50 ms at least, and the rest after it a hundred times as long.
dmcreate slow "$(delay_table "$p" 50 0)"
dmreload o "0 $(sectors "$base") cowsnap-merge $base /dev/mapper/slow P 8 2 id 0"
is "$(fails /dev/mapper/o 16 write read)" "" \
	"writes and reads of the origin get no error while it is merged"
ok "the merge went on all the while" merging
dmremove o
