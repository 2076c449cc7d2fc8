#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Damaged stores, opened by the kernel: flipped bits give errors or right data, never
# wrong data; and no forged count, pointer or record brings the kernel to a fall.
# COWSNAP_MUTATIONS says how many, COWSNAP_SEED which.

. "$(dirname "$0")/common.sh"

need perl
COUNT=${COWSNAP_MUTATIONS:-0}
SEED=${COWSNAP_SEED:-$RANDOM}
MUTATE=$(dirname "$TOOLS")/fuzz/cowmutate
CHUNKS=128
expect_log 'blk_update_request|Buffer I/O error|critical .* error'

((COUNT)) || skip_all "long: COWSNAP_MUTATIONS says how many"
[[ -x $MUTATE ]] || skip_all "no $MUTATE"
plan 5

make_store()
{
	base=$(mkloop 512K --sector "$1")
	store=$(mkloop 1M --sector "$1")
	fill "$base" "$TEST_TMP/now"
	cp "$TEST_TMP/now" "$TEST_TMP/image1"
	origin_up o "$base"
	snap_up s1 "$base" "$store" P 8 id 1 create
	put /dev/mapper/o "$TEST_TMP/now" 0 131072 262144 65536
	put_letter /dev/mapper/s1 S 8192 4096
	image /dev/mapper/s1 "$TEST_TMP/image1"
	image /dev/mapper/o "$TEST_TMP/image2"
	snap_up s2 "$base" "$store" P 8 id 2 create
	put /dev/mapper/o "$TEST_TMP/now" 65536 131072
	dmremove s1
	dmremove s2
	dmremove o
	cp "$(loop_file "$store")" "$TEST_TMP/whole"
}

# wrong NAME IMAGE: how many chunks can be read and are not as in the image. Chunk 2 is
# left out: what is written to a snapshot has no checksum.
wrong()
{
	blockdev --setra 0 "/dev/mapper/$1"
	perl -e 'open(my $d, "<", $ARGV[0]) or exit; open(my $i, "<", $ARGV[1]);
		my $wrong = 0;
		for my $n (0, 1, 3 .. $ARGV[2] - 1) {
			sysseek($d, $n * 4096, 0); sysseek($i, $n * 4096, 0);
			sysread($i, my $want, 4096);
			my $got = sysread($d, my $have, 4096);
			$wrong++ if defined($got) && $have ne $want;
		}
		print $wrong' "/dev/mapper/$1" "$2" "$CHUNKS"
}

# One to eight bits anywhere in what the store uses.
flip()
{
	perl -e 'srand($ARGV[1]); open(my $f, "+<", $ARGV[0]) or die;
		for (0 .. rand(8)) {
			my $at = int(rand($ARGV[2]));
			seek($f, $at, 0); read($f, my $byte, 1);
			seek($f, $at, 0); print $f chr(ord($byte) ^ 1 << int(rand(8)));
		}' "$(loop_file "$store")" "$1" "$2"
}

# open_all: the store by its origin, and the snapshots that it has.
open_all()
{
	dmsetup create o --table "$(origin_table "$base" store "$store")" 2>/dev/null || {
		dmsetup remove o 2>/dev/null
		return 1
	}
	local n

	for n in 1 2; do
		dmsetup create "s$n" --table "$(snap_table "$base" "$store" P 8 id "$n")" \
			2>/dev/null || dmsetup remove "s$n" 2>/dev/null
	done
}

close_all()
{
	local name

	for name in s1 s2 o; do
		[[ ! -e /dev/mapper/$name ]] || dmsetup remove --retry "$name"
	done
}

# flips BYTES: bits of the first so many bytes. Counts what came of it.
flips()
{
	local i n refused=0 bad=0 got

	for ((i = 0; i < COUNT; i++)); do
		cat "$TEST_TMP/whole" >"$(loop_file "$store")"
		flip "$((SEED + i))" "$1"
		if open_all; then
			for n in 1 2; do
				[[ -e /dev/mapper/s$n ]] || continue
				got=$(wrong "s$n" "$TEST_TMP/image$n")
				((${got:-0} == 0)) && continue
				bad=$((bad + 1))
				diag "seed $((SEED + i)), snapshot $n: $got chunks are wrong"
			done
		else
			refused=$((refused + 1))
		fi
		close_all
	done
	diag "seed $SEED: $COUNT stores, $refused refused"
	is "$bad" 0 "$2"
}

# Forged with the right checksums, so only that it ends well is asked for.
forgeries()
{
	local i refused=0

	for ((i = 0; i < COUNT; i++)); do
		cat "$TEST_TMP/whole" >"$(loop_file "$store")"
		"$MUTATE" --seed "$((SEED + i))" --count 2 "$(loop_file "$store")" >/dev/null
		if open_all; then
			dd if=/dev/zero of=/dev/mapper/o bs=64K count=4 seek=3 conv=notrunc \
				oflag=direct status=none 2>/dev/null
			for n in 1 2; do
				[[ ! -e /dev/mapper/s$n ]] ||
					dd if="/dev/mapper/s$n" of=/dev/null bs=64K iflag=direct \
						status=none 2>/dev/null
			done
		else
			refused=$((refused + 1))
		fi
		close_all
	done
	pass "$1: $COUNT stores, $refused refused, seed $SEED"
}

make_store 512
flips 8192 "flipped bits in tables and superblocks, blocks of 512"
flips 400000 "flipped bits all over the store"
forgeries "forged stores, blocks of 512"
make_store 4096
flips 16384 "flipped bits, blocks of 4096"
forgeries "forged stores, blocks of 4096"
