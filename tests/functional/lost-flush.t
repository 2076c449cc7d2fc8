#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A device loses writes and tells it once, to a flush of somebody else: what relied on them is
# written again, or fails, and users hear of it.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/settle.sh"

expect_log 'a flush failed, copies under way may be lost|cannot be flushed|stays there|are invalid'

# Below cow and home stand late devices: NAME_mid gets their writes, and NAME_bad their flushes.
# mkmid NAME DEV
mkmid()
{
	local end=$(($(sectors "$2") - 16))

	dmcreate "$1_mid" "$(linear_table "$2")"
	dmcreate "$1_bad" "0 8 linear $2 $end"
}

# late NAME WRITE [FLUSH]: its writes take so many ms, its flushes none, or so many.
late()
{
	local mid=/dev/mapper/$1_mid end

	end=$(($(sectors "$mid") - 16))
	swap_table "$1" "0 $end delay $mid 0 0 $mid 0 $2 $mid 0 ${3:-0}
$end 8 linear /dev/mapper/$1_bad 0
$((end + 8)) 8 linear $mid $((end + 8))"
}

# loses NAME DEV: what is written is gone, and each flush tells of it.
loses()
{
	swap_table "$1_mid" "0 $(sectors "$2") flakey $2 0 0 1000 1 drop_writes"
	swap_table "$1_bad" "0 8 flakey $2 0 0 1000 1 error_writes"
	lost_before=$(sectors_written "$1_mid")
}

# keeps NAME DEV: no more. tells_no_more: flushes succeed.
keeps()
{
	swap_table "$1_mid" "$(linear_table "$2")"
}

tells_no_more()
{
	swap_table "$1_bad" "0 8 linear $2 $(($(sectors "$2") - 16))"
}

# has_lost NAME COUNT: so many writes have come through since, the largest of which is a chunk.
has_lost()
{
	(($(sectors_written "$1_mid") > lost_before + 8 * ($2 - 1)))
}

flush_is_delayed()
{
	(($(dmsetup status "$1" | awk '$3 == "delay" { print $6 }')))
}

# in_between NAME DEV COUNT FLUSHED: COUNT writes are on their way to the late device. A flush of
# FLUSHED takes the error; then they come, and are lost.
in_between()
{
	ok "$5: a write is on its way" wait_for 25 writes_are_delayed "$1" "$3"
	not_ok "$5: another flush is told that one is lost" sync -d "/dev/mapper/$4"
	tells_no_more "$1" "$2"
	ok "$5: it is lost" wait_for 25 has_lost "$1" "$3"
	keeps "$1" "$2"
}

told_once()
{
	not_ok "$2: users of $1 are told" sync -d "/dev/mapper/$1"
	ok "$2: once" sync -d "/dev/mapper/$1"
}

good_again()
{
	swap_table cow "$(linear_table "$store")"
	swap_table home "$(linear_table "$base")"
}

# Nothing is written by itself from now on.
quiet()
{
	dm message o 0 commit
	sleep 3
}

# lost_write COUNT WORDS: what the next write has sent to the store, COUNT writes, is lost there.
lost_write()
{
	local writer

	quiet
	late cow 5000
	loses cow "$store"
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096 &
	writer=$!
	in_between cow "$store" "$1" s "$2"
	ok "$2: the write ends well" wait "$writer"
}

# A record of the log is written again.
record()
{
	begin 8 on
	dm message o 0 set redirect 0
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) 4096
	isnt "$(key_of s records)" 0 "record: copies go to the log"
	lost_write 1 record
	told_once o record
	good_again
	all_right record
	crash
	up
	all_right "record, after a crash"
	all_down
}

# The copies of a commit are gone: it fails.
commit()
{
	begin 8 off
	dm message o 0 set redirect 0
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) 4096
	lost_write 2 commit
	is "$(status s)" Invalid "commit: its snapshot is invalid"
	good_again
	ok "commit: the origin is right" same /dev/mapper/o "$TEST_TMP/now"
	all_down
}

# Data that has to be durable before its slot: its write ends with an error, and nothing else.
# data DEV WORDS
data()
{
	local writer image=$TEST_TMP/now

	begin 8 off
	[[ $1 != s ]] || image=$TEST_TMP/old
	put "/dev/mapper/$1" "$image" $((2 * U)) 4096
	by_tables
	dm message o 0 set redirect 60
	quiet
	late cow 5000
	loses cow "$store"
	cp "$image" "$TEST_TMP/scratch"
	put "/dev/mapper/$1" "$TEST_TMP/scratch" $((3 * U)) 4096 2>/dev/null &
	writer=$!
	in_between cow "$store" 1 s "$2"
	not_ok "$2: the write ends with an error" wait "$writer"
	good_again
	all_right "$2"
	ok "$2: writes go on" put "/dev/mapper/$1" "$image" $((3 * U)) 4096
	told_once o "$2"
	all_right "$2, written again"
	all_down
}

# What is brought home stays in the store.
settling()
{
	begin 8 off
	put /dev/mapper/o "$TEST_TMP/now" $((3 * U)) 4096
	dmremove s
	dm message o 0 delete 0
	by_tables
	late home 5000
	loses home "$base"
	dm message o 0 settle
	in_between home "$base" 1 o settling
	good_again
	snap_up s "$home" "$cow" P 8 id 7 create
	ok "settling: all comes home" wait_for 40 unsettled_is 0
	ok "settling: as it was written" same /dev/mapper/o "$TEST_TMP/now"
	ok "settling: and is there" is_home
	all_down
}

# The first superblock is told what the device has lost of the tables, and the second one is
# written: no superblock names tables that are not there.
tables()
{
	local setting

	begin 8 off
	dm message o 0 set redirect 0
	dm message o 0 set log redirected
	quiet
	late cow 1000 3000
	loses cow "$store"
	dm message o 0 set redirect 60 &
	setting=$!
	ok "tables: they are lost, and flushed" wait_for 60 flush_is_delayed cow
	keeps cow "$store"
	tells_no_more cow "$store"
	ok "tables: in the end they are ready" wait "$setting"
	good_again
	remove_and_reload s o
	ok "tables: the store is opened again" up
	all_right tables
	all_down
}

# What a superblock is told of private data users of the snapshot hear. The store has nothing of
# this origin's.
snapshot_users()
{
	begin 8 off
	dm message o 0 set redirect 0
	all_down
	"$tool" unseal "$home" "$cow" >/dev/null
	blockdev --flushbufs "$base"
	origin_up o "$home"
	snap_up s "$home" "$cow" P 8
	put /dev/mapper/s "$TEST_TMP/old" $((2 * U)) 4096
	ok "snapshot: its flush succeeds" sync -d /dev/mapper/s
	quiet
	late cow 0
	loses cow "$store"
	keeps cow "$store"
	not_ok "snapshot: a superblock that cannot be flushed is not said to be written" \
		dm message o 0 set low_water 1
	tells_no_more cow "$store"
	told_once s snapshot
	ok "snapshot: users of the origin are not concerned" sync -d /dev/mapper/o
	good_again
	all_right snapshot
	all_down
}

# A write that is put off tells nobody. It has FUA, which would tell all.
put_off()
{
	local nowait=("$TOOLS/cowio" nowait /dev/mapper/o - d A 4096 $((2 * U))) was

	begin 8 off
	dm message o 0 set redirect 0
	put /dev/mapper/o "$TEST_TMP/now" $((2 * U)) 4096
	late home 0
	loses home "$base"
	keeps home "$base"
	not_ok "put off: a device that cannot be flushed has no snapshot made" dm message o 0 create 9
	tells_no_more home "$base"
	good_again
	dm suspend --noflush home
	was=$("${nowait[@]}")
	dm resume home
	if [[ $was = *"not supported"* ]]; then
		skip "put off: a write is tried again" "the kernel offers no NOWAIT here"
	else
		is "$was" "Resource temporarily unavailable" "put off: a write is to be tried again"
	fi
	told_once o "put off"
	all_right "put off"
	all_down
}

# Most of this device has no FUA, but it says that it has. A write that it does not take may have
# been told what its cache has lost.
claimed_fua()
{
	local disk store end claims

	store=$(mkloop 16M)
	end=$(sectors "$store")
	if disk=$(mkscsi dev_size_mb=8); then
		claims=$(printf '%s 0\n%d 8 linear %s 0' "0 $end linear $store" "$end" "$disk")
		dmcreate claims "$claims"
	fi
	if [[ ! $disk || $(cat "$(sysfs /dev/mapper/claims)/queue/fua") != 1 ]]; then
		skip "claimed FUA" "no device with FUA here"
		return
	fi
	fill "$base" "$TEST_TMP/old"
	origin_up o "$base"
	snap_up s "$base" /dev/mapper/claims P 8
	put /dev/mapper/s "$TEST_TMP/old" $((2 * U)) 4096
	swap_table claims "$(printf '%s 0 0 1000 1 error_writes\n%d 8 linear %s 0' \
		"0 $end flakey $store" "$end" "$disk")"
	cp "$TEST_TMP/old" "$TEST_TMP/scratch"
	not_ok "claimed FUA: a write fails" put /dev/mapper/s "$TEST_TMP/scratch" $((3 * U)) 4096
	swap_table claims "$claims"
	told_once s "claimed FUA"
	ok "claimed FUA: the snapshot is right" same /dev/mapper/s "$TEST_TMP/old"
	all_down
	dmremove claims
}

mkmid cow "$store"
mkmid home "$base"
record
commit
data o "current version"
data s "private version"
settling
tables
snapshot_users
put_off
for name in cow home; do
	dmremove "$name"
	dmremove "${name}_mid"
	dmremove "${name}_bad"
done
claimed_fua
done_testing
