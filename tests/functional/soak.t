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

cowsnap_objects()
{
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

# One origin's life, for so many seconds.
life()
{
	local end=$((SECONDS + $1)) rc=0 writer

	origin_up o "$base"
	fio --name=w --ioengine=libaio --direct=1 --rw=randrw --bsrange=512-256k --iodepth=8 \
		--filename=/dev/mapper/o --allow_file_create=0 --time_based --runtime=100000 \
		--randrepeat=0 --output="$TEST_TMP/fio.log" 2>&1 &
	writer=$!
	while ((SECONDS < end)); do
		round >/dev/null || rc=1
		rounds=$((rounds + 1))
	done
	kill -INT "$writer"
	wait "$writer"
	dmremove o
	return "$rc"
}

base=$(mkloop 32M)
store=$(mkloop 40M)
store2=$(mkloop 40M)
fill_letter "$base" A
rounds=0
ok "warming up" life 3
settle
before=$(($(kernel_kib) + $(unaccounted_kib)))
objects=$(cowsnap_objects)
ok "load and snapshots for $seconds s" life "$seconds"
diag "$rounds rounds"
settle
after=$(($(kernel_kib) + $(unaccounted_kib)))
diag "kernel memory before and after: $before KiB, $after KiB; our objects: $objects, $(cowsnap_objects)"
ok "several rounds" [ "$rounds" -gt 2 ]
is "$(cowsnap_objects)" "$objects" "our objects are as many as before"
ok "the kernel's memory is where it was, within 8 MiB" [ $((after - before)) -lt 8192 ]
