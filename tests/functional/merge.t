#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# cowsnap-merge: the origin reads as the snapshot from the moment the table is resumed,
# what is written meanwhile is kept, every other snapshot stays right, and an interrupted
# merge goes on where it was.

. "$(dirname "$0")/common.sh"

need_processors 2
need fio
need_target delay
MIB=1048576
SIZE=10

plan 77

merge_table()
{
	echo "0 $(sectors "$base") cowsnap-merge $base $store P 8 2 id $1"
}

# Half of it copied in places old and new.
change()
{
	local round=$1

	put /dev/mapper/o "$TEST_TMP/now" $((round * 2 * MIB)) $((MIB + 512)) \
		$((round * 4096)) 4096 $((round * MIB + 12800)) 66048 \
		$(((SIZE - 1) * MIB + round * 8192)) 4096 $((SIZE * MIB / 2)) $((round * 4096))
}

# Four snapshots, the second written to, the origin changing all along.
all_up()
{
	local id

	store=$(mkloop 32M)
	fill "$base" "$TEST_TMP/now"
	origin_up o "$base"
	for id in 1 2 3 4; do
		if ((id == 1)); then
			snap_up s "$base" "$store" P 8 id 1 create
		else
			dmsetup message o 0 create "$id"
		fi
		cp "$TEST_TMP/now" "$TEST_TMP/old$id"
		change "$id"
	done
	dmremove s
	snap_up s "$base" "$store" P 8 id 2
	put /dev/mapper/s "$TEST_TMP/old2" 0 4096 $((5 * MIB)) 65536 $((7 * MIB + 512)) 1024 \
		$((SIZE * MIB / 2)) 4096
	dmreload o "$(origin_table "$base" store "$store")"
	dmremove s
}

# snapshots_are_right WORDS ID...: one point for each.
snapshots_are_right()
{
	local words=$1 id

	shift
	for id; do
		snap_up s "$base" "$store" P 8 id "$id"
		ok "$words: snapshot $id is right" same /dev/mapper/s "$TEST_TMP/old$id"
		dmremove s
	done
}

start_merge()
{
	dm suspend o && dmload o "$(merge_table "$1")" && dm resume o
}

# merge_whole ID OTHERS...: one merge, as fast as it goes.
merge_whole()
{
	local id=$1

	shift
	all_up
	ok "merging $id: the merge begins" start_merge "$id"
	ok "merging $id: the origin reads as the snapshot at once" \
		same /dev/mapper/o "$TEST_TMP/old$id"
	put /dev/mapper/o "$TEST_TMP/old$id" 0 65536 $((9 * MIB)) 4096
	ok "merging $id: the merge ends" wait_for 100 merged
	ok "merging $id: the origin is right" same /dev/mapper/o "$TEST_TMP/old$id"
	snapshots_are_right "merging $id" "$@"
	put /dev/mapper/o "$TEST_TMP/old$id" 4096 $MIB
	dmreload o "$(origin_table "$base" store "$store")"
	ok "merging $id: the origin is right under cowsnap-origin" \
		same /dev/mapper/o "$TEST_TMP/old$id"
	put /dev/mapper/o "$TEST_TMP/old$id" $((7 * MIB)) $((2 * MIB))
	snapshots_are_right "merging $id, protection goes on" "$@"
	ok "merging $id: the merged snapshot is deleted" dm message o 0 delete "$id"
	dmremove o
	ok "merging $id: the origin's own device has the old content" \
		same "$base" "$TEST_TMP/old$id"
}

base=$(mkloop ${SIZE}M)

# ---- the oldest, one in the middle, the newest ----

merge_whole 1 2 4
merge_whole 2 1 3
merge_whole 4 1 3

# ---- what can be done while it goes on, and what not ----

# Each step of it takes 2 s. All that is left is counted once in 10 s; whoever looks more often sees
# each step nonetheless.
loop=$base
dmcreate slow "$(linear_table "$loop")"
base=/dev/mapper/slow
all_up
swap_table slow "$(delay_table "$loop" 0 1000)"
start_merge 1
seen=()
SECONDS=0
until left=$(left_of o) && ((!left)) || ((SECONDS > 100)); do
	((${#seen[@]} && seen[-1] == left)) || seen+=("$left")
done
diag "left: ${seen[*]}, in the end $left sectors, after $SECONDS s"
is "${seen[*]}" "$(printf '%s\n' "${seen[@]}" | sort -rn | xargs)" "step by step: it becomes less"
# All of it is counted again after 10 s.
ok "step by step: each step is seen" [ ${#seen[@]} -gt $((SECONDS / 10 + 2)) ]
swap_table slow "$(linear_table "$loop")"
dmremove o

# Each step takes 600 ms, and so the rest after it 20 s.
all_up
dm message o 0 set throttle 3
swap_table slow "$(delay_table "$loop" 0 300)"
start_merge 3
ok "slowly: the origin reads as the snapshot" same /dev/mapper/o "$TEST_TMP/old3"
fio --name=w --ioengine=libaio --direct=1 --rw=randwrite --bsrange=512-32k --iodepth=8 \
	--filename=/dev/mapper/o --allow_file_create=0 --offset=5m --size=3m --io_size=3m \
	--verify=crc32c --do_verify=1 --verify_fatal=1 >"$TEST_TMP/fio.log" 2>&1 &
fio=$!
put /dev/mapper/o "$TEST_TMP/old3" 512 512 $((9 * MIB)) $MIB $((3 * MIB)) 131072 4096 65536
ok "slowly: the merge has not ended" [ "$(left_of o)" -gt 0 ]
not_ok "slowly: no snapshot is made by message" dm message o 0 create 9
not_ok "slowly: no snapshot is made by a table" snap_up s "$base" "$store" P 8 id 9 create
not_ok "slowly: the snapshot being merged cannot be opened" snap_up s "$base" "$store" P 8 id 3
not_ok "slowly: the snapshot being merged cannot be deleted" dm message o 0 delete 3
snapshots_are_right "slowly" 1 4
ok "slowly: the merge has still not ended" [ "$(left_of o)" -gt 0 ]
ok "slowly: the origin is suspended" dm suspend o
dm resume o
ok "slowly: fio read back what it wrote" wait "$fio"
image /dev/mapper/o "$TEST_TMP/seen"
# Only fio knows what it wrote.
dd if="$TEST_TMP/seen" of="$TEST_TMP/old3" bs=1M skip=5 seek=5 count=3 conv=notrunc status=none
ok "slowly: the origin has what was written beside fio" cmp "$TEST_TMP/seen" "$TEST_TMP/old3"
ok "slowly: another snapshot is deleted meanwhile" dm message o 0 delete 2
swap_table slow "$(linear_table "$loop")"
dm message o 0 set throttle 100
ok "slowly: the merge ends when the throttle is lifted" wait_for 100 merged
ok "slowly: the origin is right" same /dev/mapper/o "$TEST_TMP/old3"
snapshots_are_right "slowly" 1 4
dmreload o "$(origin_table "$base" store "$store")"
ok "after the merge a snapshot is made" dm message o 0 create 9
cp "$TEST_TMP/old3" "$TEST_TMP/old9"
put /dev/mapper/o "$TEST_TMP/old3" 0 $MIB
snapshots_are_right "afterwards" 9 4
not_ok "after the merge the merged snapshot cannot be opened" snap_up s "$base" "$store" P 8 id 3
dmremove o
dmremove slow
base=$loop

# ---- I/O to what is being merged does not wait for the throttle ----

all_up
dm message o 0 set throttle 1
start_merge 3
begin=$SECONDS
for _ in {1..8}; do
	same /dev/mapper/o "$TEST_TMP/old3" >/dev/null || fail "throttled: the origin is right"
done
seconds=$((SECONDS - begin))
ok "throttled: the origin is read eight times without a rest ($seconds s)" [ "$seconds" -lt 300 ]
ok "throttled: the merge has not ended" [ "$(left_of o)" -gt 0 ]
dm message o 0 set throttle 100
ok "throttled: the merge ends when the throttle is lifted" wait_for 100 merged
snapshots_are_right "throttled" 1 4
dmremove o

# ---- interrupted ----

interrupt()
{
	all_up
	dm message o 0 set throttle 3
	start_merge 2
	before=$(left_of o)
	wait_for 30 part_is_merged "$before"
	put /dev/mapper/o "$TEST_TMP/old2" 0 8192 $((5 * MIB)) 4096 $((9 * MIB)) 8192
	isnt "$(left_of o)" 0 "$1: the merge is half way"
	remove_and_reload o
}

finish()
{
	ok "$1: the origin reads as the snapshot" same /dev/mapper/o "$TEST_TMP/old2"
	put /dev/mapper/o "$TEST_TMP/old2" 0 512 $((9 * MIB)) 4096
	dm message o 0 set throttle 100
}

interrupt "interrupted"
ok "interrupted: the merge goes on" dmcreate o "$(merge_table 2)"
finish "interrupted"
ok "interrupted: the merge ends" wait_for 100 merged
ok "interrupted: the origin is right" same /dev/mapper/o "$TEST_TMP/old2"
snapshots_are_right "interrupted" 1 3
dmremove o
origin_up o "$base"
ok "interrupted: a plain origin is right" same /dev/mapper/o "$TEST_TMP/old2"
dmremove o

interrupt "under cowsnap-origin"
ok "under cowsnap-origin: the merge goes on" origin_up o "$base" store "$store"
finish "under cowsnap-origin"
dmreload o "$(merge_table 2)"
ok "under cowsnap-origin: the merge ends" wait_for 100 merged
dmremove o
ok "under cowsnap-origin: the origin's own device has the old content" same "$base" "$TEST_TMP/old2"
origin_up o "$base" store "$store"
snapshots_are_right "under cowsnap-origin" 1 3 4
dmremove o
