#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Copies that a write waits for come before those made ahead of a writer, whether they were
# asked for later or come to be needed while they wait; told from the order of reads.

. "$(dirname "$0")/common.sh"

[[ $(tracefs) ]] || skip_all "no block trace events in this kernel"
MIB=1048576
plan 10
echo 0 >"$PARAMETERS/copy_around"
echo 0 >"$PARAMETERS/undo_buffer"
at_exit _write "$PARAMETERS/kcopyd_budget" "$(cat "$PARAMETERS/kcopyd_budget")"
echo 1 >"$PARAMETERS/kcopyd_budget"	# one copy of 8 KiB at a time, so that the rest waits

disk=$(mkloop 48M)
store=$(mkloop 64M)
FAR=$((40 * MIB))
SOON=$((3 * MIB))

parked()
{
	[[ $(key_of o parked) -ge $1 ]]
}

copied_ahead()
{
	[[ $(key_of o copied_ahead) -ge $1 ]]
}

# read_of BYTE: the first read of it is the how manieth of all.
read_of()
{
	awk -v at="$(($1 / 512))" '$1 == "bio_queue" && $2 ~ /^R/ {
		n++
		if ($3 <= at && at < $3 + $4) { print n; exit }
	}' "$TEST_TMP/trace"
}

fill_letter "$disk" A
dmcreate disk "$(linear_table "$disk")"
origin_up o /dev/mapper/disk
snap_up s /dev/mapper/disk "$store" N 8 copy_ahead 8
put_letter /dev/mapper/o B 0 $((2 * MIB)) 4096
dm message s 0 set copy_ahead 2048

# A disk that does not answer, so that what is asked for waits.
dm suspend --noflush --nolockfs disk
trace_start /dev/mapper/disk bio_queue
ahead=$(key_of o copied_ahead)
put_letter /dev/mapper/o B $((2 * MIB)) 8192 8192 &
first=$!
ok "2 MiB are asked for ahead of a writer" wait_for 60 copied_ahead $((ahead + 3000))
before=$(key_of o parked)
put_letter /dev/mapper/o B $FAR 4096 &
second=$!
wait_for 60 parked $((before + 1))
put_letter /dev/mapper/o B $SOON 4096 &
third=$!
ok "two writers wait for copies" wait_for 60 parked $((before + 2))
dm resume disk
ok "all three writers are served beside copies ahead" all_end_well "$first" "$second" "$third"
ok "the snapshot has the old data" all_letter /dev/mapper/s A
trace_stop >"$TEST_TMP/trace"
reads=$(grep -c '^bio_queue R' "$TEST_TMP/trace")
ok "most reads ahead of the writer were still to come: $reads" [ "$reads" -gt 200 ]
ok "a write elsewhere has its copy at once: read $(read_of $FAR) of $reads" [ "$(read_of $FAR)" -le 5 ]
ok "a write whose copy ahead still waits has it at once: read $(read_of $SOON) of $reads" \
	[ "$(read_of $SOON)" -le 5 ]

# Half of the pages is not for what is copied ahead. Needed after all, it may have them, and has to
# be told so: nothing else happens while the disk does not answer.
read_is_sent()
{
	[[ $(awk -v at="$((SOON / 512))" '/block_bio_queue:.* R/ {
		for (i = 1; i < NF; i++)
			if ($(i + 1) == "+" && $i <= at && at < $i + $(i + 2))
				print
	}' "$TRACE/trace") ]]
}

dmremove s
snap_up s /dev/mapper/disk "$store" N 8 copy_ahead 8
put_letter /dev/mapper/o C 0 $((2 * MIB)) 4096
dm message s 0 set copy_ahead 2048
dm suspend --noflush --nolockfs disk
trace_start /dev/mapper/disk bio_queue
ahead=$(key_of o copied_ahead)
put_letter /dev/mapper/o C $((2 * MIB)) 4096 &
first=$!
ok "2 MiB are asked for ahead of a writer, again" wait_for 60 copied_ahead $((ahead + 3000))
not_ok "what is copied ahead leaves half of the pages alone" read_is_sent
put_letter /dev/mapper/o C $SOON 4096 &
second=$!
ok "a copy ahead that comes to be needed is read at once" wait_for 30 read_is_sent
dm resume disk
wait "$first" "$second"
trace_stop >/dev/null
dmremove s
dmremove o
dmremove disk
