#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Whichever allocation of memory fails, a request is refused with ENOMEM and changes nothing,
# a write waits, and no snapshot is lost. The task's own allocations fail one after the other
# (fail-nth), those of workers by the function they are made in (stack filter).

. "$(dirname "$0")/common.sh"

FAULTS=/sys/kernel/debug
[[ -e /proc/thread-self/fail-nth && -d $FAULTS/failslab && -d $FAULTS/fail_page_alloc ]] ||
	skip_all "this kernel fails no allocations"
[[ -e $FAULTS/failslab/require-start ]] || skip_all "this kernel has no stack filter for failures"
[[ $(tracefs) ]] || skip_all "this kernel does not trace allocations"

MIB=1048576
SIZE=4
LONG=12	# of an origin whose merge takes several stretches

# The kernel prints where allocations failed, and the module that it has no memory; a failure of
# the module is a BUG or WARNING.
expect_log 'Call Trace|page allocation failure|vmalloc error|Out of memory'

# ---- failing ----

# attribute NAME VALUE: of both kinds of allocations.
attribute()
{
	local kind

	for kind in failslab fail_page_alloc; do
		[[ ! -e $FAULTS/$kind/$1 ]] || echo "$2" >"$FAULTS/$kind/$1" || return
	done
}

# All allocations may fail, those that may sleep too; none does yet.
open_filters()
{
	attribute probability 0
	attribute ignore-gfp-wait 0
	attribute ignore-gfp-highmem 0
	attribute min-order 0
	attribute verbose 0
	attribute space 0
	attribute interval 1
	attribute stacktrace-depth 32
	attribute times -1
}

close_filters()
{
	attribute probability 0
	attribute ignore-gfp-wait 1
	attribute ignore-gfp-highmem 1
	attribute min-order 1
	attribute require-start 0
	attribute require-end 0xffffffffffffffff
}

# failing PERCENT START END: of the allocations with this code on their stack. failing 0: none.
failing()
{
	attribute probability 0
	(($1)) || return 0
	attribute require-start "0x$2"
	attribute require-end "0x$3"
	attribute probability "$1"
}

# The module's code as kallsyms has it: "ADDRESS NAME", in order.
functions()
{
	awk '$4 == "[dm_cowsnap]" && $2 ~ /[tT]/ && $3 !~ /^__(cfi|pfx)_/ { print $1, $3 }' \
		/proc/kallsyms | sort -u -k1,1
}

# function_range NAME: "START END" of a function of the module.
function_range()
{
	functions | awk -v name="$1" 'start { print start, $1; exit } $2 == name { start = $1 }'
}

# trace_allocations BOOL: start the trace of allocations, or stop it.
trace_allocations()
{
	local dir event

	dir=$(tracefs)
	echo 0 >"$dir/tracing_on"
	echo 16384 >"$dir/buffer_size_kb"
	for event in kmalloc kmalloc_node kmem_cache_alloc kmem_cache_alloc_node; do
		[[ ! -d $dir/events/kmem/$event ]] ||
			echo "$1" >"$dir/events/kmem/$event/enable"
	done
	(($1)) || return 0
	echo >"$dir/trace"
	echo 1 >"$dir/tracing_on"
}

# sites: the functions that have allocated since trace_allocations 1, "START END NAME" each.
sites()
{
	grep -o 'call_site=[a-zA-Z0-9_.]*+[^ ]* \[dm_cowsnap\]' "$(tracefs)/trace" |
		sed 's/call_site=//; s/+.*//' | sort -u >"$TEST_TMP/names"
	functions | awk -v names="$TEST_TMP/names" '
		BEGIN { while ((getline name < names) > 0) want[name] = 1 }
		last { print start, $1, last; last = "" }
		$2 in want { start = $1; last = $2 }'
}

# ---- the calling task ----

COWNTH_STEP=$((100 / $(scaled 100)))
export COWNTH_STEP

# nth WORDS ARGS...: a point for a walk over the allocations of a request.
nth()
{
	local words=$1

	shift
	ok "$words" "$TOOLS/cownth" "$@"
	diag <"$TEST_TMP/out"
}

open_table()
{
	origin_table "$base" store "$store"
}

# snapshots_are_right WORDS ID...: they show what the origin was.
snapshots_are_right()
{
	local words=$1 id name wrong=''

	shift
	for id; do
		name=look$id
		if ! snap_up "$name" "$base" "$store" P 8 id "$id" >/dev/null 2>&1; then
			wrong+=" $id (cannot be opened)"
			continue
		fi
		same "/dev/mapper/$name" "$TEST_TMP/old$id" >/dev/null 2>&1 || wrong+=" $id ($(status "$name"))"
		dmremove "$name" >/dev/null 2>&1
	done
	is "$wrong" "" "$words"
}

# change N: writes in N places, the same in the file.
change()
{
	local n words=()

	for ((n = 0; n < $1; n++)); do
		words+=($((RANDOM * 128 % (SIZE * MIB - 65536) / 4096 * 4096)) $((4096 << RANDOM % 4)))
	done
	put /dev/mapper/o "$TEST_TMP/now" "${words[@]}"
}

# snapshot ID: made now.
snapshot()
{
	dmsetup message o 0 create "$1" && cp "$TEST_TMP/now" "$TEST_TMP/old$1"
}

requests()
{
	fill "$base" "$TEST_TMP/now"
	nth "an origin is loaded, resumed" create o "$(origin_table "$base")"
	nth "a transient snapshot is loaded, resumed" create s "$(snap_table "$base" "$other" N 8)"
	dmremove s
	nth "a transient snapshot is removed" remove s "$(snap_table "$base" "$other" N 8)"
	cp "$TEST_TMP/now" "$TEST_TMP/old1"
	nth "a persistent snapshot is loaded, resumed" create s \
		"$(snap_table "$base" "$store" P 8 id 1 create)" "$store"
	change 30
	dmremove s
	dmreload o "$(open_table)"
	nth "a snapshot is made" message o "create 2" "delete 2"
	cp "$TEST_TMP/now" "$TEST_TMP/old2"
	change 30
	nth "an option is set" message o "set low_water 50"
	nth "a commit is made" message o "commit"
	nth "a store is told of more room" message o "resize"
	nth "a snapshot is deleted" message o "delete 2" "create 2"
	for id in 3 4 5 6 7 8 9 10 11 12; do
		snapshot "$id"
		change 10
	done
	nth "a snapshot is made, beyond the superblock's" message o "create 13" "delete 13"
	dmremove o
	nth "a store is opened" create o "$(open_table)"
	snapshots_are_right "every snapshot is right" 1 3 4 5 6 7 8 9 10 11 12
}

# ---- workers ----

# One round of everything that workers do, in the background; whether all of it came through
# and the origin's writes succeeded is in $TEST_TMP/load.
load()
{
	{
		change 40 && dmsetup message o 0 commit && change 20 && sync /dev/mapper/o
		echo "$?" >"$TEST_TMP/load"
	} >"$TEST_TMP/load.out" 2>&1 &
	dmsetup message o 0 create "$1" >/dev/null 2>&1
	dmsetup message o 0 delete "$2" >/dev/null 2>&1
	get /dev/mapper/s 0 $MIB 65536 >/dev/null 2>&1
}

# tried PERCENT START END NAME: what came of failures there; "" is good.
tried()
{
	local writer

	# Tables are read again in a store that was closed.
	if ! { dmremove s && dmremove o && dmcreate o "$(open_table)" &&
		snap_up s "$base" "$store" P 8 id 1; }; then
		echo "it cannot be opened again"
		return
	fi
	rm -f "$TEST_TMP/load"
	failing "$1" "$2" "$3"
	load $((100 + round)) $((99 + round)) &
	writer=$!
	sleep 0.7
	failing 0
	wait_for 100 test -s "$TEST_TMP/load" || echo "writes hang"
	wait "$writer"
	[[ $(<"$TEST_TMP/load") == 0 ]] || echo "writes: $(tail -n 1 "$TEST_TMP/load.out")"
	dmsetup message o 0 create "$((100 + round))" 2>/dev/null
	dmsetup message o 0 delete "$((99 + round))" 2>/dev/null
	[[ $(status s) == [0-9]* ]] || echo "status: $(status s)"
	same /dev/mapper/s "$TEST_TMP/old1" >/dev/null || echo "the snapshot differs"
	same /dev/mapper/o "$TEST_TMP/now" >/dev/null || echo "the origin differs"
} >"$TEST_TMP/tried" 2>&1

# tried's own messages are dmsetup's comments as well: those go to the TAP.
found()
{
	grep -v '^$' "$TEST_TMP/tried"
}

work()
{
	local start end name all bad=''

	# What a round does undisturbed, and where it allocates.
	round=0
	snap_up s "$base" "$store" P 8 id 1
	dmsetup message o 0 create 99
	trace_allocations 1
	tried 0 0 0
	trace_allocations 0
	found | diag
	ok "undisturbed, a round comes through" test ! -s "$TEST_TMP/tried"
	mapfile -t all < <(sites)
	diag "$(printf '%s\n' "${all[@]}")"
	ok "the functions in which a round allocates are known" [ "${#all[@]}" -ge 5 ]
	for words in "${all[@]}"; do
		read -r start end name <<<"$words"
		round=$((round + 1))
		tried 100 "$start" "$end"
		if [[ $(found) ]]; then
			bad+=" $name"
			diag "$name:"
			found | diag
			renew
		fi
	done
	is "$bad" "" "workers, all allocations of a function: nothing is lost"
	bad=''
	for percent in 5 20 60; do
		round=$((round + 1))
		tried "$percent" "$(functions | sed -n '1s/ .*//p')" \
			"$(functions | sed -n '$s/ .*//p')"
		if [[ $(found) ]]; then
			bad+=" $percent"
			found | diag
			renew
		fi
	done
	is "$bad" "" "workers, some of all allocations: nothing is lost"
}

# A snapshot that was lost once is no witness: all new.
renew()
{
	dmremove s
	dmremove o
	dd if=/dev/zero of="$store" bs=1M count=1 conv=notrunc status=none
	fill "$base" "$TEST_TMP/now"
	cp "$TEST_TMP/now" "$TEST_TMP/old1"
	origin_up o "$base" && snap_up s "$base" "$store" P 8 id 1 create && dmremove s &&
		dmremove o && dmcreate o "$(open_table)" && snap_up s "$base" "$store" P 8 id 1
	dmsetup message o 0 create "$((100 + round))"
}

# ---- a merge ----

# A merge that is loaded and resumed whichever allocation fails, and goes on by itself.
merge_begins()
{
	dmsetup remove s o
	cp "$TEST_TMP/old1" "$TEST_TMP/now"
	nth "a merge is loaded, resumed" create o "0 $(sectors "$base") cowsnap-merge $base $store P 8 2 id 1"
	# cownth's devices have no nodes.
	dmsetup mknodes o
	ok "the merge comes to its end" wait_for 100 merged
	ok "the merged origin has the snapshot's content" same /dev/mapper/o "$TEST_TMP/now"
	dmremove o
}

# One snapshot of all chunks, and one after it that lives: what the merge writes home has to be
# copied for that one first. The merge itself is loaded, not resumed.
merge_load()
{
	dd if=/dev/zero of="$long_store" bs=1M count=1 oflag=direct status=none
	fill "$long" "$TEST_TMP/merged"
	origin_up o "$long" && snap_up s "$long" "$long_store" P 8 id 1 create &&
		fill /dev/mapper/o - &&
		dmsetup message o 0 create 2 && dmremove s && dmremove o || return
	image "$long" "$TEST_TMP/newer"
	dmcreate cow "$(linear_table "$long_store")"
	dmcreate o "" --notable
	dmload o "0 $(sectors "$long") cowsnap-merge $long /dev/mapper/cow P 8 2 id 1"
}

reads_are_held()
{
	(($(dmsetup status cow | awk '$3 == "delay" { print $4 }')))
}

# How many allocations have failed since `attribute times 1000000`.
failures()
{
	echo $((2000000 - $(<"$FAULTS/failslab/times") - $(<"$FAULTS/fail_page_alloc/times")))
}

has_failures()
{
	(($(failures)))
}

merge_has_ended_or_failed()
{
	merged || merge_failed
}

# merge_in WORDS PERCENT START END: a merge under way, of whose allocations so many fail.
merge_in()
{
	local words="merge, $1" state

	shift
	ok "$words: it is loaded" merge_load || return
	hold_reads cow "$long_store"
	ok "$words: it is resumed" dm resume o
	ok "$words: it is under way, its first reads are held" wait_for 60 reads_are_held
	attribute times 1000000
	failing "$@"
	release_reads cow "$long_store"
	wait_for 20 has_failures
	# What has no memory is tried again each second; or nothing is missing, and it ends.
	wait_for 4 merge_has_ended_or_failed
	failing 0
	ok "$words: allocations have failed: $(failures)" has_failures
	attribute times -1
	state=$(status o)
	diag "then: $state"
	isnt "$state" "Merge failed" "$words: it has not failed"
	ok "$words: it comes to its end" wait_for 100 merged
	ok "$words: the origin has the snapshot's content" same /dev/mapper/o "$TEST_TMP/merged"
	dmremove o
	ok "$words: the newer snapshot is opened" snap_up s "$long" /dev/mapper/cow P 8 id 2
	ok "$words: the newer snapshot is right" same /dev/mapper/s "$TEST_TMP/newer"
	dmremove s
	dmremove cow
}

merge_goes_on()
{
	local range

	long=$(mkloop ${LONG}M)
	long_store=$(mkloop 64M)
	read -ra range <<<"$(function_range cow_merge_work)"
	merge_in "none for its own work" 100 "${range[@]}"
	range=("$(functions | sed -n '1s/ .*//p')" "$(functions | sed -n '$s/ .*//p')")
	merge_in "none for anything" 100 "${range[@]}"
	merge_in "less for everything" 30 "${range[@]}"
}

# ---- the parts of a bio ----

# A write that waited as a whole is cut by a worker: more often than there are pieces in
# reserve, while those in use are under way. Then its parts are written one after the other.
parts()
{
	local bytes=$((MIB / 4)) range words=() at

	read -ra range <<<"$(function_range cow_bio_front)"
	fill "$base" "$TEST_TMP/now"
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	dmcreate cow "$(linear_table "$other")"
	origin_up o "$base"
	snap_up s "$base" /dev/mapper/cow N 8
	for ((at = 4096; at < bytes; at += 8192)); do
		words+=("$at" 4096)
	done
	put /dev/mapper/s "$TEST_TMP/old" "${words[@]}"
	swap_table cow "$(delay_table "$other" 0 4000)"
	# The copy of chunk 0 is what the large write waits for.
	put /dev/mapper/s "$TEST_TMP/old" 0 512 &
	wait_for 60 writes_are_delayed cow 1
	failing 100 "${range[@]}"
	put_letter /dev/mapper/s L 0 "$bytes" "$bytes"
	failing 0
	wait
	swap_table cow "$(linear_table "$other")"
	letters L "$bytes" | dd of="$TEST_TMP/old" conv=notrunc status=none
	ok "a write without memory for its parts writes all of them" same /dev/mapper/s "$TEST_TMP/old"
	ok "a write without memory for its parts leaves the origin alone" \
		same /dev/mapper/o "$TEST_TMP/now"
	dmremove s
	dmremove o
	dmremove cow
}

exact_copies
base=$(mkloop ${SIZE}M)
store=$(mkloop 64M)
other=$(mkloop 16M)
open_filters
at_exit close_filters
(($#)) || set -- parts merge_goes_on requests work merge_begins
for scenario; do
	"$scenario"
done
close_filters
done_testing
