#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What a crash, a flipped bit or an unreadable sector leaves of a store is opened as what
# it is: an unfinished commit is dropped, a finished one that was damaged gives errors, what is
# lost is lost alone, and nothing that may be somebody's store is written over.

. "$(dirname "$0")/common.sh"

need perl
CHUNKS=256
expect_log 'blk_update_request|Buffer I/O error|critical .* error'

exact_copies
plan 58

# tag FILE VERSION FROM TO: chunk n of version v is full of words that say so.
tag()
{
	perl -e 'use IO::Handle; my ($file, $v, $from, $to) = @ARGV;
		open(my $f, "+<", $file) or die "$file: $!";
		for ($from .. $to) {
			sysseek($f, $_ * 4096, 0);
			syswrite($f, sprintf("chunk %4d v%d,  ", $_, $v) x 256) == 4096 or die "$!";
		}
		$f->sync or die "$!"' "$@"
}

# place_of FILE CHUNK VERSION: the chunk of the store that has it.
place_of()
{
	perl -e 'local $/; open(my $f, "<", $ARGV[0]); my $all = <$f>;
		my $at = index($all, sprintf("chunk %4d v%d,", $ARGV[1], $ARGV[2]));
		print $at / 4096' "$@"
}

# in_doubt FILE PLACE: does the block of its slot name a commit that no other block, and no
# superblock, names durable? Blocks of 512, chunks of 4096, in the first segment.
in_doubt()
{
	perl -e 'local $/; open(my $f, "<", $ARGV[0]); my $all = <$f>;
		my $d = unpack("Q<", substr($all, 104, 8));
		for (2 .. 7) {
			my $named = unpack("Q<", substr($all, $_ * 512 + 16, 8));
			$d = $named if $named > $d;
		}
		my $block = 2 + int(($ARGV[1] - 1) / 34);
		exit !(unpack("Q<", substr($all, $block * 512 + 8, 8)) > $d)' "$@"
}

# spoil FILE OFFSET BYTES: they are other bytes now.
spoil()
{
	perl -e 'open(my $f, "+<", shift) or die "$!"; my ($at, $nr) = @ARGV;
		seek($f, $at, 0); read($f, my $was, $nr);
		seek($f, $at, 0); print $f $was ^ ("\xa5" x $nr)' "$@"
}

# flip FILE OFFSET: one bit of that byte.
flip()
{
	perl -e 'open(my $f, "+<", shift) or die "$!"; my ($at) = @ARGV;
		seek($f, $at, 0); read($f, my $was, 1);
		seek($f, $at, 0); print $f $was ^ "\x10"' "$@"
}

# put_back FILE LOOP: what the device is to hold.
put_back()
{
	dd if="$1" of="$2" bs=1M conv=fsync status=none
	blockdev --flushbufs "$2"
}

whole_store()
{
	echo "0 $(sectors "$store") linear $store 0"
}

# bad_store [--readonly] SECTOR...: these, ascending, can be neither read nor written.
bad_store()
{
	local at=0 sector options=()

	if [[ $1 == --readonly ]]; then
		options=("$1")
		shift
	fi
	for sector; do
		((sector == at)) || echo "$at $((sector - at)) linear $store $at"
		echo "$sector 1 error"
		at=$((sector + 1))
	done >"$TEST_TMP/table"
	echo "$at $(($(sectors "$store") - at)) linear $store $at" >>"$TEST_TMP/table"
	dm suspend cow && dmsetup load cow "${options[@]}" <"$TEST_TMP/table" && dm resume cow
}

clean_store()
{
	dm suspend cow && dmload cow "$(whole_store)" && dm resume cow
}

# open_all ID...: the origin, and these snapshots as s1, ...
open_all()
{
	local id

	origin_up o "$base" store /dev/mapper/cow || return
	for id; do
		snap_up "s$id" "$base" /dev/mapper/cow P 8 id "$id" || return
	done
}

close_all()
{
	local name

	for name in $(dmsetup ls | sed -n 's/^\(s[0-9]*\)\t.*/\1/p') o; do
		! dmsetup info "$name" >/dev/null 2>&1 || dmremove "$name"
	done
}

new_store()
{
	dd if=/dev/zero of="$store" bs=1M count=4 conv=fsync status=none
	tag "$base" 0 0 $((CHUNKS - 1))
	blockdev --flushbufs "$base"
	cp "$(loop_file "$base")" "$TEST_TMP/old"
	origin_up o "$base"
	snap_up s1 "$base" /dev/mapper/cow P 8 id 1 create
}

# What a crash right after the last commit leaves in $TEST_TMP/store, and of the origin in old
# (the commit had not ended) or new (it had).
crash()
{
	local tries

	for ((tries = 0; tries < 5; tries++)); do
		new_store
		tag /dev/mapper/o 1 0 20
		tag /dev/mapper/o 1 39 39
		dm suspend --noflush cow
		cp "$(loop_file "$store")" "$TEST_TMP/store"
		cp "$(loop_file "$base")" "$TEST_TMP/new"
		dm resume cow
		close_all
		place=$(place_of "$TEST_TMP/store" 39 0)
		! in_doubt "$TEST_TMP/store" "$place" || break
	done
	ok "the crash came before the last commit was named durable" \
		in_doubt "$TEST_TMP/store" "$place"
}

# after_crash ORIGIN [STORE]: these are on the devices.
after_crash()
{
	put_back "$TEST_TMP/$1" "$base"
	put_back "${2:-$TEST_TMP/store}" "$store"
}

last_commit()
{
	crash
	cp "$TEST_TMP/store" "$TEST_TMP/rotten"
	spoil "$TEST_TMP/rotten" $((place * 4096 + 100)) 1

	after_crash new
	ok "a finished commit: opened" open_all 1
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old")" "" "a finished commit: believed"
	close_all

	after_crash new "$TEST_TMP/rotten"
	ok "damaged since it ended: opened" open_all 1
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old")" "eio 39-39 " "damaged since it ended: an error"
	like "$(kernel_log)" "wrong checksum, and the origin's 39 is another" \
		"damaged since it ended: the log says which chunk"
	close_all
	open_all 1
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old")" "eio 39-39 " "damaged since it ended: it stays so"
	close_all

	after_crash old "$TEST_TMP/rotten"
	ok "unfinished: opened" open_all 1
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old")" "" "unfinished: the snapshot is right"
	tag /dev/mapper/o 2 30 50
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old")" "" "unfinished: and stays right"
	close_all
	open_all 1
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old")" "" "unfinished: also when opened again"
	close_all
}

# renumber FILE BLOCK: as if the commit after the last one had written it, with nothing known
# durable but what the superblock names.
renumber()
{
	perl -e 'local $/; my ($file, $block) = @ARGV;
		sub crc {
			my ($c, $data) = @_;
			for (unpack("C*", $data)) {
				$c ^= $_;
				$c = $c >> 1 ^ ($c & 1 ? 0x82f63b78 : 0) for 1 .. 8;
			}
			return $c;
		}
		open(my $f, "+<", $file) or die "$file: $!";
		my $all = <$f>;
		my $last = 0;
		for (2 .. 7) {
			my $number = unpack("Q<", substr($all, $_ * 512 + 8, 8));
			$last = $number if $number > $last;
		}
		my $area = substr($all, $block * 512, 512);
		substr($area, 8, 16) = pack("Q<", $last + 1) . substr($all, 104, 8);
		my $seed = crc(crc(0xffffffff, substr($all, 48, 16)), pack("Q<", $block));
		substr($area, 0, 4) = pack("L<", crc($seed, substr($area, 4)));
		seek($f, $block * 512, 0);
		print $f $area' "$@"
}

# Not only the commit with the highest number is in doubt.
later_number()
{
	cp "$TEST_TMP/rotten" "$TEST_TMP/later"
	renumber "$TEST_TMP/later" 6
	after_crash old "$TEST_TMP/later"
	ok "a block with a later number: opened" open_all 1
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old")" "" "a block with a later number: right"
	close_all
}

# number_of NAME: its device number; there is no node before its first resume.
number_of()
{
	dmsetup info -c --noheadings --separator : -o major,minor "$1"
}

# LVM opens a store when its origin has a table, but not in use yet.
early()
{
	local way=$1 want=$2 real

	after_crash "$way" "$TEST_TMP/rotten"
	dmcreate real "" --notable
	real=$(number_of real)
	dmcreate o "" --notable
	dmcreate s1 "" --notable
	dmload real "0 $(sectors "$base") linear $base 0"
	dmload o "0 $(sectors "$base") cowsnap-origin $real 2 store /dev/mapper/cow"
	dmload s1 "0 $(sectors "$base") cowsnap $real /dev/mapper/cow P 8 2 id 1"
	ok "early, $way: opened" eval 'dm resume real && dm resume s1 && dm resume o'
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old")" "$want" "early, $way: as it should be"
	close_all
	dmremove real
}

# Closed without having been used: nothing is settled, nothing is lost.
early_unused()
{
	local real

	after_crash new "$TEST_TMP/rotten"
	dmcreate real "" --notable
	real=$(number_of real)
	dmload real "0 $(sectors "$base") linear $base 0"
	dmcreate s1 "" --notable
	dmload s1 "0 $(sectors "$base") cowsnap $real /dev/mapper/cow P 8 2 id 1"
	dmremove s1
	dmremove real
	open_all 1
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old")" "eio 39-39 " "early, not used: settled later"
	close_all
}

unreadable_suspect()
{
	after_crash old
	bad_store $((place * 8 + 3))
	ok "unfinished, unreadable: opened" open_all 1
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old")" "" "unfinished, unreadable: right"
	close_all
	clean_store

	after_crash new
	bad_store $((place * 8 + 3))
	ok "finished, unreadable: opened" open_all 1
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old")" "eio 39-39 " "finished, unreadable: an error"
	clean_store
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old")" "" "finished, readable again: right"
	close_all
}

read_only_store()
{
	after_crash old "$TEST_TMP/rotten"
	blockdev --setro "$store"
	dm suspend cow && dmload cow "$(whole_store)" --readonly && dm resume cow
	ok "read-only: opened" dmcreate s1 "$(snap_table "$base" /dev/mapper/cow P 8 id 1)" --readonly
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old")" "" "read-only: right"
	close_all
	ok "read-only: nothing is written" cmp "$(loop_file "$store")" "$TEST_TMP/rotten"
	blockdev --setrw "$store"
	clean_store
}

# superblocks WORDS HOW WHERE...: the store can still be opened.
superblocks()
{
	new_store
	tag /dev/mapper/o 1 0 20
	close_all
	cp "$(loop_file "$store")" "$TEST_TMP/store"
	cp "$(loop_file "$base")" "$TEST_TMP/new"

	flip "$TEST_TMP/store" 90
	flip "$TEST_TMP/store" $((512 + 90))
	after_crash new
	ok "one bit wrong in each superblock: opened" open_all 1
	close_all

	for sector in 0 1; do
		after_crash new
		bad_store --readonly $sector
		ok "sector $sector unreadable: opened" \
			dmcreate s1 "$(snap_table "$base" /dev/mapper/cow P 8 id 1)" --readonly
		is "$(odd /dev/mapper/s1 "$TEST_TMP/old")" "" "sector $sector unreadable: right"
		close_all
		clean_store
	done

	after_crash new
	bad_store --readonly 5
	ok "a table block unreadable: opened" \
		dmcreate s1 "$(snap_table "$base" /dev/mapper/cow P 8 id 1)" --readonly
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old")" "eio 21-255 " \
		"a table block unreadable: what is known is right"
	close_all
	clean_store

	after_crash new
	bad_store 0 1
	not_ok "both superblocks unreadable: refused" open_all 1
	not_ok "both superblocks unreadable: nor taken for transient" \
		snap_up s1 "$base" /dev/mapper/cow N
	close_all
	clean_store
}

# A store that could be repaired is not written over.
not_written_over()
{
	spoil "$TEST_TMP/store" 90 3
	spoil "$TEST_TMP/store" $((512 + 90)) 3
	after_crash new
	not_ok "both superblocks damaged: not taken for transient" snap_up s1 "$base" /dev/mapper/cow N
	ok "both superblocks damaged: nothing is written" cmp "$(loop_file "$store")" "$TEST_TMP/store"
	spoil "$TEST_TMP/store" 0 16
	after_crash new
	not_ok "only the name of the second is left: not taken for transient" \
		snap_up s1 "$base" /dev/mapper/cow N
	printf 'SnAp' | dd of="$store" conv=notrunc,fsync status=none
	not_ok "a store of dm-snapshot: not taken for transient" snap_up s1 "$base" /dev/mapper/cow N
	fill_letter "$store" A
	ok "something else: taken for transient" snap_up s1 "$base" /dev/mapper/cow N
	close_all
}

# Copy B of an earlier store, further back and with a higher number.
earlier_second()
{
	local other

	other=$(mkloop 4M --sector 4096)
	origin_up o "$base"
	snap_up s1 "$base" "$other" P 8 id 1 create
	for id in 2 3 4; do
		dm message s1 0 create "$id"
	done
	close_all
	new_store
	close_all
	dd if="$(loop_file "$other")" of="$(loop_file "$store")" bs=512 skip=8 seek=8 count=1 \
		conv=notrunc status=none
	spoil "$(loop_file "$store")" 0 64
	blockdev --flushbufs "$store"
	ok "the second superblock of an earlier store does not count" open_all 1
	close_all
}

# 12 snapshots, the last four of them in a chunk of records.
many_records()
{
	local id

	new_store
	for id in 2 3 4 5 6 7 8 9 10 11 12; do
		dm message o 0 create $id
		((id != 8)) || tag /dev/mapper/o 1 0 9
	done
	tag /dev/mapper/o 2 0 29
	close_all
	cp "$(loop_file "$store")" "$TEST_TMP/store"
	cp "$(loop_file "$base")" "$TEST_TMP/new"
	records=$(perl -e 'local $/; open(my $f, "<", $ARGV[0]); my $all = <$f>;
		for my $p (1 .. 204) {
			my $kind = ord(substr($all, (2 + int(($p - 1) / 34)) * 512 + 24 +
				(($p - 1) % 34) * 14 + 12, 1)) >> 4 & 7;
			if ($kind == 5) { print $p; last }
		}' "$TEST_TMP/store")
	cp "$TEST_TMP/store" "$TEST_TMP/flipped"
	flip "$TEST_TMP/flipped" $((records * 4096 + 40))
	after_crash new "$TEST_TMP/flipped"
	ok "one bit wrong in records: all snapshots are there" open_all 1 8 9 12
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old")" "" "one bit wrong in records: the first is right"
	close_all
}

# lost_records WORDS: those of snapshots 9 to 12.
lost_records()
{
	ok "$1: opened" open_all 1 8
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old")" "" "$1: the first snapshot is right"
	like "$(kernel_log)" 'these snapshots are lost' "$1: the log says it"
	not_ok "$1: those recorded there are gone" snap_up s9 "$base" /dev/mapper/cow P 8 id 9
	cp "$(loop_file "$base")" "$TEST_TMP/now"
	ok "$1: new ones are made" dm message o 0 create 9
	tag /dev/mapper/o 3 0 199
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old")" "" "$1: the first stays right"
	snap_up s9 "$base" /dev/mapper/cow P 8 id 9
	is "$(odd /dev/mapper/s9 "$TEST_TMP/now")" "" "$1: the new one is right"
	clean_store
	close_all
	open_all 1 9
	is "$(odd /dev/mapper/s9 "$TEST_TMP/now")" "" "$1: opened again the new one is right"
	not_ok "$1: opened again the lost ones are still gone" \
		snap_up s12 "$base" /dev/mapper/cow P 8 id 12
	close_all
}

# Another block is lost than the last time, and as many.
other_damage()
{
	new_store
	tag /dev/mapper/o 1 0 30
	close_all
	cp "$(loop_file "$store")" "$TEST_TMP/store"
	spoil "$(loop_file "$store")" $((2 * 512 + 100)) 4
	blockdev --flushbufs "$store"
	open_all 1
	like "$(odd /dev/mapper/s1 "$TEST_TMP/old")" '^eio' "a damaged table: the snapshot gives errors"
	cp "$(loop_file "$base")" "$TEST_TMP/now"
	snap_up s2 "$base" /dev/mapper/cow P 8 id 2 create
	tag /dev/mapper/o 2 0 20
	is "$(odd /dev/mapper/s2 "$TEST_TMP/now")" "" "a damaged table: a newer one is right"
	close_all
	dd if="$TEST_TMP/store" of="$(loop_file "$store")" bs=512 skip=2 seek=2 count=1 \
		conv=notrunc status=none
	spoil "$(loop_file "$store")" $((3 * 512 + 100)) 4
	blockdev --flushbufs "$store"
	open_all 1 2
	not_ok "another one damaged instead: no snapshot is wrong" \
		grep wrong <<<"$(odd /dev/mapper/s2 "$TEST_TMP/now")"
	close_all
}

base=$(mkloop 1M)
store=$(mkloop 4M)
dmcreate cow "$(whole_store)"
last_commit
later_number
early new "eio 39-39 "
early old ""
early_unused
unreadable_suspect
read_only_store
superblocks
not_written_over
earlier_second
many_records
cp "$TEST_TMP/store" "$TEST_TMP/spoilt"
spoil "$TEST_TMP/spoilt" $((records * 4096 + 40)) 8
after_crash new "$TEST_TMP/spoilt"
lost_records "damaged records"
after_crash new
bad_store --readonly $((records * 8))
ok "unreadable records: opened" \
	dmcreate s8 "$(snap_table "$base" /dev/mapper/cow P 8 id 8)" --readonly
is "$(odd /dev/mapper/s8 "$TEST_TMP/old")" "" "unreadable records: the eighth snapshot is right"
not_ok "unreadable records: those recorded there are gone" \
	dmcreate s9 "$(snap_table "$base" /dev/mapper/cow P 8 id 9)" --readonly
close_all
clean_store
other_damage
