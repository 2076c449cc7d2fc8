#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Devices are reloaded, suspended, resumed, grown, replaced and removed in any
# order, at rest and under I/O, and no data is lost by it; the module stays
# while it is in use and leaves nothing when it goes.

. "$(dirname "$0")/common.sh"

need fio
MIB=1048576

plan 37

both_up()
{
	fill "$base" "$TEST_TMP/old"
	cp "$TEST_TMP/old" "$TEST_TMP/new"
	origin_up o "$base"
	snap_up s "$base" "$store" N 16
}

both_down()
{
	dmremove s
	dmremove o
}

# load_start NAME...: I/O on devices until load_stop; its errors are not ours.
load_start()
{
	local args=() name

	for name; do
		args+=(--name="$name" --filename="/dev/mapper/$name")
	done
	fio --ioengine=libaio --direct=1 --rw=randrw --bsrange=4k-256k --iodepth=8 \
		--time_based --runtime=600 --allow_file_create=0 --continue_on_error=all \
		--randrepeat=0 --output=/dev/null "${args[@]}" 2>/dev/null &
	load_pid=$!
	wait_for 60 load_runs "$1"
}

load_runs()
{
	[[ $(awk '{ print $1 + $5 }' "$(sysfs "/dev/mapper/$1")/stat") -gt 200 ]]
}

load_stop()
{
	kill "$load_pid" 2>/dev/null
	wait "$load_pid" 2>/dev/null
	return 0
}

table_loads_back()
{
	local table

	table=$(dmsetup table "$1")
	dmreload "$1" "$table"
	is "$(dmsetup table "$1")" "$table" "the table of $1 loads back: $table"
}

at_rest()
{
	both_up
	put /dev/mapper/o "$TEST_TMP/new" 0 $MIB
	table_loads_back o
	table_loads_back s
	put /dev/mapper/o "$TEST_TMP/new" $((MIB / 2)) $((2 * MIB))
	ok "a reloaded snapshot has the old data" same /dev/mapper/s "$TEST_TMP/old"
	dmsetup suspend s
	put /dev/mapper/o "$TEST_TMP/new" $((4 * MIB)) $MIB
	dmsetup resume s
	ok "a snapshot suspended while its origin was written has the old data" \
		same /dev/mapper/s "$TEST_TMP/old"
	dmsetup suspend o
	dmsetup resume o
	dmsetup suspend --noflush o
	dmsetup resume o
	ok "the origin is whole after suspends" same /dev/mapper/o "$TEST_TMP/new"
	dmsetup load s --table "$(snap_table "$base" "$store" N 16)"
	dmsetup clear s
	put /dev/mapper/o "$TEST_TMP/new" $((6 * MIB)) $MIB
	ok "a table loaded and cleared changes nothing" same /dev/mapper/s "$TEST_TMP/old"
	both_down
}

snapshot_keeps_private()
{
	both_up
	cp "$TEST_TMP/old" "$TEST_TMP/private"
	put /dev/mapper/s "$TEST_TMP/private" 12288 $MIB
	dmreload s "$(snap_table "$base" "$store" N 16)"
	ok "a reloaded snapshot has what was written to it" same /dev/mapper/s "$TEST_TMP/private"
	both_down
}

origin_removed()
{
	both_up
	put /dev/mapper/o "$TEST_TMP/new" 0 $MIB
	dmremove o
	ok "a snapshot is whole without its origin device" same /dev/mapper/s "$TEST_TMP/old"
	origin_up o "$base"
	put /dev/mapper/o "$TEST_TMP/new" 0 $((2 * MIB))
	ok "a snapshot is whole with a new origin device" same /dev/mapper/s "$TEST_TMP/old"
	dmremove o
	dmremove s
	ok "the origin's own device has what was written" same "$base" "$TEST_TMP/new"
}

new_snapshot_on_old_store()
{
	both_up
	put /dev/mapper/o "$TEST_TMP/new" 0 $MIB
	dmremove s
	snap_up s "$base" "$store" N 16
	ok "a new transient snapshot on a used store is of now" same /dev/mapper/s "$TEST_TMP/new"
	both_down
}

# Sizes of tables alone: the device below is larger than both from the start.
grow()
{
	local small=$((12 * 2048)) large=$((16 * 2048))

	fill "$base" "$TEST_TMP/old"
	dmcreate o "0 $small cowsnap-origin $base"
	dmcreate s "0 $small cowsnap $base $store N 16"
	put_letter /dev/mapper/o B $((11 * MIB)) $MIB
	dmreload o "0 $large cowsnap-origin $base"
	is "$(sectors /dev/mapper/o)" $large "the origin grows"
	put /dev/mapper/o "$TEST_TMP/old" $((12 * MIB)) $MIB
	dmreload s "0 $large cowsnap $base $store N 16"
	is "$(sectors /dev/mapper/s)" $large "the snapshot grows after it"
	put_letter /dev/mapper/o B $((12 * MIB)) $((4 * MIB)) $MIB
	ok "the snapshot has all old data, the new part as of its growing" \
		same /dev/mapper/s "$TEST_TMP/old"
	both_down
}

under_load()
{
	local i

	both_up
	load_start o
	for ((i = 0; i < 3; i++)); do
		dmreload o "$(origin_table "$base")"
		dmreload s "$(snap_table "$base" "$store" N 16)"
		dmsetup suspend o && dmsetup resume o
		dmsetup suspend --noflush --nolockfs o && dmsetup resume o
		dmsetup suspend s && dmsetup resume s
	done
	ok "the origin's writer outlives reloads and suspends" kill -0 "$load_pid"
	not_ok "the origin cannot be removed while it is open" dmsetup remove o
	load_stop
	ok "the snapshot has the old data" same /dev/mapper/s "$TEST_TMP/old"
	both_down
}

# remove --force puts an error table in the place of one in use.
removed_under_load()
{
	local first=$1 second=$2

	both_up
	load_start o s
	dmsetup remove --force "$first" >/dev/null 2>&1
	like "$(dmsetup table "$first" 2>/dev/null || echo gone)" '(error|gone)' \
		"$first is torn away under I/O"
	dmsetup remove --force "$second" >/dev/null 2>&1
	like "$(dmsetup table "$second" 2>/dev/null || echo gone)" '(error|gone)' \
		"$second is torn away after $first, under I/O"
	load_stop
	for name in o s; do
		dmsetup info "$name" >/dev/null 2>&1 && dmremove "$name"
	done
	ok "no table of ours is left of $first and $second" none_left
}

none_left()
{
	! dmsetup table | grep cowsnap
}

snapshot_removed_under_load()
{
	both_up
	load_start o
	ok "a snapshot is removed while its origin is written" dmremove s
	snap_up s "$base" "$store" N 16
	ok "a new snapshot is made while its origin is written" dmsetup status s
	dmremove s
	ok "the new snapshot is removed while its origin is written" kill -0 "$load_pid"
	load_stop
	dmremove o
}

# A program that has suspended a device loads tables before it resumes it: that waits for nobody
# who waits for the device.
loaded_beside_suspended()
{
	local maker

	dmcreate home "$(linear_table "$base")"
	dmcreate cow "$(linear_table "$store")"
	dd if=/dev/zero of="$store" bs=4096 count=1 conv=fsync status=none
	fill /dev/mapper/home "$TEST_TMP/new"
	origin_up o /dev/mapper/home
	snap_up s /dev/mapper/home /dev/mapper/cow P 8
	cp "$TEST_TMP/new" "$TEST_TMP/old"
	dm suspend home
	dm message o 0 create 2 &
	maker=$!
	# It flushes home.
	sleep 2
	ok "a snapshot waits for a device that is suspended" kill -0 "$maker"
	ok "meanwhile a table of the origin is loaded" \
		timeout 30 dmsetup load o --table "$(origin_table /dev/mapper/home)"
	ok "and one of a snapshot" \
		timeout 30 dmsetup load s --table "$(snap_table /dev/mapper/home /dev/mapper/cow P)"
	dm resume home
	ok "the snapshot is made when the device is resumed" wait "$maker"
	ok "the table of the origin is resumed" dm resume o
	ok "and that of the snapshot" dm resume s
	put /dev/mapper/o "$TEST_TMP/new" 0 $MIB
	ok "copies go on" same /dev/mapper/s "$TEST_TMP/old"
	both_down
	dmremove cow
	dmremove home
	dd if=/dev/zero of="$store" bs=4096 count=1 conv=fsync status=none
}

module_in_use()
{
	origin_up o "$base"
	not_ok "the module stays while an origin is active" rmmod dm_cowsnap
	dmremove o
	snap_up s "$base" "$store" N 16
	not_ok "the module stays while a snapshot is active" rmmod dm_cowsnap
	dmremove s
	if [[ -z ${COWSNAP_KO-} || ! -f ${COWSNAP_KO-} ]]; then
		skip "the module goes when nothing uses it" "it was not loaded by file"
		skip "the module comes back" "it was not loaded by file"
		return
	fi
	ok "the module goes when nothing uses it" rmmod dm_cowsnap
	ok "the module comes back" insmod "$COWSNAP_KO"
}

base=$(mkloop 16M)
store=$(mkloop 40M)
at_rest
snapshot_keeps_private
origin_removed
new_snapshot_on_old_store
grow
under_load
removed_under_load o s
removed_under_load s o
snapshot_removed_under_load
loaded_beside_suspended
module_in_use
