#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A store on a disk of its own, which is no quicker than the origin's, is noticed: now and then a read
# and a write of copies end together, which one disk cannot do. There no commit waits for other long
# copies, and no large copy for one that was begun before it.

. "$(dirname "$0")/common.sh"

need_target delay
exact_copies
plan 12

MIB=1048576
LARGE=524288	# bytes of a copy that is large, and long
at_exit commit_wait "$(<"$PARAMETERS/commit_wait")"

# Milliseconds.
commit_wait()
{
	echo "$1" >"$PARAMETERS/commit_wait"
}

# Snapshot s. Reads of the first 8 MiB of the origin, on device late, can be held back.
up()
{
	base=$(mkloop 64M)
	store=$(mkloop 128M)
	fill "$base" "$TEST_TMP/old"
	cp "$TEST_TMP/old" "$TEST_TMP/now"
	echo 1 >"$(sysfs "$base")/queue/rotational"
	echo "write through" >"$(sysfs "$base")/queue/write_cache"
	echo 1 >"$(sysfs "$store")/queue/rotational"
	dmcreate late "0 16384 linear $base 0"
	dmcreate slow "$(linear_table "$base")"
	dmcreate cow "$(linear_table "$store")"
	dmcreate home "$(printf '%s\n' "0 16384 linear /dev/mapper/late 0" \
		"16384 $(($(sectors "$base") - 16384)) linear /dev/mapper/slow 16384")"
	origin_up o /dev/mapper/home
	snap_up s /dev/mapper/home /dev/mapper/cow P 16
}

# write_at MIB [BYTES [FURTHER]]: in the background.
write_at()
{
	put /dev/mapper/o "$TEST_TMP/now" $(($1 * MIB + ${3:-0})) "${2:-$LARGE}" &
	writers+=("$!")
}

# Copies are read for a second, and written for one; one begins each 100 ms.
learn()
{
	local i begun=${EPOCHREALTIME/./}

	writers=()
	swap_table slow "$(delay_table "$base" 1000 0)"
	swap_table cow "$(delay_table "$store" 0 1000)"
	for ((i = 0; i < 40; i++)); do
		write_at $((9 + i / 2)) 131072 $((i % 2 * 524288))
		while ((${EPOCHREALTIME/./} - begun < (i + 1) * 100000)); do
			sleep .01
		done
	done
	all_end_well "${writers[@]}" || return
	swap_table slow "$(linear_table "$base")"
	swap_table cow "$(linear_table "$store")"
}

has_begun()
{
	(($(key_of o parked) >= $1))
}

# Copies of so many large writes.
has_written()
{
	(($(key_of o written_sectors) >= $1 * LARGE / 512))
}

# hold_one MIB: a large write whose copy is not read.
hold_one()
{
	writers=()
	dm message o 0 reset_stats
	dm suspend --noflush --nolockfs late
	write_at "$1"
	wait_for 60 has_begun 1
}

end_all()
{
	dm resume late
	all_end_well "${writers[@]}"
}

# passes LATE OTHER: sets $took, the microseconds until the data of the other one is written.
passes()
{
	local begun i

	writers=()
	dm message o 0 reset_stats
	dm suspend --noflush --nolockfs late
	begun=${EPOCHREALTIME/./}
	write_at "$1"
	for ((i = 0; i < 1000; i++)); do
		! has_begun 1 || break
	done
	write_at "$2"
	for ((i = 0; i < 1000; i++)); do
		! has_written 1 || break
	done
	took=$((${EPOCHREALTIME/./} - begun))
	end_all
}

# A copy that waits for one before it does so for half a second, since that has begun. A machine that
# is busy with others may take as long, but not each time.
passes_at_once()
{
	local i

	for ((i = 0; i < 7; i++)); do
		passes "$i" $((30 + i)) || return
		diag "$took us"
		((took >= 450000)) || return 0
	done
	return 1
}

commit_wait 60000
up
# That a read takes much longer than a write would tell as well.
swap_table cow "$(delay_table "$store" 0 300)"
hold_one 7
write_at 60
wait_for 60 has_written 1
sleep 2
not_ok "as long as nothing is known a commit waits for other long copies" has_ended "${writers[1]}"
ok "both end" end_all
swap_table cow "$(linear_table "$store")"
ok "copies are read and written at the same time" learn
hold_one 6
write_at 61
ok "then a commit waits no more" wait_for 30 has_ended "${writers[1]}"
ok "all end" end_all
ok "a large copy passes one that was begun before it" passes_at_once
dm suspend --noflush --nolockfs late
writers=()
dm message o 0 reset_stats
for ((i = 0; i < 2; i++)); do
	put /dev/mapper/o "$TEST_TMP/now" $((i * MIB + LARGE)) $LARGE &
	writers+=("$!")
done
ok "two are begun" wait_for 60 has_begun 2
for ((i = 40; i < 48; i++)); do
	write_at "$i"
done
ok "in the end eight others go on before two that are not read" wait_for 30 has_written 8
not_ok "the first one has not ended" has_ended "${writers[0]}"
ok "in the end all do" end_all
ok "the snapshot is as it was" same /dev/mapper/s "$TEST_TMP/old"
ok "the origin has what was written" same /dev/mapper/o "$TEST_TMP/now"
