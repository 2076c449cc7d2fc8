#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Bits that flip in a closed store give an error for exactly what they hit, or nothing at
# all, never wrong data; and a store that is not whole, or none, is refused untouched.

. "$(dirname "$0")/common.sh"

need perl
CHUNKS=256

plan 91

# Chunk n of version v is full of words that say so.
# tag FILE VERSION FROM TO: write them.
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

# place_of CHUNK VERSION: the byte in the store where that is kept.
place_of()
{
	perl -e 'local $/; open(my $f, "<", $ARGV[0]); my $all = <$f>;
		my $at = index($all, sprintf("chunk %4d v%d,", $ARGV[1], $ARGV[2]));
		print $at' "$(loop_file "$store")" "$@"
}

# flip BIT...: of the store, counted from its start.
flip()
{
	perl -e 'open(my $f, "+<", shift) or die "$!";
		for (@ARGV) {
			seek($f, $_ >> 3, 0); read($f, my $byte, 1);
			seek($f, $_ >> 3, 0); print $f chr(ord($byte) ^ 1 << ($_ & 7));
		}' "$(loop_file "$store")" "$@"
}

# Two snapshots; some of their chunks are shared, some at home.
make_store()
{
	base=$(mkloop 1M --sector "$1")
	store=$(mkloop 3M --sector "$1")
	tag "$base" 0 0 $((CHUNKS - 1))
	blockdev --flushbufs "$base"
	cp "$(loop_file "$base")" "$TEST_TMP/old1"
	origin_up o "$base"
	snap_up s1 "$base" "$store" P 8 id 1 create
	tag /dev/mapper/o 1 0 99
	cp "$(loop_file "$base")" "$TEST_TMP/old2"
	snap_up s2 "$base" "$store" P 8 id 2 create
	tag /dev/mapper/o 2 50 149
	cp "$(loop_file "$base")" "$TEST_TMP/now"
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old1")$(odd /dev/mapper/s2 "$TEST_TMP/old2")" "" \
		"$1: all is well at first"
	down
	cp "$(loop_file "$store")" "$TEST_TMP/good"
	cp "$(loop_file "$base")" "$TEST_TMP/home"
}

# The store, and the origin, as they were.
mend()
{
	dd if="$TEST_TMP/good" of="$(loop_file "$store")" bs=1M conv=notrunc status=none
	dd if="$TEST_TMP/home" of="$(loop_file "$base")" bs=1M conv=notrunc status=none
	blockdev --flushbufs "$store"
	blockdev --flushbufs "$base"
}

up()
{
	origin_up o "$base" && snap_up s1 "$base" "$store" P 8 id 1 &&
		snap_up s2 "$base" "$store" P 8 id 2
}

down()
{
	dmremove s1
	dmremove s2
	dmremove o
}

# read_at DEV OFFSET BYTES
read_at()
{
	get "$@" >/dev/null
}

all_is_right()
{
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old1")" "" "$1: the first is right"
	is "$(odd /dev/mapper/s2 "$TEST_TMP/old2")" "" "$1: the second is right"
}

# ---- the data of a chunk ----

bad_data()
{
	local place

	place=$(place_of 10 0)
	flip $(((place + 1234) * 8 + 5))
	up
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old1")" "eio 10-10 " "$1, data: exactly that chunk gives an error"
	is "$(odd /dev/mapper/s2 "$TEST_TMP/old2")" "" "$1, data: another snapshot is right"
	like "$(kernel_log)" 'chunk 10 of the origin.*wrong checksum' \
		"$1, data: the log says which"
	ok "$1, data: the status counts it" [ "$(key_of s1 bad_checksums)" -gt 0 ]
	not_ok "$1, data: a large read gives an error" read_at /dev/mapper/s1 0 1048576
	not_ok "$1, data: so does one of a part of the chunk" \
		read_at /dev/mapper/s1 $((10 * 4096)) "$1"
	ok "$1, data: the chunks around it are read" read_at /dev/mapper/s1 0 40960
	like "$(status s1)" '^[0-9]+/' "$1, data: the snapshot lives on"
	tag /dev/mapper/o 3 10 12
	is "$(odd /dev/mapper/s1 "$TEST_TMP/old1")" "eio 10-10 " "$1, data: also when the origin is written"
	is "$(odd /dev/mapper/s2 "$TEST_TMP/old2")" "" "$1, data: and the second is right"
	down
	mend
}

merge_failed()
{
	[[ $(status o) = "Merge failed" ]]
}

bad_merge()
{
	local place

	place=$(place_of 10 0)
	flip $(((place + 1234) * 8 + 5))
	dmcreate o "0 $(sectors "$base") cowsnap-merge $base $store P 8 2 id 1"
	ok "$1, data: it is not merged" wait_for 20 merge_failed
	is "$(odd /dev/mapper/o "$TEST_TMP/old1")" "eio 10-10 " "$1, data: the origin reads as the snapshot but for it"
	dmremove o
	mend
}

# ---- tables ----

# none_wrong ODD WORDS: errors there may be.
none_wrong()
{
	is "$(grep -o 'wrong [0-9-]*' <<<"$1" | tr '\n' ' ')" "" "$2"
}

# one_bit WORDS BIT
one_bit()
{
	flip "$2"
	up
	all_is_right "$1"
	is "$(key_of s1 damaged)" 0 "$1: nothing is damaged"
	down
	mend
}

# several_bits WORDS BIT...
several_bits()
{
	local words=$1 seen

	shift
	flip "$@"
	ok "$words: the store is opened" up
	seen=$(odd /dev/mapper/s1 "$TEST_TMP/old1")
	like "$seen" 'eio' "$words: some cannot be read"
	none_wrong "$seen" "$words: nothing of the first is wrong"
	seen=$(odd /dev/mapper/s2 "$TEST_TMP/old2")
	none_wrong "$seen" "$words: nothing of the second is wrong"
	is "$(key_of s1 damaged)" 1 "$words: one block is damaged"
	like "$(kernel_log)" 'table at sector [0-9]+ is damaged' "$words: the log says which"
	ok "$words: a new snapshot is made" dm message o 0 create 3
	tag /dev/mapper/o 3 20 $((CHUNKS - 1))
	snap_up s3 "$base" "$store" P 8 id 3
	is "$(odd /dev/mapper/s3 "$TEST_TMP/now")" "" "$words: it is right"
	seen=$(odd /dev/mapper/s1 "$TEST_TMP/old1")$(odd /dev/mapper/s2 "$TEST_TMP/old2")
	none_wrong "$seen" "$words: and nothing of the others wrong"
	dmremove s3
	down
	up
	snap_up s3 "$base" "$store" P 8 id 3
	is "$(odd /dev/mapper/s3 "$TEST_TMP/now")" "" "$words: it is right when opened again"
	seen=$(odd /dev/mapper/s1 "$TEST_TMP/old1")$(odd /dev/mapper/s2 "$TEST_TMP/old2")
	none_wrong "$seen" "$words: and nothing of the others wrong"
	dmremove s3
	down
	mend
}

# ---- superblocks ----

# refused WORDS REGEX STORE: with these words, and not a byte of it is changed.
refused()
{
	md5sum <"$(loop_file "$3")" >"$TEST_TMP/sum"
	not_ok "$1: refused" snap_up s1 "$base" "$3" P 8 id 1
	like "$(kernel_log | tail -n 4)" "$2" "$1: with words"
	is "$(md5sum <"$(loop_file "$3")")" "$(<"$TEST_TMP/sum")" "$1: and left as it was"
}

bad_supers()
{
	local second=$1

	flip $((50 * 8))
	up
	all_is_right "$1, first superblock"
	down
	mend
	flip $(((second + 50) * 8 + 7))
	up
	all_is_right "$1, second superblock"
	down
	mend
	flip $((50 * 8)) $(((second + 50) * 8 + 7))
	refused "$1, both superblocks" "both superblocks are damaged: run cowsnap repair" "$store"
	mend
}

for sector in 512 4096; do
	make_store "$sector"
	bad_data "$sector"
	bad_merge "$sector"
	if ((sector == 512)); then
		one_bit "512, a slot's bit" $((1100 * 8 + 3))
		one_bit "512, a checksum's bit" $((1024 * 8 + 30))
		several_bits "512, several bits" $((1600 * 8)) $((1700 * 8 + 1)) $((1800 * 8 + 2))
	else
		one_bit "4096, a slot's bit" $((700 * 8 + 3))
		several_bits "4096, several bits" $((700 * 8)) $((900 * 8 + 1)) $((1200 * 8 + 2))
	fi
	bad_supers "$sector"
done

whole_base=$base
whole_store=$store

# ---- a snapshot's own version is in the block that is lost, the copied one is not ----

base=$(mkloop 1M)
store=$(mkloop 3M)
tag "$base" 0 0 $((CHUNKS - 1))
blockdev --flushbufs "$base"
cp "$(loop_file "$base")" "$TEST_TMP/old1"
cp "$(loop_file "$base")" "$TEST_TMP/old2"
origin_up o "$base"
snap_up s1 "$base" "$store" P 8 id 1 create
snap_up s2 "$base" "$store" P 8 id 2 create
# Blocks 2 to 5 have 34 slots each, so what is written to the snapshot is in block 6.
tag /dev/mapper/o 1 0 149
tag /dev/mapper/s2 7 5 5
tag "$TEST_TMP/old2" 7 5 5
is "$(odd /dev/mapper/s2 "$TEST_TMP/old2")" "" "own version: all is well at first"
down
flip $((6 * 512 * 8 + 900)) $((6 * 512 * 8 + 1900)) $((6 * 512 * 8 + 2900))
up
seen=$(odd /dev/mapper/s2 "$TEST_TMP/old2")
like "$seen" 'eio 0-' "own version: what may have had one cannot be read"
none_wrong "$seen" "own version: the copied one is not shown in its place"
none_wrong "$(odd /dev/mapper/s1 "$TEST_TMP/old1")" "own version: nothing of the other is wrong"
down
not_ok "own version: it is not merged" \
	dmsetup create o --table "0 $(sectors "$base") cowsnap-merge $base $store P 8 2 id 2"
dmsetup remove o 2>/dev/null

# ---- what does not fit, or is none ----

store=$whole_store
base=$whole_base

full=$(sectors "$store")
truncated=$(mkloop 2M)
dd if="$TEST_TMP/good" of="$(loop_file "$truncated")" bs=1M count=2 conv=notrunc status=none
refused "truncated" "had $full sectors and has 4096 now" "$truncated"
whole=$base
base=$(mkloop 512K --sector 4096)
refused "another origin" "was made for an origin of 2048 sectors, .* has 1024" "$store"
base=$whole
other=$(mkloop 1M)
printf 'SnAp\1\0\0\0' | dd of="$(loop_file "$other")" conv=notrunc status=none
refused "dm-snapshot's" "holds a snapshot of dm-snapshot" "$other"
mkfs.ext4 -q -F "$other" 2>/dev/null
blockdev --flushbufs "$other"
refused "a filesystem" "holds something else: zero its first 4 KiB" "$other"
printf 'nothing' | dd of="$(loop_file "$other")" bs=1 seek=100 conv=notrunc status=none
refused "anything" "holds something else: zero its first 4 KiB" "$other"
