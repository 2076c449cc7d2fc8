#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A merge of four times as many chunks looks at the map four times as often, also where the store
# has data of the origin: each stretch looks no further than its own end.

. "$(dirname "$0")/common.sh"

need_command
need_probes
TRACING=$(tracefs)
MIB=1048576
APART=$((4 * MIB))	# each chunk is a stretch of its own
CHUNKS=64
cow=/dev/mapper/cow
home=/dev/mapper/home
exact_copies
plan 11

probe()
{
	echo 'p:cowprobe/steps dm_cowsnap:leaf_find_group' >>"$TRACING/kprobe_events" ||
		bail_out "looks at the map cannot be counted"
	at_exit unprobe
	echo 0 >"$TRACING/tracing_on"
}

unprobe()
{
	echo 0 >"$TRACING/events/cowprobe/steps/enable"
	echo '-:cowprobe/steps' >>"$TRACING/kprobe_events"
}

count()
{
	echo "$1" >"$TRACING/events/cowprobe/steps/enable"
}

hits()
{
	awk '$1 == "steps" { print $2 }' "$TRACING/kprobe_profile"
}

# steps_of COUNT ID: how often a merge of that snapshot, which has so many chunks far apart, looks at
# the map.
steps_of()
{
	local base store i before id=$2 words="$1 chunks"
	local -a where=()

	base=$(mkloop $(($1 * APART + MIB)))
	store=$(mkloop 64M)
	dmcreate home "$(linear_table "$base")"
	dmcreate cow "$(linear_table "$store")"
	snap_up s "$home" "$cow" P 8 id 1 create log off
	dmremove s
	# shellcheck disable=SC2154  # need_command sets it
	"$tool" seal "$home" "$cow" >/dev/null
	blockdev --flushbufs "$base"
	origin_up o "$home" store "$cow"
	dm message o 0 set settle off
	truncate -s $(($1 * APART + MIB)) "$TEST_TMP/now"
	dm message o 0 set redirect 60
	put /dev/mapper/o "$TEST_TMP/now" $(($1 * APART)) 4096
	dm message o 0 set redirect 0
	dm message o 0 create "$id"
	for ((i = 0; i < $1; i++)); do
		where+=($((i * APART + MIB)) 4096)
	done
	put /dev/mapper/o "$TEST_TMP/now" "${where[@]}"
	is "$("$tool" status o | awk '$1 == "unsettled" { print $2; exit }')" 1 \
		"$words: the store has data of the origin"
	count 1
	before=$(hits)
	dmreload o "0 $(sectors "$home") cowsnap-merge $home $cow P 8 2 id $id"
	ok "$words: the merge ends" wait_for 120 log_says_merged "$id"
	steps=$(($(hits) - before))
	count 0
	is "$(key_of o copied)" "$1" "$words: they had been copied"
	ok "$words: the origin is rolled back" \
		cmp <(get /dev/mapper/o $((3 * APART + MIB)) 4096) <(head -c 4096 /dev/zero)
	isnt "$steps" 0 "$words: the map has been looked at"
	dmremove o
	dmremove cow
	dmremove home
}

probe
steps_of $CHUNKS 2
few=$steps
steps_of $((4 * CHUNKS)) 3
ok "four times as much takes $steps steps instead of $few, no more than five times" \
	test "$steps" -le $((5 * few))
