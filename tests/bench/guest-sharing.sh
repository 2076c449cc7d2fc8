# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# What tests/bench/sharing measures with: writers with a processor each (writers.c), on several
# quick devices. The last processor is left to the kernel's threads, and to what else runs.

TRACING=/sys/kernel/tracing

# Not what nproc says: this shell may use one.
CPUS=$(grep -c ^processor /proc/cpuinfo)

# last_mask: the last processor's bit, in hexadecimal.
last_mask()
{
	printf '%x\n' $((1 << (CPUS - 1)))
}

# The shell and all that it starts; the writers go to their own.
settle()
{
	local mask

	mask=$(last_mask)
	taskset -p "$mask" $$ >/dev/null
	printf '%s\n' "$mask" >/sys/devices/virtual/workqueue/cpumask
}

# pin_worker: the copy engine's thread, if the stack has one. dm-snapshot's and dm-thin's are
# work items: unbound ones have been settled, others run where they are queued.
pin_worker()
{
	local comm

	for comm in /proc/[0-9]*/comm; do
		[[ $(<"$comm") == cowsnap-+([0-9]):+([0-9]) ]] || continue
		comm=${comm#/proc/}
		taskset -p "$(last_mask)" "${comm%/comm}" >/dev/null 2>&1 || :
	done
}

# noise DEVICE MIB: data that is neither zero nor compressible.
noise()
{
	local i

	[[ -f /tmp/noise ]] || dd if=/dev/urandom of=/tmp/noise bs=1M count=1 status=none
	for ((i = 0; i < $2; i++)); do
		dd if=/tmp/noise of="$1" bs=1M seek="$i" oflag=direct status=none
	done
}

# quick_devices COUNT SIZE NANOSECONDS: null_blk, with a queue for each processor.
quick_devices()
{
	local i dir attr

	need null_blk nr_devices=0
	mount -t configfs configfs /sys/kernel/config
	for ((i = 0; i < $1; i++)); do
		dir=/sys/kernel/config/nullb/nullb$i
		mkdir "$dir"
		for attr in size="$2" memory_backed=1 irqmode=2 completion_nsec="$3" \
			hw_queue_depth=256 submit_queues="$CPUS" blocksize=512 power=1; do
			printf '%s\n' "${attr#*=}" >"$dir/${attr%%=*}"
		done
		echo 0 >"$TRACING/tracing_on"
		noise "/dev/nullb$i" "$2"
		echo 1 >"$TRACING/tracing_on"
	done
	QUICK=$1
}

# striped NAME OFFSET LENGTH: a volume over all of them; both of each device.
striped()
{
	local i words=''

	for ((i = 0; i < QUICK; i++)); do
		words+=" /dev/nullb$i $(($2 * MIB))"
	done
	make_dm "$1" "0 $((QUICK * $3 * MIB)) striped $QUICK 128$words"
}

# Whose memory is where: what is asked for while tracing_on is 1. Small objects come and go.
note_memory()
{
	local event

	mount -t tracefs tracefs "$TRACING"
	echo 0 >"$TRACING/options/hash-ptr"
	echo 4096 >"$TRACING/buffer_size_kb"
	for event in kmalloc kmalloc_node kmem_cache_alloc kmem_cache_alloc_node; do
		[[ -d $TRACING/events/kmem/$event ]] || continue
		echo 'bytes_req >= 192' >"$TRACING/events/kmem/$event/filter"
		echo 1 >"$TRACING/events/kmem/$event/enable"
	done
}

# noted_memory NAME: what that was, up to here.
noted_memory()
{
	echo 0 >"$TRACING/tracing_on"
	grep -E 'call_site=.*(\[|blk|bdev|disk|bio|dm_|workq|kthread)' "$TRACING/trace" |
		sed -E 's/.*call_site=(.*) ptr=([0-9a-fx]+) bytes_req=([0-9]+).*/\2 \3 \1/' |
		gzip | base64 | emit "$1" gzip
}

# counted NAME DEPTH STEP GROUP...: what the plugin watches. Results: the writes of each group.
counted()
{
	sync
	echo 0 >"$TRACING/tracing_on"
	/writers "$TARGET" "${@:2}" | emit "$1" writes
	echo 1 >"$TRACING/tracing_on"
	counters "$1"
}
