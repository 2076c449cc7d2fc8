# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash disable=SC2034,SC2154
#
# What the tests of settling, and of merges into a redirected origin, share: a sealed origin that
# redirects, and what a power cut leaves of it. $base, $store, and $home and $cow on them are theirs.

need_command
need_target flakey delay error
exact_copies
expect_log 'blk_update_request|Buffer I/O error|critical .* error|I/O error, dev|lost async page write'

U=131072
cow=/dev/mapper/cow
home=/dev/mapper/home

# begin_sealed CHUNK OLD FEATURE...: a sealed origin with a snapshot of it, whose image is in OLD. All
# of it is down.
begin_sealed()
{
	local old=$2

	chunk=$1
	bytes=$((chunk * 512))
	shift 2
	all_down
	dd if=/dev/zero of="$store" bs=1M count=16 oflag=direct status=none
	blockdev --flushbufs "$store"
	fill "$home" "$TEST_TMP/now"
	snap_up s "$home" "$cow" P "$chunk" "$@"
	cp "$TEST_TMP/now" "$TEST_TMP/$old"
	all_down
	"$tool" seal "$home" "$cow" >/dev/null
	blockdev --flushbufs "$base"
}

# Nothing is settled yet.
redirect_now()
{
	dm message o 0 set settle off
	dm message o 0 set redirect 60
}

# zero OFFSET BYTES: of the origin, and of its image.
zero()
{
	blkdiscard -z -o "$1" -l "$2" /dev/mapper/o &&
		dd if=/dev/zero of="$TEST_TMP/now" bs=512 seek=$(($1 / 512)) count=$(($2 / 512)) \
			conv=notrunc status=none
}

# sectors_written NAME: so far. Flushes, which are counted as writes, have none.
sectors_written()
{
	awk '{ print $7 }' "$(sysfs "/dev/mapper/$1")/stat"
}

unsettled_is()
{
	[[ $(unsettled) == "$1" ]]
}

# cut_now: what a power cut now would leave is on the devices, and nothing is in use.
cut_now()
{
	cp "$(loop_file "$base")" "$TEST_TMP/base.cut"
	cp "$(loop_file "$store")" "$TEST_TMP/store.cut"
	all_down
	remove_and_reload
	dd if="$TEST_TMP/base.cut" of="$base" bs=1M conv=fsync status=none
	dd if="$TEST_TMP/store.cut" of="$store" bs=1M conv=fsync status=none
	blockdev --flushbufs "$base"
	blockdev --flushbufs "$store"
}

# lone_block FILE: the block of the store that differs from FILE and is one sector alone, behind the
# superblocks and in front of the data.
lone_block()
{
	cmp -l "$1" "$(loop_file "$store")" | awk '{
		at = int(($1 - 1) / 512)
		if (at > 1 && at != last) {
			if (at != last + 1 && run == 1)
				exit
			run = at == last + 1 ? run + 1 : 1
			last = at
		}
	} END { if (run == 1) print last }'
}
