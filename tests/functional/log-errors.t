#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A log whose device fails: a record that cannot be written costs the snapshots and nothing else; a
# superblock that cannot be written leaves the zones as they were; whichever sector of a zone cannot
# be read when a store is opened, a snapshot is right or gives an error, also the next time; a cut
# while zones are left costs nothing; zones that cannot be are refused.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/store.sh"
. "$(dirname "$0")/log.sh"

CHUNKS=256
chunk=8	# sectors; see opened()
expect_log 'blk_update_request|Buffer I/O error|critical .* error|I/O error, dev'
need_target flakey
exact_copies
plan 42

# All sectors take longer than a run of all tests has.
STEP=$((${COWSNAP_SCALE:-100} > 100 ? 1 : 3))

# up: snapshot s with a log of an origin, whose first 256 chunks say which they are.
up()
{
	base=$(mkloop 8M)
	store=$(mkloop 24M)
	cut_base=$(mkloop 8M)
	cut_store=$(mkloop 24M)
	fill "$base" "$TEST_TMP/now"
	mark_chunks "$base" 0 0 $((CHUNKS - 1))
	blockdev --flushbufs "$base"
	cp "$(loop_file "$base")" "$TEST_TMP/old"
	cp "$TEST_TMP/old" "$TEST_TMP/now"
	dmcreate cow "$(linear_table "$store")"
	origin_up o "$base"
	snap_up s "$base" /dev/mapper/cow P 8 id 1 create log on
	wait_for 10 has_zones "$store" 2
}

down()
{
	dmremove s
	dmremove o
	dmremove cow
}

# zone_field LETTER FIELD: of a zone of $store: 2 its start, 3 its chunks.
zone_field()
{
	zones "$store" | awk -v zone="$1" -v field="$2" '$1 == zone { print $field }'
}

# is_right_after NAME DESC: the store that was cut off is opened; its snapshot is what DESC says.
is_right_after()
{
	after "$1"
	ok "after a crash then the store is opened" origin_up x "$cut_base" store "$cut_store"
	ok "and its snapshot" snap_up y "$cut_base" "$cut_store" P 8 id 1
	ok "$2" same /dev/mapper/y "$TEST_TMP/old"
	closed
}

# bad_writes FROM COUNT: these sectors of the store cannot be written, and nothing can be flushed.
bad_writes()
{
	partly_table "$store" "$1" "$2" flakey "$store" "$1" 0 1000 1 error_writes >"$TEST_TMP/table"
	dm suspend --noflush cow && dmsetup load cow <"$TEST_TMP/table" && dm resume cow
}

good_again()
{
	swap_table cow "$(linear_table "$store")"
}

# ---- a record that cannot be written ----

expect_log 'old data could not be written|cannot be undone|its log stays as it is|cannot be closed'
up
put_scattered /dev/mapper/o "$TEST_TMP/now" 0 4
for zone in A B; do
	from=$(($(zone_field "$zone" 2) * 8))
	[[ $(records "$store" | head -n 1) != "$zone "* ]] || break
done
bad_writes "$from" $(($(zone_field "$zone" 3) * 8))
ok "a record cannot be written: the write goes home" \
	put_scattered /dev/mapper/o "$TEST_TMP/now" 4 5
is "$(status s)" Invalid "a record cannot be written: the snapshot is invalid"
good_again
ok "the origin goes on" put_scattered /dev/mapper/o "$TEST_TMP/now" 5 9
ok "the origin has what was written" same /dev/mapper/o "$TEST_TMP/now"
dmremove s
dmremove o
ok "the store is opened again" snap_up s "$base" /dev/mapper/cow P 8 id 1
is "$(status s)" Invalid "opened again, the snapshot is invalid"
origin_up o "$base"
ok "a new snapshot is made in it" dm message o 0 create 2
cp "$TEST_TMP/now" "$TEST_TMP/old2"
put_scattered /dev/mapper/o "$TEST_TMP/now" 0 9
ok "the new one has a device" snap_up s2 "$base" /dev/mapper/cow P 8 id 2
ok "the new one is right" same /dev/mapper/s2 "$TEST_TMP/old2"
dmremove s2
down

# ---- a superblock that cannot be written while zones are left ----

expect_log 'the superblock at sector|its log cannot go on'
# fill_zone MESSAGE: writes fill one zone until the log cannot go on, and not the other zone: no
# commit is to fail.
fill_zone()
{
	local n

	for ((n = 0; n < 180; n += 10)); do
		put_scattered /dev/mapper/o "$TEST_TMP/now" "$n" $((n + 10))
		sleep 0.1
		! kernel_log | grep -q "$1" || break
	done
}

up
swap_table cow "$(partly_table "$store" 0 2 error)"
fill_zone 'its log cannot go on'
ok "no superblock can be written: writes go on" same /dev/mapper/o "$TEST_TMP/now"
ok "and the snapshot is right" same /dev/mapper/s "$TEST_TMP/old"
is "$(key_of s checkpoints)" 0 "no zone is left"
cut_off stuck
is_right_after stuck "it is right"
good_again
ok "when it can be written again zones are left" wait_for 30 at_least checkpoints 1
put_scattered /dev/mapper/o "$TEST_TMP/now" 500 560
ok "the snapshot is right all the time" same /dev/mapper/s "$TEST_TMP/old"
down

# ---- a flush that fails while a zone is left ----

# forgetful: the store keeps what is written to its superblocks and its zones, and forgets the rest;
# no flush of it succeeds.
forgetful()
{
	local at=2 zone start end=$(($(sectors "$store") - 8))

	echo "0 2 linear $store 0"
	while read -r _ start zone _; do
		((at == start * 8)) || echo "$at $((start * 8 - at)) flakey $store $at 0 1000 1 drop_writes"
		echo "$((start * 8)) $((zone * 8)) linear $store $((start * 8))"
		at=$(((start + zone) * 8))
	done < <(zones "$store" | sort -n -k 2)
	((at >= end)) || echo "$at $((end - at)) flakey $store $at 0 1000 1 drop_writes"
	at=$((at > end ? at : end))
	echo "$at $(($(sectors "$store") - at)) flakey $store $at 0 1000 1 error_writes"
}

expect_log 'tables of its log cannot be flushed'
up
forgetful >"$TEST_TMP/table"
dm suspend --noflush cow && dmsetup load cow <"$TEST_TMP/table" && dm resume cow
fill_zone 'tables of its log cannot be flushed'
like "$(kernel_log)" 'tables of its log cannot be flushed' "a flush fails while a zone is left"
is "$(key_of s checkpoints)" 0 "the zone is not left"
good_again
ok "when it can be flushed the zone is left" wait_for 30 at_least checkpoints 1
cut_off flushed
is_right_after flushed "what the failed flush lost was written again"
down

# ---- cuts while zones are left ----

up
put_scattered /dev/mapper/o "$TEST_TMP/now" 0 1400 &
writer=$!
for ((cut = 0; cut < 8; cut++)); do
	sleep 0.2
	cut_off "cut$cut"
done
wait "$writer"
wrong=''
for ((cut = 0; cut < 8; cut++)); do
	opened "cut$cut" || wrong+=" $cut:not-opened"
	same /dev/mapper/y "$TEST_TMP/old" >/dev/null || wrong+=" $cut"
	closed
done
is "$wrong" "" "cut off while zones are left and named, the snapshot is right"
down

# ---- what cannot be read ----

# opened_with_bad SECTOR: that one of the store is bad. What is wrong with the snapshot, if anything.
opened_with_bad()
{
	after few
	dmcreate bad "$(partly_table "$cut_store" "$1" 1 error)"
	if origin_up x "$cut_base" store /dev/mapper/bad &&
		snap_up y "$cut_base" /dev/mapper/bad P 8 id 1; then
		differences /dev/mapper/y "$TEST_TMP/old"
		dmremove y
	else
		echo "not opened"
	fi
	dmremove x 2>/dev/null
	dmremove bad
}

expect_log 'a record of the log at sector|are missing|wrong checksum|cannot be closed|cannot go on'
expect_log 'cannot be written|could not be written'
up
mark_chunks /dev/mapper/o 1 10 12
mark_chunks /dev/mapper/o 1 30 30
mark_chunks /dev/mapper/o 1 50 51
cut_off few
cp "$TEST_TMP/few.store" "$TEST_TMP/few.kept"
isnt "$(log_tool records "$TEST_TMP/few.store")" "" "there are records"
first=$(log_tool records "$TEST_TMP/few.store" | head -n 1 | cut -d' ' -f2)
last=$(log_tool records "$TEST_TMP/few.store" | tail -n 1 | awk '{ print $2 + $4 }')
wrong=''
for ((sector = first * 8; sector < (last + 3) * 8; sector += STEP)); do
	said=$(opened_with_bad "$sector")
	[[ $said != *wrong* && $said != *"not opened"* ]] || wrong+=" $sector: $said"
done
is "$wrong" "" "whichever sector of the zone is bad, the snapshot is right, or gives errors"

# ---- a record that is damaged ----

record=$(log_tool records "$TEST_TMP/few.store" | sed -n 2p | cut -d' ' -f2)
sector=$(log_tool sector "$TEST_TMP/few.store" "$record")
spoil_bytes "$TEST_TMP/few.store" $((sector * 512 + 36)) 8
like "$(checked "$TEST_TMP/few.store")" 'log: [12] records are damaged' "cowsnap check says so"
after few
ok "with a damaged record the store is opened" origin_up x "$cut_base" store "$cut_store"
snap_up y "$cut_base" "$cut_store" P 8 id 1
isnt "$(key_of y damaged)" 0 "the status says so"
like "$(differences /dev/mapper/y "$TEST_TMP/old")" '^(eio [0-9]+-[0-9]+ )+$' \
	"what may have been in it gives errors"
dmremove y
dmremove x
ok "it is opened once more" origin_up x "$cut_base" store "$cut_store"
snap_up y "$cut_base" "$cut_store" P 8 id 1
like "$(differences /dev/mapper/y "$TEST_TMP/old")" '^(eio [0-9]+-[0-9]+ )+$' \
	"and it is not forgotten"
isnt "$(key_of y damaged)" 0 "nor by the status"
ok "a new snapshot is made" dm message x 0 create 2
image /dev/mapper/x "$TEST_TMP/new"
mark_chunks /dev/mapper/x 2 10 60
snap_up y2 "$cut_base" "$cut_store" P 8 id 2
is "$(differences /dev/mapper/y2 "$TEST_TMP/new")" "" "the new one lacks nothing"
dmremove y2
dmremove y
dmremove x
down

# misses_a_record COUNTED ERRORS: opened with few.store the snapshot lacks something, and says so.
misses_a_record()
{
	after few
	origin_up x "$cut_base" store "$cut_store"
	snap_up y "$cut_base" "$cut_store" P 8 id 1
	isnt "$(key_of y damaged)" 0 "$1"
	like "$(differences /dev/mapper/y "$TEST_TMP/old")" '^(eio [0-9]+-[0-9]+ )+$' "$2"
	dmremove y
	dmremove x
}

# ---- the last one is damaged: no other says that it was durable ----

cp "$TEST_TMP/few.kept" "$TEST_TMP/few.store"
record=$(log_tool records "$TEST_TMP/few.store" | tail -n 1 | cut -d' ' -f2)
sector=$(log_tool sector "$TEST_TMP/few.store" "$record")
spoil_bytes "$TEST_TMP/few.store" $((sector * 512 + 36)) 8
misses_a_record "the last record counts as lost where it is damaged" \
	"what may have been in the last record gives errors, nothing is wrong"

# ---- a record that is not there ----

cp "$TEST_TMP/few.kept" "$TEST_TMP/few.store"
record=$(log_tool records "$TEST_TMP/few.store" | sed -n 1p | cut -d' ' -f2)
sector=$(log_tool sector "$TEST_TMP/few.store" "$record")
dd if=/dev/zero of="$TEST_TMP/few.store" bs=512 seek="$sector" count=1 conv=notrunc status=none
misses_a_record "a record that was durable and is gone is missed" \
	"what may have been in it gives errors, nothing is wrong"

# ---- zones that cannot be ----

expect_log 'the zones of its log cannot be'
read -r _ start chunks series _ < <(log_tool zones "$TEST_TMP/cut0.store")
number()
{
	printf '%0*x' $((2 * $2)) "$1" | fold -w 2 | tac | tr -d '\n'
}
both=$(number "$start" 8)$(number "$series" 8)$(number "$chunks" 4)$(number 0 4)
both+=$(number $((start + 1)) 8)$(number $((series + 100)) 8)$(number "$chunks" 4)$(number 0 4)
cp "$TEST_TMP/cut0.base" "$TEST_TMP/lap.base"
cp "$TEST_TMP/cut0.store" "$TEST_TMP/lap.store"
log_tool seal-supers "$TEST_TMP/lap.store" 184 "$both"
after lap
not_ok "zones that overlap are refused" origin_up x "$cut_base" store "$cut_store"
far=$(number 100000000 8)$(number "$series" 8)$(number "$chunks" 4)$(number 0 4)
log_tool seal-supers "$TEST_TMP/lap.store" 184 "$far$(number 0 8)$(number 1 8)$(number 0 8)"
after lap
not_ok "zones beyond the store are refused" origin_up x "$cut_base" store "$cut_store"
like "$(kernel_log)" 'the zones of its log cannot be: run cowsnap repair' "the log says what to do"
