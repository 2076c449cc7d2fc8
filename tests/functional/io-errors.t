#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Errors of the disks below: the origin gets its own and no others, and goes
# on; a snapshot that cannot be kept is Invalid, never wrong.

. "$(dirname "$0")/common.sh"

MIB=1048576
len=$((16 * 2048))

exact_copies
plan 28

# home and store stand on devices of their own, that can be made to fail.
all_up()
{
	fill "$base" "$TEST_TMP/old"
	cp "$TEST_TMP/old" "$TEST_TMP/new"
	dmcreate home "${1:-$(linear_table "$base")}"
	dmcreate cow "$(linear_table "$store")"
	dmcreate o "0 $len cowsnap-origin /dev/mapper/home"
	dmcreate s "0 $len cowsnap /dev/mapper/home /dev/mapper/cow N 8"
}

all_down()
{
	dmremove s
	dmremove o
	dmremove cow
	dmremove home
}

read_byte()
{
	get "$1" "$2" 4096
}

origin_goes_on()
{
	put /dev/mapper/o "$TEST_TMP/new" $((12 * MIB)) $MIB &&
		same /dev/mapper/o "$TEST_TMP/new"
}

store_write_error()
{
	all_up
	put /dev/mapper/o "$TEST_TMP/new" 0 $MIB
	swap_table cow "$(error_table "$store")"
	ok "store dead: a write that needs a copy succeeds" \
		put /dev/mapper/o "$TEST_TMP/new" $((2 * MIB)) $((2 * MIB))
	is "$(status s)" Invalid "store dead: the snapshot is Invalid"
	not_ok "store dead: the snapshot cannot be read" read_byte /dev/mapper/s 0
	ok "store dead: the origin goes on" origin_goes_on
	swap_table cow "$(linear_table "$store")"
	is "$(status s)" Invalid "store back: the snapshot stays Invalid"
	all_down
}

# Writes fail, reads do not.
store_refuses_writes()
{
	need_target_here flakey "store refuses writes: the origin's write succeeds" \
		"store refuses writes: the snapshot is Invalid" || return
	all_up
	swap_table cow "$(no_writes_table "$store")"
	ok "store refuses writes: the origin's write succeeds" \
		put /dev/mapper/o "$TEST_TMP/new" 4096 $MIB
	is "$(status s)" Invalid "store refuses writes: the snapshot is Invalid"
	all_down
}

# Copies that are neighbours in the store are written with one bio. If it fails, each is written
# alone, so that all of them end and only those with the bad sector fail.
batch_fails()
{
	local i pieces=() bad=67 nr=16

	if [[ ! $(tracefs) ]]; then
		for i in "the snapshot is Invalid" "they went together" "each is written alone" "the origin goes on"; do
			skip "a bad sector below neighbouring copies: $i" "no block trace events in this kernel"
		done
		return
	fi
	for ((i = 0; i < nr; i++)); do
		pieces+=($((i * 4096)) 4096)
	done
	# They are kept, then written in a row.
	echo 8192 >"$PARAMETERS/undo_buffer"
	all_up
	swap_table cow "$(partly_table "$store" $bad 1 error)"
	trace_start /dev/mapper/cow bio_queue
	put /dev/mapper/o "$TEST_TMP/new" "${pieces[@]}"
	ok "a bad sector below neighbouring copies: the snapshot is Invalid" wait_for 60 is_invalid s
	wait_for 60 nothing_in_flight cow
	trace_stop | awk '$1 == "bio_queue" && $2 ~ /W/ { print $3, $4 }' >"$TEST_TMP/writes"
	diag <"$TEST_TMP/writes"
	# How many chunks the write of several had that met the bad sector, and how many of these
	# were written alone after it.
	read -r together alone < <(awk -v bad="$bad" '
		$2 > 8 && $1 <= bad && bad < $1 + $2 { from = $1; to = $1 + $2 }
		$2 == 8 && to && from <= $1 && $1 < to { alone++ }
		END { print (to - from) / 8, alone + 0 }' "$TEST_TMP/writes")
	ok "a bad sector below neighbouring copies: $together of them went together" [ "$together" -gt 1 ]
	is "$alone" "$together" "a bad sector below neighbouring copies: each is written alone"
	ok "a bad sector below neighbouring copies: the origin goes on" origin_goes_on
	all_down
	echo 0 >"$PARAMETERS/undo_buffer"
}

nothing_in_flight()
{
	! io_is_in_flight "$1" write
}

store_read_error()
{
	all_up
	put /dev/mapper/o "$TEST_TMP/new" 0 $MIB
	swap_table cow "$(error_table "$store")"
	not_ok "store unreadable: a preserved chunk gives an error" read_byte /dev/mapper/s 4096
	ok "store unreadable: the origin goes on" origin_goes_on
	all_down
}

home_read_error()
{
	all_up "$(partly_table "$base" 8192 8 error)"
	not_ok "home unreadable: a write there fails as the disk says" \
		put_letter /dev/mapper/o B $((4 * MIB)) 4096
	is "$(status s)" Invalid "home unreadable: the snapshot is Invalid"
	ok "home unreadable: other writes succeed" put /dev/mapper/o "$TEST_TMP/new" 0 $MIB
	all_down
}

# A bad block that a write heals, as disks do: the write must get there.
home_heals()
{
	need_target_here dust "a bad block: the write that heals it succeeds" \
		"a bad block: the origin has the data" \
		"a bad block: the snapshot is Invalid or says EIO there" || return
	all_up "0 $len dust $base 0 512"
	dm message home 0 addbadblock 8192 >/dev/null
	dm message home 0 enable
	ok "a bad block: the write that heals it succeeds" \
		put /dev/mapper/o "$TEST_TMP/new" $((4 * MIB)) 65536
	is "$(read_byte /dev/mapper/o $((4 * MIB)) | md5sum)" \
		"$(dd if="$TEST_TMP/new" bs=4096 skip=1024 count=1 status=none | md5sum)" \
		"a bad block: the origin has the data"
	not_ok "a bad block: the snapshot is Invalid or says EIO there" \
		read_byte /dev/mapper/s $((4 * MIB))
	all_down
}

home_write_error()
{
	need_target_here flakey "home refuses writes: the write fails" \
		"home refuses writes: the snapshot is whole" \
		"home accepts writes again: the origin goes on" || return
	all_up
	swap_table home "$(no_writes_table "$base")"
	not_ok "home refuses writes: the write fails" put_letter /dev/mapper/o B 0 $MIB
	ok "home refuses writes: the snapshot is whole" same /dev/mapper/s "$TEST_TMP/old"
	swap_table home "$(linear_table "$base")"
	ok "home accepts writes again: the origin goes on" origin_goes_on
	all_down
}

home_dead()
{
	all_up
	put /dev/mapper/o "$TEST_TMP/new" 0 $MIB
	swap_table home "$(error_table "$base")"
	not_ok "home dead: writes fail" put_letter /dev/mapper/o B 0 4096
	not_ok "home dead: writes that need a copy fail" put_letter /dev/mapper/o B $((8 * MIB)) 4096
	not_ok "home dead: reads fail" read_byte /dev/mapper/o 0
	swap_table home "$(linear_table "$base")"
	ok "home back: the origin goes on" origin_goes_on
	all_down
}

# Under many writes at once; the origin's checksums are fio's.
store_dies_under_load()
{
	all_up
	fio --name=w --ioengine=libaio --direct=1 --rw=randwrite --bsrange=4k-64k --iodepth=16 \
		--filename=/dev/mapper/o --allow_file_create=0 --size=12m --verify=crc32c \
		--do_verify=1 --verify_fatal=1 >"$TEST_TMP/fio.log" 2>&1 &
	wait_for 60 some_are_copied
	swap_table cow "$(error_table "$store")"
	ok "store dies under load: no write of the origin is lost" wait $!
	# The load may have been through when the store died.
	put_letter /dev/mapper/o B $((15 * MIB)) 4096
	is "$(status s)" Invalid "store dies under load: the snapshot is Invalid"
	all_down
}

some_are_copied()
{
	[[ $(used_sectors s) -gt 1000 ]]
}

# need_target_here TARGET DESC...: skip these points without it.
need_target_here()
{
	local target=$1 desc

	have_target "$target" && return
	shift
	for desc; do
		skip "$desc" "no target $target in this kernel"
	done
	return 1
}

base=$(mkloop 16M)
store=$(mkloop 32M)
store_write_error
store_refuses_writes
batch_fails
store_read_error
home_read_error
home_heals
home_write_error
home_dead
store_dies_under_load
