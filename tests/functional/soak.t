#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Random load with snapshots made and removed in a loop, for SOAK_SECONDS
# (default 20): no complaint, no difference, and memory is back where it began.

. "$(dirname "$0")/common.sh"

need fio
plan 5

seconds=${COWSNAP_SOAK_SECONDS:-${SOAK_SECONDS:-20}}

# What the kernel holds for us: slab and pages, caches of files dropped.
settle()
{
	sync
	sleep 1
	echo 3 >/proc/sys/vm/drop_caches
	[[ ! -w /proc/sys/vm/compact_memory ]] || echo 1 >/proc/sys/vm/compact_memory
	sleep 1
}

# Memory of the kernel itself; page cache and tmpfs are files, not ours.
kernel_kib()
{
	awk '/^(Slab|PageTables|KernelStack|Percpu|VmallocUsed):/ { n += $2 } END { print n }' \
		/proc/meminfo
}

unaccounted_kib()
{
	awk '/^MemTotal:/ { n = $2 }
		/^(MemFree|Cached|Buffers|SwapCached|AnonPages|Slab|PageTables|KernelStack|Percpu|VmallocUsed):/ { n -= $2 }
		END { print n }' /proc/meminfo
}

memory_kib()
{
	settle
	echo $(($(kernel_kib) + $(unaccounted_kib)))
}

# What leaked never does.
memory_is_back()
{
	(($(memory_kib) - before < 12288))
}

# The allocator counts what it keeps at hand for a processor as in use, until shrunk.
cowsnap_objects()
{
	local cache

	for cache in /sys/kernel/slab/cowsnap*/shrink; do
		[[ ! -w $cache ]] || echo 1 >"$cache"
	done
	awk '/^cowsnap/ { n += $2 } END { print n + 0 }' /proc/slabinfo
}

round()
{
	local chunk=$((8 << (RANDOM % 5)))

	snap_up s "$base" "$store" N "$chunk" || return
	snap_up t "$base" "$store2" NO 8 || return
	sleep "0.$((RANDOM % 5))"
	get /dev/mapper/s 0 4194304 65536 >/dev/null || return
	put_letter /dev/mapper/t P $((RANDOM * 512)) $((RANDOM * 8 / 512 * 512 + 512)) || return
	dmremove t && dmremove s
}

# One origin's life: two rounds while it is written. A leak of what an origin
# holds would show with each.
life()
{
	local writer rc=0

	origin_up o "$base"
	fio --name=w --ioengine=libaio --direct=1 --rw=randrw --bsrange=512-256k --iodepth=8 \
		--filename=/dev/mapper/o --allow_file_create=0 --time_based --runtime=100000 \
		--randrepeat=0 --output="$TEST_TMP/fio.log" 2>&1 &
	writer=$!
	round && round || rc=1
	kill "$writer"
	wait "$writer"
	dmremove o || rc=1
	lives=$((lives + 1))
	return "$rc"
}

lives_for()
{
	local end=$((SECONDS + $1))

	while ((SECONDS < end)); do
		life || return
	done
}

base=$(mkloop 32M)
store=$(mkloop 40M)
store2=$(mkloop 40M)
fill_letter "$base" A
fill_letter "$store" A
fill_letter "$store2" A
lives=0
ok "load and snapshots for 5 s, to warm up" lives_for 5
# Lists of pages for each processor and late frees come and go: the least of some looks.
before=$(memory_kib)
for _ in 1 2 3 4; do
	now=$(memory_kib)
	((now >= before)) || before=$now
done
objects=$(cowsnap_objects)
lives=0
ok "load and snapshots for $seconds s" lives_for "$seconds"
diag "$lives origins with two rounds of snapshots each"
settle
ok "origins came and went" [ "$lives" -gt 0 ]
is "$(cowsnap_objects)" "$objects" "our own objects are as many as before"
ok "the kernel's memory comes back to where it was, within 12 MiB" wait_for 60 memory_is_back
diag "kernel memory before: $before KiB, after: $(memory_kib) KiB; our objects: $objects"
