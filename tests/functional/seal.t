#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A sealed origin shows what it had, through its store alone: it is read, written, flushed, copied
# and merged as ever, and nobody takes its device for what it was. An origin that was written
# without its store is noticed after the module was loaded anew. Sealing and unsealing that were
# interrupted are ended, and nothing is lost.

. "$(dirname "$0")/common.sh"

need_command
need_target flakey
expect_log 'blk_update_request|Buffer I/O error|critical .* error|I/O error, dev|lost async page write'

MIB=1048576
home=/dev/mapper/home
cow=/dev/mapper/cow

seal()
{
	"$tool" seal "$home" "$cow"
}

unseal()
{
	"$tool" unseal "$@" "$home" "$cow"
}

# gives_up OPTION: it is unsealed, and says that snapshots are lost.
gives_up()
{
	local rc=0

	unseal "$@" || rc=$?
	((rc == 1))
}

# has_state STATE: does the store say that its origin is sealed? 0: it is not.
has_state()
{
	[[ $("$tool" dump "$cow" 2>/dev/null | sed -n 's/^seal_state //p') == "${1#0}" ]]
}

# sector_is_sealed NUMBER
sector_is_sealed()
{
	get "$base" $(($1 * 512)) 512 >"$TEST_TMP/sector"
	cmp -n 15 "$TEST_TMP/sector" <(printf 'dm-cowsnap seal\n')
}

open_origin()
{
	origin_up o "$home" store "$cow"
}

# begin CHUNK: an origin with a snapshot, with what both have in files. Nothing is in use.
begin()
{
	chunk=$1
	all_down
	dd if=/dev/zero of="$store" bs=1M count=24 oflag=direct status=none
	blockdev --flushbufs "$store"
	fill "$base" "$TEST_TMP/now"
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	origin_up o "$home"
	snap_up s "$home" "$cow" P "$chunk"
	put /dev/mapper/o "$TEST_TMP/now" 4096 4096 $MIB 65536
	all_down
	origin_up o "$home" store "$cow"
	dmremove o
	blockdev --flushbufs "$base"
}

# home_is_whole: without a store the origin's device has everything.
home_is_whole()
{
	blockdev --flushbufs "$base"
	same "$base" "$TEST_TMP/now"
}

works()
{
	local c=$1 words="chunks of $1 sectors"

	begin "$c"
	ok "$words: an origin is sealed" seal
	like "$(<"$TEST_TMP/out")" 'should that be lost' "$words: what is lost with the store is said before"
	ok "$words: its device begins with a seal" sector_is_sealed 0
	ok "$words: and has one where btrfs begins" sector_is_sealed 128
	get "$base" 0 $MIB >"$TEST_TMP/sealed"
	reload_module
	kernel_refuses 'sealed by store .*: name that' "$words: without its store the origin is refused by name" \
		origin_up o "$home"
	kernel_refuses 'sealed by store' "$words: with another store, a new one, it is refused" \
		snap_up s "$home" "$other" P "$c"
	# It was made when its table was loaded.
	dd if=/dev/zero of="$other" bs=8192 count=1 oflag=direct status=none
	kernel_refuses 'sealed by store' "$words: with a transient one it is refused" \
		snap_up s "$home" "$other" N "$c"

	ok "$words: the snapshot is opened" snap_up s "$home" "$cow" P "$c"
	ok "$words: the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
	ok "$words: the origin is opened with its store" open_origin
	ok "$words: the origin is as it was" same /dev/mapper/o "$TEST_TMP/now"
	kernel_refuses 'sealed by store' "$words: beside it another store is refused" \
		snap_up s2 "$home" "$other" N "$c"
	# In what is sealed, across its end for each size of chunks, and behind it.
	put /dev/mapper/o "$TEST_TMP/now" 0 4096 512 1024 66560 8192 126976 16384 0 262144 \
		512 300032 200704 4096 69120 1024
	ok "$words: what is written to the origin is there" same /dev/mapper/o "$TEST_TMP/now"
	ok "$words: the snapshot does not change" same /dev/mapper/s "$TEST_TMP/old"
	# What begins in front of the end and goes beyond it is read from both.
	ok "$words: large reads go across the end" cmp <(get /dev/mapper/o 0 $MIB $MIB) \
		<(head -c $MIB "$TEST_TMP/now")
	blockdev --flushbufs "$base"
	ok "$words: the seal stays" cmp -n 69632 "$base" "$TEST_TMP/sealed"
	put /dev/mapper/s "$TEST_TMP/old" 8192 4096 65536 8192 512 512
	ok "$words: the snapshot can be written there" same /dev/mapper/s "$TEST_TMP/old"
	ok "$words: a second snapshot is made" dm message o 0 create 2
	cp "$TEST_TMP/now" "$TEST_TMP/old2"
	put /dev/mapper/o "$TEST_TMP/now" 0 512 65536 4096 12288 4096 131072 4096
	blkdiscard -o 0 -l 65536 /dev/mapper/o 2>/dev/null
	ok "$words: discards leave what is sealed alone" same /dev/mapper/o "$TEST_TMP/now"
	remove_and_reload s o
	ok "$words: after a reload the origin is as it was" open_origin
	ok "$words: after a reload its content is right" same /dev/mapper/o "$TEST_TMP/now"
	snap_up s "$home" "$cow" P "$c"
	snap_up s2 "$home" "$cow" P "$c" id 2
	ok "$words: after a reload the first snapshot is right" same /dev/mapper/s "$TEST_TMP/old"
	ok "$words: after a reload the second snapshot is right" same /dev/mapper/s2 "$TEST_TMP/old2"
	dmremove s2

	dmreload o "0 $(sectors "$home") cowsnap-merge $home $cow P $c 2 id 2"
	ok "$words: a merge ends" wait_for 100 merged
	cp "$TEST_TMP/old2" "$TEST_TMP/now"
	ok "$words: the origin is what the second snapshot was" same /dev/mapper/o "$TEST_TMP/now"
	dmreload o "$(origin_table "$home" store "$cow")"
	ok "$words: the origin is right after the merge" same /dev/mapper/o "$TEST_TMP/now"
	ok "$words: the first snapshot is right after the merge" same /dev/mapper/s "$TEST_TMP/old"
	all_down

	ok "$words: the store is clean" "$tool" check "$cow"
	ok "$words: it is unsealed" unseal
	ok "$words: all is at home again" home_is_whole
	ok "$words: the origin can be used without a store" origin_up o "$home"
	dmremove o
	ok "$words: the snapshot is opened after it was unsealed" snap_up s "$home" "$cow" P "$c"
	ok "$words: the snapshot is right after it was unsealed" same /dev/mapper/s "$TEST_TMP/old"
	dmremove s
}

# traced_flushes DEV: how many flushes an fsync of the origin causes there.
traced_flushes()
{
	put_letter /dev/mapper/o B 0 4096
	trace_start "$1" bio_queue || return
	sync -d /dev/mapper/o
	trace_stop | grep -c '^bio_queue F'
}

flushes()
{
	begin 8
	seal
	open_origin
	# Nothing is committed from then on, and after a while nothing is noted.
	dm message o 0 delete 0
	sleep 4
	ok "an fsync of the origin flushes its device" [ "$(traced_flushes "$base")" -ge 1 ]
	ok "an fsync of the origin flushes the store as well" [ "$(traced_flushes "$store")" -ge 1 ]
	dmremove o
}

foreign()
{
	begin 8
	seal
	put_letter "$base" Z 69120 512
	reload_module
	kernel_refuses 'written without its store.*sector 135.*keep-home' \
		"a write without the store is noticed after a reload" open_origin
	kernel_refuses 'written without its store' "so it is by a snapshot" snap_up s "$home" "$cow" P 8
	refuses unseal 'keep-home' "unseal leaves it to a person"
	cp "$(loop_file "$base")" "$TEST_TMP/base"
	cp "$(loop_file "$store")" "$TEST_TMP/store"
	ok "what is in the store can be kept, at the cost of the snapshots" gives_up --keep-store
	ok "then the origin is what it was" home_is_whole
	snap_up s "$home" "$cow" P 8
	is "$(status s)" Invalid "then the snapshot is invalid"
	dmremove s

	dd if="$TEST_TMP/base" of="$base" bs=1M conv=fsync status=none
	dd if="$TEST_TMP/store" of="$store" bs=1M conv=fsync status=none
	blockdev --flushbufs "$base"
	blockdev --flushbufs "$store"
	ok "what is at home can be kept, at the cost of the snapshots" gives_up --keep-home
	letters Z 512 | dd of="$TEST_TMP/now" bs=512 seek=135 conv=notrunc status=none
	ok "then the origin has what was written to it" home_is_whole
	snap_up s "$home" "$cow" P 8
	is "$(status s)" Invalid "the snapshot is invalid as well"
	dmremove s
}

# A copy of the origin from an earlier time, with a store that went on.
old_copy()
{
	begin 8
	seal
	cp "$(loop_file "$base")" "$TEST_TMP/base"
	"$tool" unseal "$home" "$cow"
	seal
	dd if="$TEST_TMP/base" of="$base" bs=1M conv=fsync status=none
	blockdev --flushbufs "$base"
	kernel_refuses 'has seal [0-9]+.*old copy' "an origin with an older seal is refused" open_origin
	refuses unseal 'old copy' "unseal refuses it as well"
}

interrupted()
{
	local from

	for from in 0 64; do
		begin 8
		swap_table home "$(partly_table "$base" "$from" 200 flakey "$base" "$from" 0 1000 1 error_writes)"
		not_ok "home fails from sector $from on: sealing fails" seal
		swap_table home "$(linear_table "$base")"
		blockdev --flushbufs "$home"
		ok "from sector $from on: the store says that it had begun" has_state 1
		if ((from)); then
			kernel_refuses 'sealed by store' "from sector $from on: half a seal is one" origin_up o "$home"
		else
			ok "from sector $from on: what has no seal yet is not refused" origin_up o "$home"
			dmremove o
		fi
		ok "from sector $from on: the store is opened, and undoes it" open_origin
		ok "from sector $from on: the origin is right" same /dev/mapper/o "$TEST_TMP/now"
		dmremove o
		ok "from sector $from on: the store says so" has_state 0
		ok "from sector $from on: all is at home" home_is_whole
	done

	for from in 0 64; do
		begin 8
		seal
		swap_table home "$(partly_table "$base" "$from" 200 flakey "$base" "$from" 0 1000 1 error_writes)"
		not_ok "home fails from sector $from on: unsealing fails" unseal
		ok "from sector $from on: the store says that it was being unsealed" has_state 3
		reload_module
		kernel_refuses 'cannot end this' "from sector $from on: as long as home fails it is not opened" \
			open_origin
		ok "from sector $from on: nor does the store say that it was" has_state 3
		swap_table home "$(linear_table "$base")"
		blockdev --flushbufs "$home"
		ok "from sector $from on: the store is opened, and ends it" snap_up s "$home" "$cow" P 8
		ok "from sector $from on: the snapshot is right" same /dev/mapper/s "$TEST_TMP/old"
		dmremove s
		ok "from sector $from on: it is not sealed any more" has_state 0
		ok "from sector $from on: what was unsealed is all at home" home_is_whole
	done
}

# A copy of the store says the same of itself as the store.
beside()
{
	begin 8
	seal
	dd if="$store" of="$copy" bs=1M conv=fsync status=none
	blockdev --flushbufs "$copy"
	open_origin
	kernel_refuses 'sealed by store .* not by its copy' "beside its store a copy of that is refused" \
		snap_up s2 "$home" "$copy" P 8
	put_letter /dev/mapper/o Q 0 4096
	letters Q 4096 | dd of="$TEST_TMP/now" bs=4096 conv=notrunc status=none
	ok "and the origin is still in its store" same /dev/mapper/o "$TEST_TMP/now"
	dmremove o
	ok "so it is when it is opened again" open_origin
	ok "with all that was written" same /dev/mapper/o "$TEST_TMP/now"
	dmremove o
	unseal
}

# cut_short: unsealing has just begun.
cut_short()
{
	begin 8
	seal
	cp "$(loop_file "$base")" "$TEST_TMP/base"
	unseal
	seal
	swap_table home "$(partly_table "$base" 0 200 flakey "$base" 0 0 1000 1 error_writes)"
	not_ok "unsealing is cut short" unseal
	swap_table home "$(linear_table "$base")"
}

# What an interrupted seal has at home is its own seal, or the content.
not_its_own()
{
	cut_short
	dd if="$TEST_TMP/base" of="$base" bs=1M conv=fsync status=none
	blockdev --flushbufs "$base" "$home"
	kernel_refuses 'has seal [0-9]+.*old copy' "while it is unsealed, an origin with an older seal is refused" \
		open_origin
	ok "with an older seal: the store has not forgotten it" has_state 3
	refuses unseal 'old copy' "with an older seal: unseal refuses it"
	ok "with an older seal: it has not forgotten it then either" has_state 3
	ok "with an older seal: what the store has can be kept" gives_up --keep-store
	ok "with an older seal: then all is at home" home_is_whole

	cut_short
	dd if=/dev/zero of="$base" bs=4096 count=17 conv=fsync status=none
	blockdev --flushbufs "$base" "$home"
	kernel_refuses 'without its store .* or is another' "while it is unsealed, another device is refused" \
		open_origin
	ok "with another device: the store has not forgotten it" has_state 3
	refuses unseal 'another device' "with another device: unseal refuses it"
	ok "with another device: what the store has can be kept" gives_up --keep-store
	ok "with another device: then all is at home" home_is_whole

	cut_short
	blockdev --flushbufs "$home"
	blockdev --setro "$home"
	kernel_refuses 'unsealed, and .* is read-only: make it writable' "an origin that is read-only is not opened" \
		snap_up s "$home" "$cow" P 8
	blockdev --setrw "$home"
	ok "as soon as it can be written it is" snap_up s "$home" "$cow" P 8
	dmremove s
	ok "then all of it is at home" home_is_whole
}

# unreadable FROM: home, from a sector on.
unreadable()
{
	swap_table home "$(partly_table "$base" "$1" 200 error)"
	blockdev --flushbufs "$home"
}

readable()
{
	swap_table home "$(linear_table "$base")"
	blockdev --flushbufs "$home"
}

cannot_be_read()
{
	begin 8
	seal
	unreadable 128
	kernel_refuses 'seal from sector 128 on cannot be read.*keep-store' "a seal that cannot be read is said to be one" \
		open_origin
	refuses unseal 'cannot be read; --keep-store' "and so does unseal say"
	# It may be a disk that is broken, and was never sealed.
	unreadable 0
	ok "an origin that cannot be read where it begins is used as it is" origin_up o "$home"
	readable
	kernel_refuses 'a table shows it without' "but not beside its store" snap_up s "$home" "$cow" P 8
	dmsetup suspend o
	kernel_refuses 'sealed by store .*: name that' "and not when it can be read and is resumed" \
		dmsetup resume o
	dmremove o
	ok "without that it is opened" open_origin
	ok "and has what it had" same /dev/mapper/o "$TEST_TMP/now"
	dmremove o
	unseal
}

# loads TABLE: it is loaded, without waiting for anything.
loads()
{
	dmsetup create o --notable
	dmsetup load o --table "$1" &
	wait_for 10 has_ended $!
}

suspended()
{
	begin 8
	seal
	dmsetup suspend home
	ok "while its device is suspended a table of an origin is loaded" loads "$(origin_table "$home" store "$cow")"
	dmsetup resume home
	ok "and resumed afterwards" dmsetup resume o
	ok "with what it had" same /dev/mapper/o "$TEST_TMP/now"
	dmremove o
	dmsetup suspend home
	ok "so is one without its store" loads "$(origin_table "$home")"
	dmsetup resume home
	kernel_refuses 'sealed by store .*: name that' "but it is not resumed" dmsetup resume o
	dmremove o
	unseal
}

keeps()
{
	"$tool" remove --keep home
}

# The origin is where its device was.
in_place()
{
	begin 8
	seal
	ok "an origin takes its device's place" "$tool" create --existing "$home" "$cow"
	ok "there it is what it was" same "$home" "$TEST_TMP/now"
	exec 7<"$home"
	refuses keeps 'in use' "while that is in use it does not get its seals back"
	ok "and is what it was" same "$home" "$TEST_TMP/now"
	exec 7<&-
	ok "when nobody uses it any more it does" keeps
	unseal
	ok "and is unsealed there" home_is_whole
}

without_store()
{
	begin 8
	seal
	not_ok "without its store an origin can be unsealed" "$tool" unseal --without-store "$home"
	blockdev --flushbufs "$base"
	ok "then zeroes are where the seal was" all_letter "$base" 0 0 69632
	ok "and what comes behind is as it was" cmp -i 69632 "$base" "$TEST_TMP/now"
	ok "then it can be used" origin_up o "$home"
	dmremove o
	kernel_refuses 'written without its store' "with the store it is refused from then on" open_origin
}

base=$(mkloop 16M)
store=$(mkloop 24M)
other=$(mkloop 16M)
copy=$(mkloop 24M)
dmcreate home "$(linear_table "$base")"
dmcreate cow "$(linear_table "$store")"

for c in 8 128; do
	works "$c"
done
if [[ $(tracefs) ]]; then
	flushes
else
	skip "an fsync of the origin flushes its device" "no block trace events in this kernel"
	skip "an fsync of the origin flushes the store as well" "no block trace events in this kernel"
fi
foreign
old_copy
interrupted
beside
not_its_own
cannot_be_read
suspended
in_place
without_store
all_down
dmremove home
dmremove cow
done_testing
