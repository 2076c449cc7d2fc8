#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The copy engine's worker, which others wait for, is never where writeback is throttled: neither
# with copies and commits nor with the writes that have waited for these.

. "$(dirname "$0")/common.sh"

need_probes
TRACING=$(tracefs)
MIB=1048576
exact_copies
plan 11

# A task that comes there may be put to sleep; where from is in the trace.
probe()
{
	echo 'p:cowprobe/throttled rq_qos_wait' >>"$TRACING/kprobe_events" ||
		bail_out "throttled requests cannot be traced"
	at_exit unprobe
	echo 8192 >"$TRACING/buffer_size_kb"
	echo 1 >"$TRACING/options/stacktrace"
}

unprobe()
{
	echo 0 >"$TRACING/tracing_on"
	echo 0 >"$TRACING/events/cowprobe/throttled/enable"
	echo 0 >"$TRACING/options/stacktrace"
	echo '-:cowprobe/throttled' >>"$TRACING/kprobe_events"
}

# under FUNCTION: how many such calls the trace has.
under()
{
	awk -v name="$1" '
		/throttled:/ { nr += hit; hit = 0 }
		index($0, "=> " name) { hit = 1 }
		END { print nr + hit }' "$TEST_TMP/trace"
}

# traced COMMAND...: which tasks are throttled meanwhile.
traced()
{
	echo >"$TRACING/trace"
	echo 1 >"$TRACING/events/cowprobe/throttled/enable"
	echo 1 >"$TRACING/tracing_on"
	"$@"
	echo 0 >"$TRACING/tracing_on"
	echo 0 >"$TRACING/events/cowprobe/throttled/enable"
	cat "$TRACING/trace" >"$TEST_TMP/trace"
}

# Through the page cache, as filesystems do: then it is writeback that waits for the copies.
write_back()
{
	letters B $((8 * MIB)) | dd of=/dev/mapper/o bs=1M conv=notrunc,fsync status=none
}

# With a cache, so that commits flush it.
throttling_disk()
{
	local dev

	dev=$(mkram "$1" irqmode=2 completion_nsec=100000 cache_size=1) || return
	echo 75000 >"$(sysfs "$dev")/queue/wbt_lat_usec" 2>/dev/null || return
	echo "$dev"
}

# writeback MODE WORDS
writeback()
{
	fill_letter "$base" A
	dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
	origin_up o "$base"
	snap_up s "$base" "$store" "$1" 8
	traced write_back
	# What is kept is written by then.
	ok "$2: the snapshot has the old data" all_letter /dev/mapper/s A
	is "$(under engine_work)" 0 "$2: the engine's worker is not throttled"
	ok "$2: writeback is, elsewhere: $(under cow_origin_writeback_work)" \
		[ "$(under cow_origin_writeback_work)" -gt 0 ]
	dmremove s
	dmremove o
}

# What the buffer keeps is written at the end, beside others.
kept()
{
	write_back
	all_letter /dev/mapper/s A
}

probe
base=$(throttling_disk 16) || skip_all "no throttling of writeback in this kernel"
store=$(throttling_disk 32)
writeback P "persistent"
writeback N "transient"
echo 8192 >"$PARAMETERS/undo_buffer"
fill_letter "$base" A
dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
origin_up o "$base"
snap_up s "$base" "$store" N 8
traced kept
ok "transient, kept: the snapshot has the old data" all_letter /dev/mapper/s A
is "$(under engine_work)" 0 "transient, kept: the engine's worker is not throttled"
dmremove s
dmremove o
echo 8192 >"$PARAMETERS/copy_ahead"
origin_up o "$base"
dd if=/dev/zero of="$store" bs=1M count=1 oflag=direct status=none
fill_letter "$base" A
snap_up s "$base" "$store" P 8
traced write_back
ok "copied ahead: the snapshot has the old data" all_letter /dev/mapper/s A
is "$(under engine_work)" 0 "copied ahead: the engine's worker is not throttled"
ok "copied ahead: there were copies ahead of the writer" [ "$(key_of o copied_ahead)" -gt 0 ]
dmremove s
dmremove o
echo 0 >"$PARAMETERS/copy_ahead"
