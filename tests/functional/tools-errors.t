#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# On a store with sectors that cannot be read the cowsnap command says which they are, repair
# writes them anew without reading them, and what the kernel refuses check finds.

. "$(dirname "$0")/common.sh"

need cmp
expect_log 'blk_update_request|Buffer I/O error|critical .* error|I/O error|Sense|alignment inconsistency'

for tool in "$TOOLS/cowsnap" "$TESTS_DIR/../tools/cowsnap"; do
	! "$tool" --version >/dev/null 2>&1 || break
	tool=
done
[[ $tool ]] || skip_all "no cowsnap command that runs here"
modinfo scsi_debug >/dev/null 2>&1 || skip_all "no scsi_debug here"
plan 30

exact_copies
base=$(mkloop 1M)
store=$(mkloop 2M)

make_store()
{
	fill "$base" "$TEST_TMP/now"
	cp "$TEST_TMP/now" "$TEST_TMP/image"
	origin_up o "$base"
	snap_up s "$base" "$store" P 8 id 1 create
	put /dev/mapper/o "$TEST_TMP/now" 0 131072 262144 65536
	dmremove s
	dmremove o
	cp "$(loop_file "$store")" "$TEST_TMP/whole"
	cp "$TEST_TMP/now" "$TEST_TMP/origin"
}

# says STATUS REGEX DESC ARGS...: cowsnap ARGS ends with STATUS, and says so.
says()
{
	local want=$1 regex=$2 desc=$3 rc=0

	shift 3
	"$tool" "$@" >"$TEST_TMP/out" 2>&1 || rc=$?
	is "$rc" "$want" "$desc: status $want" || diag <"$TEST_TMP/out"
	like "$(<"$TEST_TMP/out")" "$regex" "$desc: the output says so"
}

# medium BOOL: can the bad sector of the disk not be read?
medium()
{
	echo $((2 * $1)) >/sys/bus/pseudo/drivers/scsi_debug/opts
	blockdev --flushbufs "$disk"
}

# disk PARAMETER...: one with the store on it.
disk()
{
	# Which mkscsi does at the end, if it is still there.
	! rmmod scsi_debug 2>/dev/null || sed -i '/^rmmod scsi_debug/d' "$_cleanup"
	disk=$(mkscsi dev_size_mb=8 "$@") || bail_out "no disk of scsi_debug"
	dd if="$TEST_TMP/whole" of="$disk" bs=64K oflag=direct status=none
}

# bad SECTOR: of the store, whole again, this one cannot be read. Writes arrive.
bad()
{
	disk medium_error_start="$1" medium_error_count=1
	medium 1
}

shows_all()
{
	dd if="$TEST_TMP/origin" of="$base" bs=64K oflag=direct status=none
	origin_up o "$base"
	snap_up s "$base" "$disk" P 8 id 1
	image /dev/mapper/s "$TEST_TMP/seen"
	dmremove s
	dmremove o
	cmp "$TEST_TMP/seen" "$TEST_TMP/image"
}

metadata()
{
	local sector

	for sector in 0 1; do
		bad "$sector"
		says 1 "superblock [AB] .sector $sector.: cannot be read" "superblock in sector $sector" \
			check "$disk"
		says 1 "written anew" "superblock in sector $sector: repair" repair "$disk"
		medium 0
		says 0 clean "superblock in sector $sector: repaired" check "$disk"
		ok "superblock in sector $sector: nothing is lost" shows_all
	done
	bad 2
	says 1 "table block 2 .sector 2.: cannot be read" "table block" check "$disk"
	says 1 "emptied" "table block: repair" repair "$disk"
	medium 0
	says 0 "clean, 0 snapshots" "table block: repaired" check "$disk"
}

data()
{
	bad 19
	says 1 "sector 16.*cannot be read" "data" check "$disk"
	says 2 "damaged data is left" "data: repair" repair "$disk"
}

# A store whose blocks the device cannot write one by one.
large_sectors()
{
	large=$(mkloop 2M --sector 4096)
	dd if="$TEST_TMP/whole" of="$large" bs=64K oflag=direct status=none
	says 1 "logical blocks of 4096 bytes, the store writes 512" "larger sectors" check "$large"
	says 2 "copy it to another device" "larger sectors: repair" repair "$large"
}

# Eight logical sectors in a physical one, and a device that begins in the middle of one.
misaligned()
{
	disk physblk_exp=3
	dmcreate cow "0 4096 linear $disk 1"
	dd if="$TEST_TMP/whole" of=/dev/mapper/cow bs=64K oflag=direct status=none
	says 0 "does not start with a physical block of 4096" misaligned check /dev/mapper/cow
	dmremove cow
}

make_store
metadata
data
large_sectors
misaligned
