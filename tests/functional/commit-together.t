#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Long copies into a store that turns share a commit: it waits for those that are still on their way,
# but not for ever. It writes all that it can, and only what has the other superblock comes later. A
# short copy that goes on where a long one ends goes by the tables as well; and of a store with a log
# the part beside the superblocks is used last.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/log.sh"

need_target delay
TRACING=$(tracefs)
[[ $TRACING ]] || skip_all "no tracefs"
exact_copies
plan 55

MIB=1048576
at_exit commit_wait "$(<"$PARAMETERS/commit_wait")"

turns=0		# whether the origin's disk does
pause=0		# ms that reads of it take

# up SIZE SECTOR CHUNK [FEATURE...]: snapshot s. The first 8 MiB of the origin are on a device that can
# be stopped; no copy waits for the turn of another one.
up()
{
	base=$(mkloop 40M --sector "$2")
	store=$(mkloop "$1" --sector "$2")
	fill "$base" "$TEST_TMP/old"
	put_letter "$base" Q $((20 * MIB)) $MIB
	cp "$base" "$TEST_TMP/old"
	cp "$TEST_TMP/old" "$TEST_TMP/now"
	echo "$turns" >"$(sysfs "$base")/queue/rotational"
	echo 1 >"$(sysfs "$store")/queue/rotational"
	stack_up "$store" "${@:3}"
}

# stack_up STORE CHUNK [FEATURE...]: all that is over $base.
stack_up()
{
	dmcreate late "0 16384 linear $base 0"
	dmcreate slow "$(delay_table "$base" "$pause" 0)"
	dmcreate home "$(printf '%s\n' "0 16384 linear /dev/mapper/late 0" \
		"16384 $(($(sectors "$base") - 16384)) linear /dev/mapper/slow 16384")"
	origin_up o /dev/mapper/home
	snap_up s /dev/mapper/home "$1" P "${@:2}"
}

down()
{
	dmremove s
	dmremove o
	dmremove home
	dmremove slow
	dmremove late
}

# begin OFFSET BYTES...: a write for each, with one request, none of which waits for the one before.
begin()
{
	while (($#)); do
		put /dev/mapper/o "$TEST_TMP/now" "$1" "$2" &
		writers+=("$!")
		shift 2
	done
}

# Copies of the part that is stopped come last.
end_late()
{
	dm resume late
	all_end_well "${writers[@]}"
}

has_begun()
{
	(($(key_of o parked) >= $1))
}

# Of the data of copies.
has_written()
{
	(($(key_of o written_sectors) >= $1))
}

# Milliseconds.
commit_wait()
{
	echo "$1" >"$PARAMETERS/commit_wait"
}

both_wait()
{
	! has_ended "${writers[0]}" && ! has_ended "${writers[1]}"
}

# late_and_early LATE EARLY: a write of 1 MiB to the part that is stopped, then one to the other part.
late_and_early()
{
	writers=()
	dm message o 0 reset_stats
	dm suspend --noflush --nolockfs late
	begin "$1" "$MIB"
	wait_for 60 has_begun 1
	begin "$2" "$MIB"
}

# commits_of LATE EARLY SECTORS: $commits is how many there are, where the copies of LATE (as begin
# has them) come when those of EARLY, so many sectors, have been written.
commits_of()
{
	local before

	writers=()
	dm message o 0 reset_stats
	before=$(key_of s commits)
	dm suspend --noflush --nolockfs late
	# shellcheck disable=SC2086  # words
	begin $1
	wait_for 60 has_begun $(($(wc -w <<<"$1") / 2)) || return
	# shellcheck disable=SC2086  # words
	begin $2
	wait_for 60 has_written "$3" || return
	end_late || return
	commits=$(($(key_of s commits) - before))
}

# trace_commits: from now on.
trace_commits()
{
	: >"$TRACING/trace"
	echo 1 >"$TRACING/events/cowsnap/cowsnap_commit/enable"
}

# How many blocks each of them has written.
traced()
{
	echo 0 >"$TRACING/events/cowsnap/cowsnap_commit/enable"
	sed -n 's/.*cowsnap_commit: .* blocks \([0-9]*\)$/\1/p' "$TRACING/trace" | paste -s -d ' '
}

# ---- copies that come one after the other ----

up 128M 4096 16
commit_wait 60000
ok "of two long copies one comes late" commits_of "0 524288" "$((8 * MIB)) 524288" 1024
is "$commits" 1 "the other one waits for it, and both share a commit"
late_and_early "$MIB" "$((10 * MIB))"
wait_for 60 has_written 2048
sleep 1
ok "while one does not come the other one waits" both_wait
begin $((12 * MIB)) 65536
ok "a short one does not" wait_for 30 has_ended "${writers[2]}"
ok "nor does the long one that shares its commit" wait_for 30 has_ended "${writers[1]}"
ok "all end well" end_late
commit_wait 500
late_and_early "$((2 * MIB))" "$((13 * MIB))"
ok "it waits no longer than it may" wait_for 30 has_ended "${writers[1]}"
not_ok "the one that does not come has not ended" has_ended "${writers[0]}"
ok "they end well" end_late
commit_wait 60000
ok "of the next two one comes late" commits_of "$((6 * MIB)) $MIB" "$((15 * MIB)) $MIB" 2048
is "$commits" 1 "that the time was over once does not count for these"
commit_wait 0
ok "with no time to wait all copies end" \
	commits_of "$((3 * MIB)) $MIB" "$((14 * MIB)) $MIB" 2048
ok "the late one has a commit of its own" [ "$commits" -ge 2 ]
commit_wait 60000
echo 0 >"$(sysfs "$store")/queue/rotational"
ok "where nothing turns all copies end" commits_of "$((5 * MIB)) $MIB" "$((16 * MIB)) $MIB" 2048
ok "nothing waits there either" [ "$commits" -ge 2 ]
ok "the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
ok "the origin has what was written" same /dev/mapper/o "$TEST_TMP/now"
echo 1 >"$(sysfs "$store")/queue/rotational"
late_and_early "$((7 * MIB))" "$((18 * MIB))"
wait_for 60 has_written 2048
dmsetup load late --table "0 16384 error"
dm resume late
ok "nor does it wait for one that cannot be read" wait_for 30 has_ended "${writers[1]}"
ok "its write has ended well" wait "${writers[1]}"
not_ok "that of the other one has not" wait "${writers[0]}"
down

# ---- where the store does not hold copies up ----

turns=1
pause=50
up 128M 4096 16
# It has to know how long they take.
for ((mib = 30; mib < 34; mib++)); do
	put /dev/mapper/o "$TEST_TMP/now" $((mib * MIB)) 65536
done
ok "where reads take longer all copies end" commits_of "0 524288" "$((8 * MIB)) 524288" 1024
ok "nothing waits there" [ "$commits" -ge 2 ]
ok "where reads take longer: the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
down
turns=0
pause=0

# ---- while data is being written ----

# slow_up: the same, with a store whose writes can be held back.
slow_up()
{
	up 128M 4096 16
	down
	dmcreate cow "$(linear_table "$store")"
	stack_up /dev/mapper/cow 16
}

# A superblock names the last commit, so none is written until another one has ended.
noted()
{
	(($(od -An -v -t u8 -N 8 -j 104 "$(loop_file "$store")") == $(key_of s commits)))
}

# No write of the store ends before release_writes; $before is how many commits there were.
hold_writes()
{
	wait_for 60 noted || return
	before=$(key_of s commits)
	swap_table cow "$(delay_table "$store" 0 120000)"
}

# alone OFFSET: one write of 1 MiB, whose data does not get to the store.
alone()
{
	hold_writes || return
	writers=()
	begin "$1" "$MIB"
	wait_for 60 writes_are_delayed cow 1
}

# held_and_late LATE EARLY WAIT: as late_and_early, with this commit_wait; nor does its data get there.
held_and_late()
{
	hold_writes || return
	commit_wait "$3"
	late_and_early "$1" "$2"
	wait_for 60 writes_are_delayed cow 1
}

release_writes()
{
	swap_table cow "$(linear_table "$store")"
}

# So many, since then.
commits_are()
{
	(($(key_of s commits) - before == $1))
}

slow_up
# So that no block with a superblock is needed.
put /dev/mapper/o "$TEST_TMP/now" $((8 * MIB)) $((4 * MIB))
held_and_late "$((2 * MIB))" "$((17 * MIB))" 2000
sleep 3
ok "while data is being written a commit waits longer" commits_are 0
dm resume late
ok "it waits no longer once the late copy has come" wait_for 30 commits_are 1
release_writes
ok "both copies end" all_end_well "${writers[@]}"
ok "they have shared it" commits_are 1
alone $((22 * MIB))
sleep 1
ok "one that comes after several waits while its data is being written" commits_are 0
release_writes
ok "it ends" all_end_well "${writers[@]}"
alone $((23 * MIB))
ok "one that comes after a single one does not" wait_for 15 commits_are 1
release_writes
ok "it ends as well" all_end_well "${writers[@]}"
held_and_late "$((4 * MIB))" "$((18 * MIB))" 200
ok "in the end it does not wait for that either" wait_for 30 commits_are 1
not_ok "no copy ends before its data is there" has_ended "${writers[1]}"
release_writes
ok "then it ends" wait_for 30 has_ended "${writers[1]}"
ok "so does the late one" end_late
held_and_late "$((5 * MIB))" "$((19 * MIB))" 3000
release_writes
ok "once the data is there it waits no longer than it may" wait_for 20 has_ended "${writers[1]}"
not_ok "the late one has not ended" has_ended "${writers[0]}"
ok "late ones end, too" end_late
ok "the snapshot is as it was, by all" same /dev/mapper/s "$TEST_TMP/old"
ok "the origin has what was written, by all" same /dev/mapper/o "$TEST_TMP/now"
down
dmremove cow
commit_wait 60000

# ---- what shares a block with the other superblock ----

# Five copies need both blocks with superblocks, and one behind.
up 128M 4096 16
trace_commits
ok "all copies end" commits_of "0 $MIB" "$((8 * MIB)) $((4 * MIB))" 8192
blocks=$(traced)
like "$blocks" '^[2-9] 1$' "one commit writes all but what has the other superblock, the next one that"
ok "the snapshot is as it was, by both" same /dev/mapper/s "$TEST_TMP/old"
dmremove s
dmremove o
origin_up o /dev/mapper/home
ok "the store is opened again" snap_up s /dev/mapper/home "$store" P 16
ok "opened again, the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
ok "opened again, the origin has what was written" same /dev/mapper/o "$TEST_TMP/now"
down

# ---- short copies, with a log ----

# short OFFSET: of 64 KiB, while a long one of MiB 7 has not been read.
short()
{
	up 128M 4096 16 create log on
	wait_for 60 has_zones "$store" 2 || return
	writers=()
	dm message o 0 reset_stats
	dm suspend --noflush --nolockfs late
	begin $((7 * MIB)) $MIB
	wait_for 60 has_begun 1 || return
	before=$(key_of s records)
	begin "$1" 65536
	wait_for 60 has_written 128 || return
	end_late && records=$(($(key_of s records) - before))
}

ok "a short copy behind a long one ends" short $((8 * MIB))
is "$records" 0 "it goes by the tables"
ok "behind a long one: the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
down
ok "a short copy elsewhere ends" short $((9 * MIB))
is "$records" 1 "it goes by the log"
ok "elsewhere: the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
down

# ---- the part beside the superblocks ----

# place_of LETTER: the first chunk of 8 KiB that begins with 4 KiB of it, in the store's file.
place_of()
{
	LC_ALL=C grep -obUa -m 1 "$(letters "$1" 4096)" "$(loop_file "$store")" |
		awk -F : 'NR == 1 { print int($1 / 8192) }'
}

zones_end()
{
	zones "$store" | awk '{ end = $2 + $3; most = end > most ? end : most } END { print most }'
}

up 128M 4096 16 create log on
ok "zones are named" wait_for 60 has_zones "$store" 2
put /dev/mapper/o "$TEST_TMP/now" $((20 * MIB)) $MIB
ok "a long copy stands behind the zones" [ "$(place_of Q)" -ge "$(zones_end)" ]
ok "behind the zones: the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
down
