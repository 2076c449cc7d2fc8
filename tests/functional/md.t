#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# First writes in batches, with origin and store on md RAID where one check follows the other, go
# on: no task that unplugs its I/O waits for anything that md's own callbacks have to bring about.

. "$(dirname "$0")/common.sh"

need fio mdadm
modprobe -q -a raid10 raid1 || skip_all "no md in this kernel"
plan 16
echo 0 >"$PARAMETERS/copy_ahead"

# From the second on the snapshot is a new one.
ROUNDS=$(scaled 3)
((ROUNDS >= 2)) || ROUNDS=2
CHECKS=4	# that begin on each md in a round
PASSES=60	# of the writer in a round, in which they have to begin

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

# checks DEV: as soon as one has ended the next begins, while there is $TEST_TMP/check. Those
# that began are counted.
checks()
{
	local md=${1##*/}

	while [[ -e $TEST_TMP/check ]]; do
		! echo check >"/sys/block/$md/md/sync_action" || echo >>"$TEST_TMP/begun.$md"
		sleep 0.01
	done 2>/dev/null
}

# begun NR: as many checks on either md.
begun()
{
	(($(least_begun) >= $1))
}

least_begun()
{
	wc -l "$TEST_TMP/begun."* | awk '$2 != "total" && (least == "" || $1 < least) { least = $1 }
		END { print least }'
}

writer()
{
	fio --name=w --ioengine=libaio --direct=1 --bs=4k --filename=/dev/mapper/o \
		--allow_file_create=0 --size=4m "$@" >"$TEST_TMP/fio.log" 2>&1
}

# Every second chunk first; then, during checks, all of them at random, many in one go, and once
# more until there were enough checks.
round()
{
	local md rc=0 pass checkers=()

	writer --rw=write:4k --io_size=2m --iodepth=16 || return
	touch "$TEST_TMP/check"
	for md in "$base" "$store"; do
		: >"$TEST_TMP/begun.${md##*/}"
		checks "$md" &
		checkers+=($!)
	done
	wait_for 60 begun 1
	for ((pass = 0; pass < PASSES; pass++)); do
		writer --rw=randwrite --iodepth=64 --iodepth_batch_submit=16 || rc=1
		! begun "$CHECKS" || break
	done
	rm "$TEST_TMP/check"
	wait "${checkers[@]}"
	least_begun >>"$TEST_TMP/checks"
	echo "$((pass + 1)) passes, $(least_begun) checks"
	return "$rc"
}

rounds()
{
	local i

	: >"$TEST_TMP/lost"
	for ((i = 0; i < ROUNDS; i++)); do
		((i == 0)) || snap_up s "$base" "$store" "$1" 8 || return
		image /dev/mapper/o "$TEST_TMP/was" || return
		round || return
		same /dev/mapper/s "$TEST_TMP/was" || echo "$i" >>"$TEST_TMP/lost"
		dmremove s
		echo "round $i: $SECONDS s"
		[[ $1 = N ]] || dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
	done
}

rounds_have_ended()
{
	[[ -s $TEST_TMP/over ]]
}

# Nothing ends a task that hangs; the test must not wait for it.
rounds_end_well()
{
	wait_for 400 rounds_have_ended && (($(<"$TEST_TMP/over") == 0))
}

# try MODE WORDS
try()
{
	rm -f "$TEST_TMP/over" "$TEST_TMP/checks"
	fill_letter "$base" A
	origin_up o "$base"
	dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
	snap_up s "$base" "$store" "$1" 8
	{ rounds "$1"; echo "$?" >"$TEST_TMP/over"; } >"$TEST_TMP/rounds" 2>&1 &
	disown "$!"
	ok "$1, $2: $ROUNDS rounds of batched first writes during checks" rounds_end_well ||
		bail_out "no use in going on: $(<"$TEST_TMP/rounds")"
	diag <"$TEST_TMP/rounds"
	is "$(awk -v enough="$CHECKS" '$1 >= enough' "$TEST_TMP/checks" | wc -l)" "$ROUNDS" \
		"$1, $2: $CHECKS checks or more of both md in each round"
	is "$(<"$TEST_TMP/lost")" "" "$1, $2: the snapshots of all rounds are whole"
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
try P "origin on raid1, store on raid10"
