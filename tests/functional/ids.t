#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Many snapshots in one store: each keeps its own instant, whatever is made and deleted
# around it and over a reload of the module; and room that a deleted one kept is used again.
#
# COWSNAP_SNAPSHOTS=N: how many.

. "$(dirname "$0")/common.sh"

need perl
need_target zero
BYTES=524288		# of an origin
MIB=1048576
N=${COWSNAP_SNAPSHOTS:-$(scaled 200)}
((N >= 24)) || N=24
LATER=8			# made when others have been deleted
LAST=$((N + LATER - 1))

exact_copies
plan 35

# Snapshot n has the id ids[n], and sums[n] is the checksum of what it must show. The ids are
# some of 0 to 65535 in an order of their own, 65535 first.
ids=() sums=()
for ((n = 0; n <= LAST; n++)); do
	ids[n]=$(((n * 40503 + 65535) % 65536))
done

# ---- snapshots by their numbers ----

# make FROM TO: these snapshots but the last, three writes to the origin before each.
make()
{
	perl "$TESTS_DIR/functional/origin.pl" snapshots "$TEST_TMP/now" \
		"${ids[@]:$1:$2 - $1}" >"$TEST_TMP/sums" || return
	mapfile -t -O "$1" sums <"$TEST_TMP/sums"
}

delete()
{
	local n

	for n; do
		dmsetup message o 0 delete "${ids[n]}" || return
	done
}

# wrong N...: those whose content is not what the origin had then; ten are opened at a time.
wrong()
{
	while (($#)); do
		wrong_of_ten "${@:1:10}" || return
		shift $(($# < 10 ? $# : 10))
	done
}

wrong_of_ten()
{
	local n table=''
	local -a names=() paths=() lines

	for n; do
		names+=("look$n")
		paths+=("/dev/mapper/look$n")
		table+="look$n,,,rw,$(snap_table "$base" "$store" P 8 id "${ids[n]}");"
	done
	if ! dmsetup create --concise "$table"; then
		echo "cannot open some of $*"
		return 1
	fi
	mapfile -t lines < <(md5sum "${paths[@]}")
	for n; do
		[[ ${lines[0]-} = "${sums[n]} "* ]] || printf '%s ' "$n"
		lines=("${lines[@]:1}")
	done
	dmsetup remove --retry "${names[@]}"
}

# every STEP FROM: numbers below N.
every()
{
	seq "$2" "$1" $((N - 1))
}

freed_more_than()
{
	[[ $(key_of s freed) -gt $1 ]]
}

reload_origin()
{
	remove_and_reload o && exact_copies
	origin_up o "$base" store "$store"
}

# ---- many, and a third of them deleted ----

make_many()
{
	local -a sample

	base=$(mkloop 512K)
	store=$(mkloop $((N / 40 + 4))M)
	fill "$base" "$TEST_TMP/now"
	sums[0]=$(md5sum <"$TEST_TMP/now")
	sums[0]=${sums[0]%% *}
	origin_up o "$base"
	ok "the first snapshot gets the highest id" snap_up s "$base" "$store" P 8 id 65535 create
	ok "$N live snapshots are made in one store" make 1 "$N"
	is "$(key_of o snapshots)" "$N" "the origin counts its snapshots"
	not_ok "an id larger than 65535 is refused" dm message o 0 create 65536
	not_ok "a snapshot that is there is not made again by a message" \
		dm message o 0 create "${ids[N / 2]}"
	not_ok "a snapshot that is there is not made again by a table" \
		snap_up s2 "$base" "$store" P 8 id "${ids[N / 2]}" create
	dmremove s
	mapfile -t sample < <(every 10 0)
	is "$(wrong "${sample[@]}" $((N - 1)))" "" "every tenth snapshot, and the last, has its instant"
}

exceptions_are()
{
	[[ $(key_of k exceptions) == "$1" ]]
}

nothing_moves()
{
	local was

	was="$(used_sectors s) $(key_of s exceptions)"
	sleep 1
	[[ $was == "$(used_sectors s) $(key_of s exceptions)" ]]
}

delete_a_third()
{
	local before freed used exceptions
	local -a deleted left

	snap_up s "$base" "$store" P 8 id 65535
	before=$(used_sectors s)
	freed=$(key_of s freed)
	mapfile -t deleted < <(every 3 1)
	ok "every third snapshot is deleted" delete "${deleted[@]}"
	is "$(key_of o snapshots)" $((N - ${#deleted[@]})) "the origin counts the snapshots left"
	ok "what deleted snapshots alone kept is freed" wait_for 60 freed_more_than "$freed"
	# The last of it, too.
	wait_for 60 nothing_moves
	ok "the store is less full when snapshots were deleted" [ "$(used_sectors s)" -lt "$before" ]
	used=$(used_sectors s)
	exceptions=$(key_of s exceptions)
	not_ok "a deleted snapshot cannot be opened" snap_up s2 "$base" "$store" P 8 id "${ids[1]}"
	dmremove s
	remove_and_reload o
	exact_copies
	ok "an origin opens the store" origin_up o "$base" store "$store"
	is "$(key_of o snapshots)" $((N - ${#deleted[@]})) "after a reload the snapshots left are there"
	snap_up s "$base" "$store" P 8 id 65535
	is "$(used_sectors s)" "$used" "after a reload the store is as full as it was"
	is "$(key_of s exceptions)" "$exceptions" "after a reload the store has as many versions"
	dmremove s
	mapfile -t left < <(every 3 0 && every 3 2)
	is "$(wrong "${left[@]}")" "" "after a reload each snapshot left has its instant"
	not_ok "after a reload a deleted snapshot is not there" \
		snap_up s2 "$base" "$store" P 8 id "${ids[1]}"
}

# ---- ids and records are given out again ----

reuse_ids()
{
	# The origin has not changed since the last one was made.
	sums[1]=${sums[N - 1]}
	ok "a deleted id is made again" dm message o 0 create "${ids[1]}"
	ok "more snapshots are made, in records that were free" make "$N" $((LAST + 1))
	is "$(wrong 1 0 2 3 "$N" "$LAST")" "" "snapshots made after deletions, and old ones, have their instants"
	reload_origin
	is "$(wrong 1 0 2 3 "$N" "$LAST")" "" \
		"after a reload snapshots made after deletions, and old ones, have their instants"
}

delete_nearly_all()
{
	local -a most

	mapfile -t most < <(every 3 3 && every 3 2)
	ok "nearly all snapshots are deleted" delete "${most[@]}"
	is "$(key_of o snapshots)" $((LATER + 2)) "the origin counts the others"
	is "$(wrong 0 1 "$N" "$LAST")" "" "the other snapshots show their instants"
	dmremove o
}

# ---- room is used again: more is written than the store holds ----

# cycles COUNT [wait]: a snapshot is made, all of the origin written, the snapshot deleted.
# Chunks of 1.5 origins, so that one deleted has to go before the next is written over.
cycles()
{
	local i

	for ((i = 0; i < $1; i++)); do
		dmsetup message o 0 create 1 &&
			put_letter /dev/mapper/o "$((i % 10))" 0 "$BYTES" || return
		dmsetup message o 0 delete 1 || return
		[[ -z ${2-} ]] || wait_for 60 less_than_half || return
	done
}

less_than_half()
{
	[[ $(used_sectors k) -lt $((BYTES * 5 / 4 / 512)) ]]
}

room_is_used_again()
{
	local base store

	base=$(mkloop 512K)
	store=$(mkloop 1250K)
	fill "$base" "$TEST_TMP/now"
	origin_up o "$base"
	snap_up k "$base" "$store" P 8
	put_letter /dev/mapper/o A 0 "$BYTES"
	put /dev/mapper/k "$TEST_TMP/now" 8192 4096
	ok "ten times the store is written, snapshots made and deleted" cycles 25 wait
	ok "a snapshot that was there all along is whole" same /dev/mapper/k "$TEST_TMP/now"
	ok "ten times the store is written without waiting for what is freed" cycles 25
	like "$(status k)" '^[0-9]+/' "the store has not become full"
	ok "a snapshot is whole when nothing waited for what is freed" same /dev/mapper/k "$TEST_TMP/now"
	remove_and_reload k o
	exact_copies
	snap_up k "$base" "$store" P 8
	ok "after a reload the snapshot is whole" same /dev/mapper/k "$TEST_TMP/now"
	dmremove k
}

# ---- what is deleted makes room for the very next write ----

# Zeroes are kept without data, so a full store is made quickly.
room_for_the_next_write()
{
	local base=/dev/mapper/zeroes store chunks=32768 tables=128

	dmcreate zeroes "0 $((chunks * 8)) zero"
	store=$(mkloop $(((chunks + tables + 2) * 4096)))
	origin_up o "$base"
	snap_up k "$base" "$store" P 8 id 1 create
	dmreload o "$(origin_table "$base" store "$store")"
	dmremove k
	put_letter /dev/mapper/o 0 0 $((chunks * 4096)) $MIB
	snap_up k "$base" "$store" P 8 id 2 create
	like "$(status k)" '^[0-9]+/' "a store is full to the brim, and valid"
	ok "a snapshot is deleted, and the origin written at once" \
		perl "$TESTS_DIR/functional/origin.pl" delete-and-write 1
	like "$(status k)" '^[0-9]+/' "the snapshot left is valid"
	ok "the snapshot left has what was written over" wait_for 60 exceptions_are $((8 * MIB / 4096))
	dmremove k
	dmremove o
}

make_many
delete_a_third
reuse_ids
delete_nearly_all
room_is_used_again
room_for_the_next_write
