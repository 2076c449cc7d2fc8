#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# On a rotational disk what is copied around a write is put aside once it has been read: it is
# written when the write has gone home, or when a 20th of a second is over. Told from the order of
# requests.

. "$(dirname "$0")/common.sh"

[[ $(tracefs) ]] || skip_all "no block trace events in this kernel"
REGION=262144
MANY=12
# Chunks in front of the first one written in a region, and of the second one.
FIRST=10
SECOND=20
plan 7
echo 0 >"$PARAMETERS/copy_ahead"

# up: origin and store on one rotational disk.
up()
{
	echo 1 >"$(sysfs "$disk")/queue/rotational"
	dmcreate base "0 131072 linear $disk 0"
	dmcreate cow "0 262144 linear $disk 131072"
	fill_letter /dev/mapper/base A
	dd if=/dev/zero of=/dev/mapper/cow bs=4096 count=1 conv=fsync status=none
	origin_up o /dev/mapper/base
	snap_up s /dev/mapper/base /dev/mapper/cow P 8 copy_around $((REGION / 1024))
}

down()
{
	dmremove s
	dmremove o
	dmremove cow
	dmremove base
}

# write_in CHUNK REGION: the chunk of it.
write_in()
{
	put_letter /dev/mapper/o B $(($2 * REGION + $1 * 4096)) 4096
}

none_pending()
{
	[[ $(key_of s pending) = 0 ]]
}

# second_writes: one to each region, whose rest is copied with it: what is in front of the first
# write by itself. Requests are left in the file "trace".
second_writes()
{
	local i

	for ((i = 0; i < MANY; i++)); do
		write_in $FIRST $i
	done
	wait_for 60 none_pending
	trace_start "$disk" bio_queue rq_complete
	for ((i = 0; i < MANY; i++)); do
		write_in $SECOND $i
	done
	wait_for 60 none_pending
	trace_stop >"$TEST_TMP/trace"
}

# aside: how many of the copies around are written after the write that they are for has ended, and
# how many there are.
aside()
{
	awk -v count=$((FIRST * 8)) -v at=$((SECOND * 8)) -v region=$((REGION / 512)) '
		$1 == "rq_complete" && $2 ~ /W/ && $4 == 8 && $3 % region == at && $3 < 131072 { home++ }
		$1 == "bio_queue" && $2 ~ /W/ && $4 == count && $3 >= 131072 { n++; after += home >= n }
		END { print after + 0, n + 0 }' "$TEST_TMP/trace"
}

# around_is_written: the trace has what is copied around on its way to the store.
around_is_written()
{
	grep -q "block_bio_queue: .* W.* + $((FIRST * 8)) " "$TRACE/trace"
}

disk=$(mkloop 192M)
up
second_writes
read -r after all < <(aside)
ok "what is in front of the first write to a region is a copy of its own: $all" \
	[ "$all" -ge $((MANY * 3 / 4)) ]
ok "it is written once the second write is at home: $after of $all" \
	[ "$after" -ge $((all * 3 / 4)) ]
ok "the snapshot has the old data" all_letter /dev/mapper/s A

# A copy that a write waits for does not end.
write_in $FIRST 100
wait_for 60 none_pending
dm suspend --noflush --nolockfs cow
trace_start /dev/mapper/cow bio_queue
write_in $SECOND 100 &
writer=$!
ok "behind a copy that does not end it is written all the same" wait_for 30 around_is_written
not_ok "the write still waits" has_ended $writer
dm resume cow
ok "the write ends" all_end_well $writer
trace_stop >/dev/null
ok "the snapshot has the old data beside a stopped store" all_letter /dev/mapper/s A
down
