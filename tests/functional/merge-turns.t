#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A merge beside users of a rotational disk: while the disk has a user's request it gets none of the
# merge, for a while. Where users leave it no moment it goes on all the same, by more than one small
# request at a time. Told from the order of requests.

. "$(dirname "$0")/common.sh"

[[ $(tracefs) ]] || skip_all "no block trace events in this kernel"
need_target delay
MIB=1048576
HOME_MIB=24
MERGED_MIB=8
# The merge's requests are 256 KiB; how many it begins in DELAY ms, two turns of which have to end.
DELAY=60
MOST=4
# Of single chunks more than so many, after one turn. The first stretch is begun before the user is
# there, while one of its writes may be held back.
FEW=24
CHUNKS=960
exact_copies
plan 7

# up: origin and store on one disk. What is written to the last MiB of the origin takes its time.
up()
{
	local sectors=$((HOME_MIB * 2048))

	echo 1 >"$(sysfs "$disk")/queue/rotational"
	dmcreate cow "0 $((64 * 2048)) linear $disk $sectors"
	dmcreate home "0 $((sectors - 2048)) linear $disk 0
$((sectors - 2048)) 2048 delay $disk $((sectors - 2048)) 0 $disk $((sectors - 2048)) $DELAY"
	fill /dev/mapper/home "$TEST_TMP/now"
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	origin_up o /dev/mapper/home
}

# writer: one write after the other, to what no snapshot has a version of.
writer()
{
	until [[ -e $TEST_TMP/enough ]]; do
		dd if=/dev/zero of=/dev/mapper/o bs=4096 seek=$(((HOME_MIB - 1) * 256)) count=64 \
			oflag=direct status=none
	done
}

# merged TITLE ID: snapshot ID is merged beside the writer. What the disk gets meanwhile is in trace.
merged()
{
	rm -f "$TEST_TMP/enough"
	dmremove s
	dm suspend o
	writer &
	dmload o "0 $((HOME_MIB * 2048)) cowsnap-merge /dev/mapper/home /dev/mapper/cow P 8 2 id $2"
	trace_start "$disk" bio_queue
	echo "dev == $(dev_number "$disk") || dev == $(dev_number /dev/mapper/home)" \
		>"$TRACE/events/block/block_bio_queue/filter"
	dm resume o
	ok "$1: the merge ends beside somebody who writes all the time" \
		wait_for 120 log_says_merged "$2"
	trace_stop >"$TEST_TMP/trace"
	: >"$TEST_TMP/enough"
	wait
}

# begun SECTORS: how many such requests for the merged part, or what the store has of it, the disk
# got while a write of the user was held back, for each of them. That is seen on its way into the
# delay and out of it.
begun()
{
	awk -v user=$(((HOME_MIB - 1) * 2048)) -v merged=$((MERGED_MIB * 2048)) \
		-v store=$((HOME_MIB * 2048)) -v sectors="$1" '
		$1 != "bio_queue" { next }
		$3 >= user && $3 < store {
			if (held)
				print begun + 0
			held = !held
			begun = 0
			writes++
		}
		held && $4 == sectors && ($3 < merged || $3 >= store) && !seen[$3, held, writes]++ {
			begun++
		}' "$TEST_TMP/trace"
}

disk=$(mkloop 96M)
up
snap_up s /dev/mapper/home /dev/mapper/cow P 8 id 1 create
put /dev/mapper/o "$TEST_TMP/now" 0 $((MERGED_MIB * MIB))
merged "one stretch after the other" 1
most=$(begun 512 | sort -n | tail -n 1)
ok "while a write is held back the merge begins few requests: $most" [ "${most:-99}" -le $MOST ]
ok "and some" [ "$most" -ge 1 ]
ok "the origin is rolled back" cmp -n $((MERGED_MIB * MIB)) /dev/mapper/o "$TEST_TMP/old"
dmremove o
dmremove home
dmremove cow

up
dd if=/dev/zero of=/dev/mapper/cow bs=1M count=1 oflag=direct status=none
snap_up s /dev/mapper/home /dev/mapper/cow P 8 id 2 create
# shellcheck disable=SC2046
put /dev/mapper/o "$TEST_TMP/now" $(for ((i = 0; i < CHUNKS; i++)); do echo $((i * 8192)) 4096; done)
merged "single chunks" 2
often=$(begun 8 | awk -v few=$FEW '$1 > few' | wc -l)
ok "one turn in vain does for more than one of them: $often times" [ "$often" -ge 3 ]
ok "the origin is rolled back again" cmp -n $((MERGED_MIB * MIB)) /dev/mapper/o "$TEST_TMP/old"
dmremove o
dmremove home
dmremove cow
