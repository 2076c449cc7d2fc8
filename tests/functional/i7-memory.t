#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# I7: an origin makes progress with next to no memory: with the least budget of
# the copy engine, as swap space under pressure, and with allocations failing.

. "$(dirname "$0")/common.sh"

need fio
MIB=1048576
plan 16

write_all()
{
	fio --name=w --ioengine=libaio --direct=1 --rw="$1" --bsrange="$2" --iodepth=32 \
		--filename=/dev/mapper/o --allow_file_create=0 --verify=crc32c \
		--do_verify=1 --verify_fatal=1
}

both_up()
{
	fill_letter "$base" A
	origin_up o "$base"
	snap_up s "$base" "$store" N "$1"
}

both_down()
{
	dmremove s
	dmremove o
}

# A chunk larger than the budget must still find room.
least_budget()
{
	local chunk

	at_exit _write "$PARAMETERS/kcopyd_budget" "$(cat "$PARAMETERS/kcopyd_budget")"
	at_exit _write "$PARAMETERS/kcopyd_requeue" "$(cat "$PARAMETERS/kcopyd_requeue")"
	at_exit _write "$PARAMETERS/undo_buffer" "$(cat "$PARAMETERS/undo_buffer")"
	echo 1 >"$PARAMETERS/kcopyd_budget"
	# The engine would use the buffer's pages as well.
	echo 0 >"$PARAMETERS/undo_buffer"
	for order in head tail; do
		echo "$order" >"$PARAMETERS/kcopyd_requeue"
		for chunk in 8 2048; do
			both_up "$chunk"
			ok "least budget, $order, chunk $chunk: writes come through" \
				write_all randwrite 4k-512k
			ok "least budget, $order, chunk $chunk: the snapshot is whole" \
				all_letter /dev/mapper/s A
			both_down
		done
	done
}

# Files in tmpfs that exceed the group's memory go to swap, which is the origin. All
# of the data fits there, so that running out of swap is not what is tested. The limit
# is memory.high: a group there waits for its pages to be written. At memory.max the
# kernel kills a program of a group whose pages a slow disk does not take soon enough.
cgroup()
{
	mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null
	CGROUP=/sys/fs/cgroup/cowsnap-test
	echo +memory >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null
	mkdir -p "$CGROUP" && at_exit rmdir "$CGROUP"
	[[ -e $CGROUP/memory.high ]] && echo 8M >"$CGROUP/memory.high"
}

fill_swap()
{
	echo "$BASHPID" >"$CGROUP/cgroup.procs"
	head -c $((14 * MIB)) /dev/urandom | tee "$TEST_TMP/swapped/data" | md5sum >"$TEST_TMP/sum"
	md5sum <"$TEST_TMP/swapped/data" >"$TEST_TMP/sum2"
}

swap()
{
	if ! cgroup; then
		skip "swap on the origin: data comes back" "no memory cgroup here"
		skip "swap on the origin: the swap was used" "no memory cgroup here"
		skip "swap on the origin: the snapshot is whole" "no memory cgroup here"
		return
	fi
	fill_letter "$base" A
	origin_up o "$base"
	mkswap /dev/mapper/o >/dev/null 2>&1
	image /dev/mapper/o "$TEST_TMP/image"
	snap_up s "$base" "$store" N 8
	swapon /dev/mapper/o
	at_exit _swapoff
	mkdir "$TEST_TMP/swapped"
	mount -t tmpfs -o size=32m tmpfs "$TEST_TMP/swapped"
	at_exit _umount "$TEST_TMP/swapped"
	(fill_swap)
	ok "swap on the origin: data comes back" cmp "$TEST_TMP/sum" "$TEST_TMP/sum2"
	ok "swap on the origin: the swap was used" [ "$(used_sectors s)" -gt 4096 ]
	umount "$TEST_TMP/swapped"
	_swapoff
	ok "swap on the origin: the snapshot is whole" same /dev/mapper/s "$TEST_TMP/image"
	both_down
}

_swapoff()
{
	grep -q "$(readlink -f /dev/mapper/o)\|/dev/mapper/o" /proc/swaps || return 0
	swapoff /dev/mapper/o
}

# fail_allocations PERCENT: of all allocations that cannot wait.
fail_allocations()
{
	local dir

	for dir in failslab fail_page_alloc; do
		echo "$1" >"/sys/kernel/debug/$dir/probability"
		echo -1 >"/sys/kernel/debug/$dir/times"
		echo 0 >"/sys/kernel/debug/$dir/verbose"
		echo 1 >"/sys/kernel/debug/$dir/ignore-gfp-wait"
		echo 0 >"/sys/kernel/debug/$dir/space"
	done
}

failing()
{
	if [[ ! -d /sys/kernel/debug/failslab ]]; then
		skip "failing allocations: writes to the origin succeed" \
			"no fault injection in this kernel"
		skip "failing allocations: the snapshot is whole" "the same"
		return
	fi
	both_up 8
	at_exit fail_allocations 0
	fail_allocations 10
	ok "failing allocations: writes to the origin succeed" write_all randwrite 4k-64k
	fail_allocations 0
	ok "failing allocations: the snapshot is whole" all_letter /dev/mapper/s A
	both_down
}

# The map gets no memory at all for a while: what needs it waits, and nothing is lost.
no_memory_for_map()
{
	local cache writer nr=0

	for cache in /sys/kernel/slab/cowsnap_leaf*; do
		[[ -e $cache/failslab ]] && echo 1 >"$cache/failslab" && nr=$((nr + 1))
	done
	if ((!nr)); then
		skip "no memory for the map: writes wait" "no fault injection for caches in this kernel"
		skip "no memory for the map: writes go on when there is some" "the same"
		skip "no memory for the map: the snapshot is whole" "the same"
		return
	fi
	both_up 8
	at_exit fail_allocations 0
	echo 1 >/sys/kernel/debug/failslab/cache-filter
	fail_allocations 100
	echo 0 >/sys/kernel/debug/failslab/ignore-gfp-wait
	write_all randwrite 4k-64k >"$TEST_TMP/fio.log" 2>&1 &
	writer=$!
	sleep 3
	ok "no memory for the map: writes wait" kill -0 "$writer"
	fail_allocations 0
	echo 0 >/sys/kernel/debug/failslab/cache-filter
	ok "no memory for the map: writes go on when there is some" wait "$writer"
	ok "no memory for the map: the snapshot is whole" all_letter /dev/mapper/s A
	both_down
}

base=$(mkloop 16M)
store=$(mkloop 40M)
least_budget
swap
failing
no_memory_for_map
