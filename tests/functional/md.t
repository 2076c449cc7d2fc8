#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# First writes in batches, with origin and store on md RAID whose check never ends, go on:
# no task that unplugs its I/O waits for anything that md's own callbacks have to bring about.

. "$(dirname "$0")/common.sh"

need fio mdadm
modprobe -q -a raid10 raid1 || skip_all "no md in this kernel"
plan 9
echo 0 >"$PARAMETERS/copy_ahead"

ROUNDS=$(scaled 4)

# mkmd LEVEL MIB NR: an md with a write-intent bitmap over NR RAM disks; prints its path.
mkmd()
{
	local n=0 md i
	local -a devs=()

	for ((i = 0; i < $3; i++)); do
		devs+=("$(mkram "$2")") || return 1
	done
	while [[ -e /sys/block/md$n ]]; do
		n=$((n + 1))
	done
	md=/dev/md$n
	mdadm --create "$md" --level="$1" --raid-devices="$3" --metadata=1.2 --bitmap=internal \
		--assume-clean --run --quiet "${devs[@]}" >&2 </dev/null || return 1
	at_exit mdadm --quiet --stop "$md"
	echo 200000 >"/sys/block/md$n/md/sync_speed_max"
	echo 100000 >"/sys/block/md$n/md/sync_speed_min"
	printf '%s\n' "$md"
}

# checks DEV: check it again and again while there is $TEST_TMP/check.
checks()
{
	while [[ -e $TEST_TMP/check ]]; do
		echo check >"/sys/block/${1##*/}/md/sync_action"
		sleep 0.3
	done 2>/dev/null
}

writer()
{
	fio --name=w --ioengine=libaio --direct=1 --bs=4k --filename=/dev/mapper/o \
		--allow_file_create=0 --size=4m "$@" >"$TEST_TMP/fio.log" 2>&1
}

# Every second chunk first; then, during checks, all of them at random, many in one go.
round()
{
	local rc

	writer --rw=write:4k --io_size=2m --iodepth=16 || return
	touch "$TEST_TMP/check"
	checks "$base" &
	checks "$store" &
	writer --rw=randwrite --iodepth=64 --iodepth_batch_submit=16 --runtime=4
	rc=$?
	rm "$TEST_TMP/check"
	return "$rc"
}

rounds()
{
	local i

	for ((i = 0; i < ROUNDS; i++)); do
		((i == 0)) || snap_up s "$base" "$store" "$1" 8
		round || return
		((i)) || other_bytes /dev/mapper/s A >"$TEST_TMP/lost"
		dmremove s
		diag "round $i: $SECONDS s"
		[[ $1 = N ]] || dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
	done
	touch "$TEST_TMP/over"
}

rounds_have_ended()
{
	[[ -e $TEST_TMP/over ]]
}

# try MODE WORDS
try()
{
	local pid

	rm -f "$TEST_TMP/over"
	fill_letter "$base" A
	origin_up o "$base"
	dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
	snap_up s "$base" "$store" "$1" 8
	rounds "$1" >"$TEST_TMP/rounds" 2>&1 &
	pid=$!
	# Nothing ends a task that hangs; the test must not wait for it.
	disown "$pid"
	ok "$1, $2: $ROUNDS rounds of batched first writes during a check" wait_for 300 rounds_have_ended ||
		bail_out "no use in going on: $(<"$TEST_TMP/rounds")"
	is "$(<"$TEST_TMP/lost")" 0 "$1, $2: the snapshot is whole"
	dmremove o
	ok "$1, $2: both md are well" wait_for 60 both_are_well
}

# One whose check has just ended is "write-pending" for a moment.
both_are_well()
{
	[[ $(cat "/sys/block/${base##*/}/md/array_state" "/sys/block/${store##*/}/md/array_state" |
		grep -Ec 'clean|active') = 2 ]]
}

ten=$(mkmd 10 16 4)
one=$(mkmd 1 32 2)
[[ $ten && $one ]] || bail_out "no md could be made"
base=$ten
store=$one
try N "origin on raid10, store on raid1"
try P "origin on raid10, store on raid1"
base=$one
store=$ten
try N "origin on raid1, store on raid10"
