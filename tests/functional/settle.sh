# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash disable=SC2034,SC2154
#
# What the tests of settling share: a sealed origin that redirects, its snapshots, what is home.

# The origin has 16 of $U.
. "$(dirname "${BASH_SOURCE[0]}")/redirected.sh"
. "$(dirname "${BASH_SOURCE[0]}")/store.sh"

# begin CHUNK LOG: a sealed origin with a snapshot of it, in use; nothing is settled yet.
begin()
{
	begin_sealed "$1" old log "$2"
	up
	redirect_now
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

# crash: what a power cut now would leave.
crash()
{
	cut_now
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

# table_block CHUNK: redirects it, and says where the block with its slot is.
table_block()
{
	dm message o 0 commit
	sleep 1
	cp "$(loop_file "$store")" "$TEST_TMP/before"
	put /dev/mapper/o "$TEST_TMP/now" $(($1 * 4096)) 4096
	by_tables
	lone_block "$TEST_TMP/before"
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

# slots: how many slots of the store say that it has data of the origin, dead ones too, which a dump
# does not have.
slots()
{
	store_tool count "$(loop_file "$store")" "$CURRENT"
}

base=$(mkloop 2M)
store=$(mkloop 16M)
dmcreate cow "$(linear_table "$store")"
dmcreate home "$(linear_table "$base")"
