# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# What tests/bench/sharing measures with: writers with a processor each (writers.c), on several
# quick devices. The last processor is left to the kernel's threads, and to what else runs.

TRACING=/sys/kernel/tracing

# last_mask: the last processor's bit, in hexadecimal.
last_mask()
{
	printf '%x\n' $((1 << ($(nproc) - 1)))
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
		[[ $(<"$comm") == cowsnap-* ]] || continue
		comm=${comm#/proc/}
		taskset -p "$(last_mask)" "${comm%/comm}" >/dev/null
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
			hw_queue_depth=256 submit_queues="$(nproc)" blocksize=512 power=1; do
			printf '%s\n' "${attr#*=}" >"$dir/${attr%%=*}"
		done
		noise "/dev/nullb$i" "$2"
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

# Whose memory is where: what was asked for from here on.
note_memory()
{
	local event

	mount -t tracefs tracefs "$TRACING"
	echo 0 >"$TRACING/options/hash-ptr"
	echo 4096 >"$TRACING/buffer_size_kb"
	for event in kmalloc kmalloc_node kmem_cache_alloc kmem_cache_alloc_node; do
		[[ ! -d $TRACING/events/kmem/$event ]] || echo 1 >"$TRACING/events/kmem/$event/enable"
	done
}

# noted_memory NAME: what that was, up to here. Nothing is noted while the plugin counts.
noted_memory()
{
	echo 0 >"$TRACING/tracing_on"
	# shellcheck disable=SC2016  # awk's
	awk '/call_site=/ {
		site = ptr = size = ""
		for (i = 1; i <= NF; i++) {
			if ($i ~ /^call_site=/)
				site = substr($i, 11) ($(i + 1) ~ /^\[/ ? $(i + 1) : "")
			if ($i ~ /^ptr=/)
				ptr = substr($i, 5)
			if ($i ~ /^bytes_req=/)
				size = substr($i, 11)
		}
		print ptr, size, site
	}' "$TRACING/trace" | grep -E '\[|blk|bdev|disk|bio|dm_|workq|kthread' |
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
