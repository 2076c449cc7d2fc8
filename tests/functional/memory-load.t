#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# An origin of 16 TiB costs no memory by itself, what is remembered of it no more than 16
# bytes a chunk, and a store is opened with few, large reads.

. "$(dirname "$0")/common.sh"

need fio
need_target zero
TIB=2147483648	# in sectors
# A leaf of the map reaches over 16 GiB of these chunks at most, so that there are 1024: with fewer
# exceptions what a leaf takes by itself counts for too much in what each of them does.
COUNT=40000

plan 21

# Zeroes that stay zeroes, but for a stretch in the middle.
big_table()
{
	local real

	real=$(sectors "$part")
	printf '0 %d zero\n%d %d linear %s 0\n%d %d zero\n' \
		$((8 * TIB)) $((8 * TIB)) "$real" "$part" \
		$((8 * TIB + real)) $((8 * TIB - real))
}

# write_at_random FIO_WORDS...
write_at_random()
{
	fio --name=w --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth=64 \
		--filename=/dev/mapper/o --allow_file_create=0 --norandommap \
		--random_generator=tausworthe64 --io_size=$((COUNT * 4))k "$@" >"$TEST_TMP/fio.log" 2>&1 ||
		{ cat "$TEST_TMP/fio.log" && false; }
}

# Number and sectors of the reads of the store's device so far.
store_reads()
{
	local reads count

	read -r reads _ count _ <"$(sysfs "$store")/stat"
	echo "$reads $count"
}

bytes_each()
{
	echo $(($(key_of s memory) * 100 / $(key_of s exceptions)))
}

# try WORDS FIO_WORDS...: write, look, close, open, look.
try()
{
	local words=$1 before after exceptions reads

	shift
	store=$(mkloop 512M)
	fill_letter "$part" A
	ok "$words: an origin of 16 TiB is made" \
		dmcreate o "0 $((16 * TIB)) cowsnap-origin /dev/mapper/big"
	ok "$words: a snapshot of 16 TiB is made" snap_up s /dev/mapper/big "$store" P 8
	ok "$words: the new snapshot takes next to no memory" [ "$(key_of s memory)" -le 4096 ]
	ok "$words: the origin is written" write_at_random "$@"
	put_letter /dev/mapper/o B $((8 * TIB * 512 + 4096)) 65536
	exceptions=$(key_of s exceptions)
	diag "$words: $exceptions exceptions in $(key_of s memory) bytes"
	ok "$words: an exception takes at most 16 bytes" [ "$(bytes_each)" -le 1600 ]
	dmremove s
	dmremove o
	read -r before reads < <(store_reads)
	ok "$words: the store is opened again" snap_up s /dev/mapper/big "$store" P 8
	read -r after count < <(store_reads)
	diag "$words: opened with $((after - before)) reads of $((count - reads)) sectors, $(key_of s memory) bytes"
	is "$(key_of s exceptions)" "$exceptions" \
		"$words: the store opened again has all its exceptions"
	ok "$words: an exception of the store opened again takes at most 16 bytes" \
		[ "$(bytes_each)" -le 1600 ]
	# One for each segment; they are small at first, 256 KiB in the end.
	ok "$words: a few large reads open the store" [ $((after - before)) -le 130 ]
	ok "$words: the snapshot is right when opened again" \
		all_letter /dev/mapper/s A $((8 * TIB * 512)) "$(blockdev --getsize64 "$part")"
	dmremove s
}

# Around 12000 exceptions at random the root of the map's tree is full: it has been freed
# in that shape, too.
full_roots()
{
	local COUNT

	store=$(mkloop 64M)
	dmcreate nothing "0 $((2 * 1048576)) zero"
	for COUNT in 11000 11500 12000 12500 13000; do
		dmcreate o "0 $((2 * 1048576)) cowsnap-origin /dev/mapper/nothing"
		snap_up s /dev/mapper/nothing "$store" N 8 || return
		write_at_random --size=1g || return
		dmremove s
		dmremove o
	done
}

part=$(mkloop 4M)
ok "maps with a full root come and go" full_roots
dmcreate big "$(big_table)"
try "here and there" --size=16t
try "in one place" --size=1g
