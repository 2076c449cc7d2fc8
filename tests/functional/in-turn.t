#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Copies of a rotational disk go on in the order in which their reads were begun. The first one,
# which the disk leaves behind, holds up those behind it, and after half a second it is passed over.
# A device that does not rotate has no such order, nor has an array.

. "$(dirname "$0")/common.sh"

need fio
TRACING=$(tracefs)
[[ $TRACING ]] || skip_all "no tracefs"
MIB=1048576
MANY=60
exact_copies
plan 12

# up P|N TABLE: the first MiB of the origin is on a device that can be stopped, the second is not.
up()
{
	dmcreate slow "$(linear_table "$disk")"
	dmcreate base "$2"
	fill_letter /dev/mapper/base A
	dd if=/dev/zero of="$store" bs=4096 count=1 conv=fsync status=none
	origin_up o /dev/mapper/base
	snap_up s /dev/mapper/base "$store" "$1" 8
	next=0
}

two_parts()
{
	echo "0 2048 linear /dev/mapper/slow 0"
	echo "2048 $(($(sectors "$other") - 2048)) linear $other 2048"
}

striped()
{
	echo "0 $((2 * $(sectors "$other"))) striped 2 2048 /dev/mapper/slow 0 $other 0"
}

down()
{
	dmremove s
	dmremove o
	dmremove base
	dmremove slow
}

stop_disk()
{
	dm suspend --noflush --nolockfs slow
}

trace_order()
{
	: >"$TRACING/trace"
	echo 1 >"$TRACING/events/cowsnap/cowsnap_release/enable"
	echo 1 >"$TRACING/events/block/block_rq_complete/enable"
}

trace_end()
{
	echo 0 >"$TRACING/events/cowsnap/cowsnap_release/enable"
	echo 0 >"$TRACING/events/block/block_rq_complete/enable"
}

# first_released: the chunk whose copy was complete first.
first_released()
{
	sed -n 's/.*cowsnap_release: .* chunk \([0-9]*\) .*/\1/p' "$TRACING/trace" | head -n 1
}

disk_number()
{
	stat -L -c %Hr,%Lr "$other"
}

was_read()
{
	grep -q "block_rq_complete: $(disk_number) R" "$TRACING/trace"
}

# write_behind OFFSET...: writes to the part that does not answer, then these, one after the other,
# none of which waits for the one before it.
write_behind()
{
	local at

	stop_disk
	trace_order
	put_letter /dev/mapper/o B $((next * 4096)) 4096 &
	first=$!
	sleep 0.05
	writers=()
	for at; do
		put_letter /dev/mapper/o B "$at" 4096 &
		writers+=("$!")
	done
}

# The disk goes on.
end_writes()
{
	dm resume slow
	all_end_well "$first" "${writers[@]}" || return
	trace_end
	next=$((next + 1))
}

# The second copy has been read when the disk brings the first.
two_writes()
{
	write_behind $((MIB + next * 4096))
	wait_for 60 was_read
	end_writes && [[ $(first_released) = "$((next - 1))" ]]
}

# in_turn TRIES: a machine that is busy with others may take longer than the half second.
in_turn()
{
	local i

	for ((i = 0; i < $1; i++)); do
		two_writes && return
	done
	return 1
}

# copied CHUNKS: so many copies are complete.
copied()
{
	(($(grep -c cowsnap_release: "$TRACING/trace") >= $1))
}

# MANY writes behind one to the part that does not answer, a few milliseconds apart. One program
# sends them all: to start one for each would take longer than the half second.
many_writes()
{
	stop_disk
	trace_order
	fio --ioengine=libaio --direct=1 --bs=4k --allow_file_create=0 --filename=/dev/mapper/o \
		--thread --output="$TEST_TMP/fio.log" \
		--name=first --rw=write --offset=$((next * 4))k --size=4k \
		--name=behind --startdelay=50ms --rw=randwrite --offset=4m --size=16m \
		--iodepth=$MANY --number_ios=$MANY --rate_iops=150 &
	first=$!
	ok "$1: the writes behind it end while the disk keeps it" wait_for 60 copied "$MANY"
	not_ok "$1: it waits" has_ended "$first"
	writers=()
	end_writes
}

# turns 0|1: whether the disks are rotational
turns()
{
	echo "$1" >"$(sysfs "$disk")/queue/rotational"
	echo "$1" >"$(sysfs "$other")/queue/rotational"
}

disk=$(mkloop 24M)
other=$(mkloop 24M)
store=$(mkloop 64M)
turns 1
for mode in P N; do
	up $mode "$(two_parts)"
	ok "$mode: the second copy goes on behind the first one" in_turn 20
	many_writes "$mode, a copy that the disk leaves behind"
	ok "$mode: the snapshot has the old data" all_letter /dev/mapper/s A
	down
done

up P "$(striped)"
not_ok "an array: the second copy does not wait" in_turn 3
ok "an array: the snapshot has the old data" all_letter /dev/mapper/s A
down

turns 0
up P "$(two_parts)"
not_ok "not rotational: the second copy does not wait" in_turn 3
ok "not rotational: the snapshot has the old data" all_letter /dev/mapper/s A
down
