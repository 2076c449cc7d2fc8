#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What a persistent store does when it is full is what it was told: invalidate, drop the
# oldest, or wait for room; it says so before, and remembers what it was told.

. "$(dirname "$0")/common.sh"

MIB=1048576
KIB=1024

exact_copies
plan 75

# fresh SIZE: a store with nothing in it.
fresh()
{
	store=$(mkloop "$1")
	fill "$base" "$TEST_TMP/now"
	origin_up o "$base"
}

read_start()
{
	get "$1" 0 $MIB >/dev/null 2>&1
}

base=$(mkloop 4M)

# ---- invalidate ----

fresh 2M
snap_up s "$base" "$store" PO
snap_up t "$base" "$store" P 8 id 1 create
ok "invalidate: all writes to the origin succeed" \
	put /dev/mapper/o "$TEST_TMP/now" 0 $MIB $MIB $MIB $((2 * MIB)) $MIB $((3 * MIB)) $MIB
ok "invalidate: the writes to the origin are there" same /dev/mapper/o "$TEST_TMP/now"
is "$(status s)" Overflow "invalidate: PO says Overflow"
is "$(status t)" Invalid "invalidate: P says Invalid"
not_ok "invalidate: PO cannot be read" read_start /dev/mapper/s
not_ok "invalidate: P cannot be read" read_start /dev/mapper/t
not_ok "invalidate: P cannot be written" put_letter /dev/mapper/t P 0 4096
remove_and_reload s t o && exact_copies
origin_up o "$base" store "$store"
snap_up s "$base" "$store" PO
snap_up t "$base" "$store" P 8 id 1
is "$(status s)" Overflow "invalidate: after a reload PO says Overflow"
is "$(status t)" Invalid "invalidate: after a reload P says Invalid"
not_ok "invalidate: after a reload P cannot be read" read_start /dev/mapper/t
dmremove s
dmremove t
ok "invalidate: the first snapshot is deleted" dm message o 0 delete 0
ok "invalidate: the second snapshot is deleted" dm message o 0 delete 1
cp "$TEST_TMP/now" "$TEST_TMP/old"
ok "invalidate: a new snapshot is made in the store" snap_up s "$base" "$store" P 8 id 0 create
put /dev/mapper/o "$TEST_TMP/now" $MIB $MIB
ok "invalidate: the new snapshot has room for its copies" same /dev/mapper/s "$TEST_TMP/old"
dmremove s
dmremove o

# ---- drop_oldest ----

fresh 2M
cp "$TEST_TMP/now" "$TEST_TMP/old1"
snap_up s1 "$base" "$store" PO 8 id 1 create on_full drop_oldest
put /dev/mapper/o "$TEST_TMP/now" 0 $MIB
cp "$TEST_TMP/now" "$TEST_TMP/old2"
snap_up s2 "$base" "$store" P 8 id 2 create
put /dev/mapper/o "$TEST_TMP/now" $MIB $((512 * KIB))
cp "$TEST_TMP/now" "$TEST_TMP/old3"
snap_up s3 "$base" "$store" P 8 id 3 create
ok "drop_oldest: while there is room the oldest is kept" same /dev/mapper/s1 "$TEST_TMP/old1"
ok "drop_oldest: a write for which there is no room succeeds" \
	put /dev/mapper/o "$TEST_TMP/now" 0 $MIB
is "$(status s1)" Overflow "drop_oldest: the oldest is gone"
not_ok "drop_oldest: the oldest cannot be read" read_start /dev/mapper/s1
like "$(kernel_log)" 'snapshot 1 of .* is dropped' \
	"drop_oldest: the log has a line on the dropped snapshot"
ok "drop_oldest: the second is right" same /dev/mapper/s2 "$TEST_TMP/old2"
ok "drop_oldest: the third is right" same /dev/mapper/s3 "$TEST_TMP/old3"
ok "drop_oldest: the origin is right when one was dropped" same /dev/mapper/o "$TEST_TMP/now"
remove_and_reload s1 s2 s3 o && exact_copies
origin_up o "$base" store "$store"
snap_up s1 "$base" "$store" P 8 id 1
snap_up s2 "$base" "$store" P 8 id 2
snap_up s3 "$base" "$store" P 8 id 3
is "$(status s1)" Invalid "drop_oldest: after a reload the oldest is gone"
ok "drop_oldest: after a reload the second is right" same /dev/mapper/s2 "$TEST_TMP/old2"
ok "drop_oldest: after a reload the third is right" same /dev/mapper/s3 "$TEST_TMP/old3"
dmremove s1
dmremove s2
dmremove s3

rounds()
{
	local id

	for id in $(seq 10 25); do
		cp "$TEST_TMP/now" "$TEST_TMP/old"
		dmsetup message o 0 create "$id" || return
		put /dev/mapper/o "$TEST_TMP/now" $((id % 4 * MIB)) $((300 * KIB)) \
			$(((id + 1) % 4 * MIB)) $((300 * KIB)) || return
	done
}

ok "drop_oldest: sixteen rounds of a new snapshot and writes succeed" rounds
snap_up s "$base" "$store" P 8 id 25
ok "drop_oldest: the newest is right" same /dev/mapper/s "$TEST_TMP/old"
ok "drop_oldest: some of sixteen snapshots are gone" [ "$(key_of o snapshots)" -lt 10 ]
ok "drop_oldest: if one snapshot alone is too large, writes still succeed" \
	put /dev/mapper/o "$TEST_TMP/now" 0 $MIB $MIB $MIB $((2 * MIB)) $MIB $((3 * MIB)) $MIB
is "$(status s)" Invalid "drop_oldest: the snapshot that alone is too large is gone"
ok "drop_oldest: the origin is right when all were dropped" same /dev/mapper/o "$TEST_TMP/now"
dmremove s
dmremove o

# ---- wait ----

# More than there is room for; `waits` says that it does not end.
write_in_background()
{
	put /dev/mapper/o "$TEST_TMP/now" 0 $MIB $MIB $MIB $((2 * MIB)) $MIB &
	writer=$!
}

waits()
{
	sleep 3
	kill -0 "$writer" 2>/dev/null
}

# wait_up TIMEOUT [SIZE]
wait_up()
{
	fresh "${2-2M}"
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	snap_up s "$base" "$store" PO 8 on_full wait wait_timeout "$1"
}

wait_up 100
write_in_background
ok "wait: the writer waits" waits
ok "wait: reads go on" same /dev/mapper/s "$TEST_TMP/old"
truncate -s 5M "$(loop_file "$store")"
losetup --set-capacity "$store"
ok "wait: the store is told that it has grown" dm message s 0 resize
ok "wait: the writer ends well" wait "$writer"
ok "wait: the snapshot is right" same /dev/mapper/s "$TEST_TMP/old"
ok "wait: the origin is right" same /dev/mapper/o "$TEST_TMP/now"
like "$(status s)" '^[0-9]+/10240 ' "wait: the status has the new size"
remove_and_reload s o && exact_copies
snap_up s "$base" "$store" P
ok "wait: the snapshot is right after a reload" same /dev/mapper/s "$TEST_TMP/old"
origin_up o "$base"
put /dev/mapper/o "$TEST_TMP/now" $((3 * MIB)) $MIB
ok "wait: the new room is all used" same /dev/mapper/s "$TEST_TMP/old"
dmremove s
dmremove o

wait_up 2
before=$SECONDS
write_in_background
ok "wait, time out: the writer ends well" wait "$writer"
ok "wait, time out: the writer has waited that long" [ $((SECONDS - before)) -ge 2 ]
is "$(status s)" Overflow "wait, time out: the snapshot is gone"
ok "wait, time out: the origin is right" same /dev/mapper/o "$TEST_TMP/now"
dmremove s
dmremove o

wait_up 100
write_in_background
ok "wait, suspend: the writer waits" waits
ok "wait, suspend: the origin is suspended all the same" timeout 60 dmsetup suspend o
dmsetup resume o
ok "wait, suspend: the writer ends well" wait "$writer"
is "$(status s)" Overflow "wait, suspend: the snapshot is gone"
ok "wait, suspend: the origin is right" same /dev/mapper/o "$TEST_TMP/now"
dmremove s
dmremove o

# Another table of the origin, which goes while it is suspended, takes its share of that along.
wait_up 100
origin_up p "$base"
dm suspend p
dmsetup remove --retry p
write_in_background
ok "wait, another table was removed while suspended: the writer waits" waits
truncate -s 5M "$(loop_file "$store")"
losetup --set-capacity "$store"
ok "wait, another table was removed while suspended: there is more room" dm message s 0 resize
ok "wait, another table was removed while suspended: the writer ends well" wait "$writer"
ok "wait, another table was removed while suspended: the snapshot is right" \
	same /dev/mapper/s "$TEST_TMP/old"
dmremove s
dmremove o

has_freed()
{
	(($(key_of t freed) >= $1))
}

wait_up 100
put /dev/mapper/o "$TEST_TMP/now" 0 $MIB
cp "$TEST_TMP/now" "$TEST_TMP/old2"
snap_up t "$base" "$store" P 8 id 2 create
dmremove s
write_in_background
ok "wait, delete: the writer waits" waits
ok "wait, delete: another snapshot is deleted" dm message t 0 delete 0
wait_for 60 has_freed 256
kill -0 "$writer" 2>/dev/null && diag "still waiting: $(status t)"
truncate -s 5M "$(loop_file "$store")"
losetup --set-capacity "$store"
dm message t 0 resize
ok "wait, delete: the writer ends well" wait "$writer"
ok "wait, delete: the snapshot left is right" same /dev/mapper/t "$TEST_TMP/old2"
dmremove t
dmremove o

# ---- low water ----

fresh 2M
snap_up s "$base" "$store" P 8 low_water 50
number=$(dmsetup info -c --noheadings -o events s)
dmsetup wait s "$number" >/dev/null &
waiter=$!
put /dev/mapper/o "$TEST_TMP/now" 0 $((800 * KIB))
sleep 1
ok "low_water: there is no event below it" kill -0 "$waiter"
put /dev/mapper/o "$TEST_TMP/now" $MIB $((400 * KIB))
ok "low_water: above it there is an event" wait_for 60 has_ended "$waiter"
wait "$waiter"
isnt "$(dmsetup info -c --noheadings -o events s)" "$number" "low_water: the event is counted"
like "$(status s)" '^[0-9]+/' "low_water: the snapshot is valid"
dmremove s
dmremove o

# ---- options ----

options()
{
	echo "$(key_of "$1" on_full) $(key_of "$1" wait_timeout) $(key_of "$1" low_water) $(key_of "$1" throttle)"
}

table_words()
{
	dmsetup table "$1" | cut -d' ' -f8-
}

fresh 4M
snap_up s "$base" "$store" P
is "$(options s)" "invalidate 60 0 100" "options: a new store has the defaults"
is "$(table_words s)" "" "options: a table prints no option that it was not given"
dmremove s
ok "options: a table may give all of them" \
	snap_up s "$base" "$store" P 8 on_full drop_oldest wait_timeout 7 \
	low_water 30 throttle 50
is "$(options s)" "drop_oldest 7 30 50" "options: the status shows those given"
is "$(table_words s)" "8 on_full drop_oldest wait_timeout 7 throttle 50 low_water 30" \
	"options: the table prints those given"
remove_and_reload s o && exact_copies
origin_up o "$base" store "$store"
snap_up s "$base" "$store" P
is "$(options s)" "drop_oldest 7 30 50" "options: the store keeps those of its table"
is "$(table_words s)" "" "options: the table prints what it was given"
dm message s 0 set on_full wait
dm message s 0 set wait_timeout 9
dm message s 0 set low_water 80
dm message s 0 set throttle 100
is "$(options s)" "wait 9 80 100" "options: messages set all of them"
remove_and_reload s o && exact_copies
snap_up s "$base" "$store" P
is "$(options s)" "wait 9 80 100" "options: the store keeps those set by message"
dmreload s "$(snap_table "$base" "$store" P 8 on_full invalidate)"
is "$(options s)" "invalidate 9 80 100" "options: a table overrides an earlier message"
dm message s 0 set on_full wait
snap_up t "$base" "$store" P 8 id 1 create
is "$(options t)" "wait 9 80 100" "options: a message overrides an earlier table"
not_ok "options: an unknown word for on_full is refused" dm message s 0 set on_full never
not_ok "options: a wait_timeout of 0 is refused" dm message s 0 set wait_timeout 0
not_ok "options: a low_water above 100 is refused" dm message s 0 set low_water 101
dmremove t
dmremove s
