# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash disable=SC2034,SC2154
#
# What the tests of settling share: a sealed origin that redirects, its snapshots, what is home.

need_command
need_target flakey
need_target error
need_target delay
exact_copies
expect_log 'blk_update_request|Buffer I/O error|critical .* error|I/O error, dev|lost async page write'

# The origin has 16 of these.
U=131072
cow=/dev/mapper/cow
home=/dev/mapper/home

# begin CHUNK LOG: a sealed origin with a snapshot of it, in use; nothing is settled yet.
begin()
{
	chunk=$1
	bytes=$((chunk * 512))
	all_down
	dd if=/dev/zero of="$store" bs=1M count=16 oflag=direct status=none
	blockdev --flushbufs "$store"
	fill "$base" "$TEST_TMP/now"
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	snap_up s "$home" "$cow" P "$chunk" log "$2"
	all_down
	"$tool" seal "$home" "$cow" >/dev/null
	blockdev --flushbufs "$base"
	up
	dm message o 0 set settle off
	dm message o 0 set redirect 60
}

# up: origin and snapshot are in use.
up()
{
	origin_up o "$home" store "$cow"
	snap_up s "$home" "$cow" P "$chunk"
}

snap_two()
{
	dm message o 0 create 2
	cp "$TEST_TMP/now" "$TEST_TMP/old2"
	snap_up s2 "$home" "$cow" P "$chunk" id 2
}

unsettled()
{
	key_of s unsettled
}

unsettled_is()
{
	[[ $(unsettled) == "$1" ]]
}

# all_right WORDS: origin and snapshots show what they should.
all_right()
{
	local name

	ok "$1: the origin is right" same /dev/mapper/o "$TEST_TMP/now"
	for name in s s2; do
		[[ -e /dev/mapper/$name ]] || continue
		ok "$1: $name is right" same "/dev/mapper/$name" "$TEST_TMP/old${name#s}"
	done
}

# is_home: behind what is sealed, home has what the origin shows.
is_home()
{
	blockdev --flushbufs "$base"
	cmp <(get "$base" $U $((15 * U)) $U) <(tail -c +$((U + 1)) "$TEST_TMP/now")
}

# crash: what a power cut now would leave, opened again.
crash()
{
	local name

	cp "$(loop_file "$base")" "$TEST_TMP/base.cut"
	cp "$(loop_file "$store")" "$TEST_TMP/store.cut"
	all_down
	remove_and_reload
	dd if="$TEST_TMP/base.cut" of="$base" bs=1M conv=fsync status=none
	dd if="$TEST_TMP/store.cut" of="$store" bs=1M conv=fsync status=none
	blockdev --flushbufs "$base"
	blockdev --flushbufs "$store"
}

settled_at_least()
{
	(($(key_of s settled) >= $1))
}

# not_writable OFFSET: in a chunk that the origin alone has in the store, so that nothing is copied.
# What gets there counts.
not_writable()
{
	cp "$TEST_TMP/now" "$TEST_TMP/scratch"
	if put /dev/mapper/o "$TEST_TMP/scratch" "$1" 4096; then
		cp "$TEST_TMP/scratch" "$TEST_TMP/now"
		return 1
	fi
}

# by_tables: what is redirected is in the tables, not in the log.
by_tables()
{
	dm message o 0 set redirect 0
	dm message o 0 commit
	sleep 1
}

# table_block CHUNK: redirects it, and says where the block with its slot is: one sector alone,
# behind the superblocks and in front of the data.
table_block()
{
	dm message o 0 commit
	sleep 1
	cp "$(loop_file "$store")" "$TEST_TMP/before"
	put /dev/mapper/o "$TEST_TMP/now" $(($1 * 4096)) 4096
	by_tables
	cmp -l "$TEST_TMP/before" "$(loop_file "$store")" | awk '{
		at = int(($1 - 1) / 512)
		if (at > 1 && at != last) {
			if (at != last + 1 && run == 1)
				exit
			run = at == last + 1 ? run + 1 : 1
			last = at
		}
	} END { if (run == 1) print last }'
}

# Many slots before it, so that the block is not one that is always in memory.
away_from_start()
{
	begin 8 off
	dm message o 0 set redirect 0
	put /dev/mapper/o "$TEST_TMP/now" $((10 * U)) $((2 * U))
	dm message o 0 set redirect 60
	block=$(table_block 100)
	like "$block" '^[0-9]+$' "the table block is found"
	[[ $block ]]
}

block_fails()
{
	partly_table "$store" "$block" 1 "$@"
}

# slots: how many slots of the closed store say that it has data of the origin.
slots()
{
	"$tool" dump "$cow" | grep -c 'kind current'
}

base=$(mkloop 2M)
store=$(mkloop 16M)
dmcreate cow "$(linear_table "$store")"
dmcreate home "$(linear_table "$base")"
