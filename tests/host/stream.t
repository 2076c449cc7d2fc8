#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# cowsnap diff misses nothing, a stream gives the image bit for bit, and one that is cut,
# damaged, or not for this target changes nothing or stops where it can go on. No module is
# needed: the stores are made up, and another program works out what is in them.

set -uo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
here=$top/tests/host
# In memory, where there is some: receive waits for the disk at each step.
memory=$(df --output=avail /dev/shm 2>/dev/null | tail -1)
if [[ ! ${TMPDIR-} ]] && ((${memory:-0} > 400000)); then
	TMPDIR=/dev/shm
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/stream.XXXXXX")
# shellcheck source=tap.sh
. "$here/tap.sh"
trap 'rm -rf "$work"' EXIT

# How many damaged streams are shown to receive.
MUTATIONS=${COWSNAP_STREAM_MUTATIONS:-$((5 * ${COWSNAP_SCALE:-100}))}

# says REGEX DESC: passes if the last command said so, in one line.
says()
{
	if grep -qE -- "$1" "$work/out" && (($(wc -l <"$work/out") == 1)); then
		point ok "$2"
	else
		point 'not ok' "$2"
	fi
}

is()
{
	echo "\"$1\", not \"$2\"" >"$work/out"
	if [[ $1 == "$2" ]]; then
		point ok "$3"
	else
		point 'not ok' "$3"
	fi
}

cowsnap()
{
	"$work/tools/cowsnap" "$@"
}

tool()
{
	perl "$here/stream.pl" "$@"
}

# send [OPTION]... ID: from the store $work/s and the origin $work/o.
send()
{
	cowsnap send --origin "$work/o" "${@:1:$#-1}" "$work/s" "${@:$#}"
}

receive()
{
	cowsnap receive "$@"
}

# take STREAM TARGET [OPTION]...
take()
{
	receive "${@:3}" "$2" <"$1"
}

# Built in a copy, so that the checkout stays as it is.
for header in blkid/blkid.h libdevmapper.h json-c/json.h zstd.h; do
	if ! echo "#include <$header>" | cc -E - >/dev/null 2>&1; then
		echo "1..0 # SKIP no $header"
		exit
	fi
done
mkdir -p "$work/tests"
cp -r "$top/tools" "$top/include" "$work/"
cp -r "$top/tests/fuzz" "$work/tests/"
make -C "$work/tools" clean >/dev/null
# The words are those of messages and manual pages.
export LC_ALL=C
ok "the tools can be built" make -C "$work/tools" cowsnap
ok "the program that makes stores can be built" make -C "$work/tests/fuzz" -B mkstore

# ---- what differs ------------------------------------------------------------------

# differences CHUNK_BYTES ID...: what cowsnap diff misses, and what it says beyond that,
# summed up over all pairs of these snapshots and the origin.
differences()
{
	local bytes=$1 a b missed=0 extra=0 m e

	shift
	for a; do
		for b in "$@" now; do
			[[ $a != "$b" ]] || continue
			read -r m e < <(cowsnap diff --extents "$work/s" "$a" "$b" |
				tool compare "$bytes" "$work/image.$a" "$work/image.$b")
			missed=$((missed + m))
			extra=$((extra + e))
		done
	done
	echo "$missed $extra"
}

# make_store MKSTORE_OPTION...: a store, its origin, and the images of its live snapshots,
# whose ids come to be in $ids.
make_store()
{
	local id

	rm -f "$work"/image.*
	"$work/tests/fuzz/mkstore" "$@" "$work/s" || return
	head -c "$origin_bytes" /dev/urandom >"$work/o"
	# Chunks of zeroes, in the origin alone and beside others.
	dd if=/dev/zero of="$work/o" bs=64k seek=3 count=7 conv=notrunc status=none
	ids=$(cowsnap check -v --no-data "$work/s" | sed -n 's/.* snapshot \([0-9]*\): live.*/\1/p')
	for id in $ids; do
		cowsnap dump "$work/s" | tool image "$work/s" "$work/o" "$id" >"$work/image.$id"
	done
	cp "$work/o" "$work/image.now"
}

origin_bytes=$((4 << 20))
for chunk in 8 16 128; do
	ok "a store with chunks of $chunk sectors, each copied for a write, is made" make_store \
		--plain --origin 8192 --chunk $chunk --snapshots 5 --exceptions $((1600 / chunk)) --bytes 8388608
	# shellcheck disable=SC2086  # words
	is "$(differences $((chunk * 512)) $ids)" "0 0" \
		"chunks of $chunk sectors: diff says exactly what differs"
done
for seed in 1 2 3 4; do
	ok "store $seed, with private, zero and dead versions, is made" make_store --seed $seed \
		--origin 8192 --chunk 16 --block $((512 << seed % 4)) --snapshots 12 --exceptions 300 --bytes 8388608
	# shellcheck disable=SC2086
	is "$(differences 8192 $ids | cut -d' ' -f1)" 0 "store $seed: diff misses nothing"
	for id in $ids; do
		cmp <(send "$id" | { receive "$work/r" && cat "$work/r"; }) "$work/image.$id"
		rm -f "$work"/r*
	done >"$work/out" 2>&1
	is "$(<"$work/out")" "" "store $seed: each snapshot is sent as it is"
done
ok "a store whose last commit had not ended is made" make_store --unfinished --seed 8 --origin 8192 \
	--chunk 16 --snapshots 6 --exceptions 200 --bytes 8388608
id=${ids%%$'\n'*}
epoch=$(cowsnap dump "$work/s" | sed -n "s/^snapshot id $id .* epoch \([0-9]*\) .*/\1/p")
cowsnap diff --extents "$work/s" "$id" now >"$work/extents"
fresh=$(cowsnap dump "$work/s" | grep -c ' fresh 1')
ok "the store whose commit had not ended has slots in doubt" test "$fresh" -gt 0
is "$(cowsnap dump "$work/s" | tool fresh "$epoch" 8192 "$work/extents")" 0 \
	"chunks that a crash has left in doubt are said to differ"

# ---- words of diff -----------------------------------------------------------------

# What a sealed origin begins with is in the store.
ok "a store without holes is made, for a seal" make_store --plain --seed 5 --origin 8192 --chunk 16 \
	--snapshots 3 --exceptions 40 --bytes 8388608
ok "its origin is sealed" cowsnap seal "$work/o" "$work/s"
for id in $ids; do
	ok "snapshot $id of a sealed origin is sent as it was" \
		cmp <(send "$id" | { receive "$work/r" && cat "$work/r"; }) "$work/image.$id"
	rm -f "$work/r"
done

ok "a plain store is made" make_store --plain --origin 8192 --chunk 16 --snapshots 5 \
	--exceptions 150 --bytes 8388608
ok "diff prints a summary" cowsnap diff "$work/s" 1
says '^[0-9]+ of 4194304 bytes differ \([0-9.]+ %\), in [0-9]+ extents of chunks of 8192 bytes$' \
	"diff: the summary is one line"
cowsnap diff --json "$work/s" 1 3 >"$work/json"
# shellcheck disable=SC2016  # Perl's
ok "the JSON can be read, and adds up" perl -MJSON::PP -0777 -ne '
	my $j = decode_json($_);
	my $sum = 0;
	$sum += $_->{length} for @{$j->{extents}};
	exit($sum != $j->{changed_bytes} || $j->{from}{id} != 1 || $j->{to}{id} != 3 || !$sum)' "$work/json"
ends 2 "a snapshot that is not there is refused" cowsnap diff "$work/s" 9
says 'the store has no snapshot 9; cowsnap check -v lists' "diff of a missing snapshot names it, with a remedy"
ends 2 "a word that is no snapshot is refused" cowsnap diff "$work/s" yesterday
says '"yesterday" is no id of a snapshot' "diff of no snapshot names the word"
ends 2 "two snapshots of different origins are refused" cowsnap diff a@1 b@1
says 'b@1: this is no snapshot of the same store as a@1' "diff of two origins names the second snapshot"
ends 2 "send refuses a base in another place than the snapshot" send --from o@1 2
ends 2 "a list that cannot be written is an error" bash -c \
	"'$work/tools/cowsnap' diff --extents '$work/s' 1 >/dev/full"
cp "$work/s" "$work/s.whole"
printf '\377' | dd of="$work/s" bs=1 seek=$((1 << 12 | 2048)) conv=notrunc status=none
printf '\377\377\377' | dd of="$work/s" bs=1 seek=$((1 << 12 | 1024)) conv=notrunc status=none
ends 2 "diff refuses a store with damaged tables" cowsnap diff "$work/s" 1
says 'tables of the store are damaged.* make a full copy' "diff of damaged tables says why, and what to do"
mv "$work/s.whole" "$work/s"

# ---- full and incremental -----------------------------------------------------------

ok "a full stream is received" bash -c "$(declare -f send cowsnap); work=$work
	send 1 >$work/full && cowsnap receive $work/t <$work/full"
ok "the file is the snapshot" cmp "$work/t" "$work/image.1"
send --from 1 4 >"$work/inc"
ok "the changes are received" take "$work/inc" "$work/t"
ok "the file is the newer snapshot" cmp "$work/t" "$work/image.4"
changed=$(cowsnap diff --extents "$work/s" 1 4 | awk '{ n += $2 } END { print n }')
ok "no more than the changes was sent" test "$(stat -c %s "$work/inc")" -lt $((changed * 103 / 100))
send --from 4 1 >"$work/back"
ok "the changes back are received" take "$work/back" "$work/t"
ok "the file is the older snapshot again" cmp "$work/t" "$work/image.1"
ok "a stream of what the file is already is no error" take "$work/back" "$work/t"
says 'it is snapshot 1 .* already; nothing was changed' "a stream of what the file is already: nothing was changed"
ok "a compressed stream is received" bash -c "$(declare -f send cowsnap); work=$work
	send --compress --from 1 4 | tee $work/packed | cowsnap receive $work/t"
ok "the file is the newer snapshot, by a compressed stream" cmp "$work/t" "$work/image.4"
ok "zeroes take no room in a file" test "$(stat -c %b "$work/t")" -le $(((origin_bytes - 7 * 65536) / 512 + 512))

yes words of a text | head -c "$origin_bytes" >"$work/text"
cowsnap send --compress --origin "$work/text" "$work/s" 4 >"$work/packed"
cowsnap send --origin "$work/text" "$work/s" 4 >"$work/plain"
ok "a text is sent in less than half of its size" test "$(stat -c %s "$work/packed")" -lt $(($(stat -c %s "$work/plain") / 2))
take "$work/packed" "$work/t1"
take "$work/plain" "$work/t2"
ok "a compressed stream gives what a plain one does" cmp "$work/t1" "$work/t2"
rm -f "$work"/t[12]*

start=${EPOCHREALTIME/./}
send --throttle 2M --from 1 4 >"$work/out"
took=$((${EPOCHREALTIME/./} - start))
# The sender counts in whole milliseconds.
ok "a throttled stream takes its time" test "$took" -ge $(($(stat -c %s "$work/out") * 1000000 / (2 << 20) - 2000))
ok "a stream says how far it is" bash -c "$(declare -f send cowsnap); work=$work
	send --progress --from 1 4 2>&1 >/dev/null"
says '^sent [0-9.]+[KM] of the image as a stream of [0-9.]+[KM], in [0-9]s$' "a stream says how far it is in one line, at the end"

# ---- bad requests -------------------------------------------------------------------

ends 2 "send refuses the origin as it is now" send now
says 'make a snapshot' "send of the origin names the remedy"
ends 2 "a snapshot is not compared with itself" send --from 1 1
ends 2 "without its origin a snapshot cannot be sent" bash -c \
	"'$work/tools/cowsnap' send '$work/s' 1 >'$work/none.stream'"
says 'name that with --origin' "send without the origin names --origin"
head -c 1M "$work/o" >"$work/short"
ends 2 "an origin that is too short is refused" cowsnap send --origin "$work/short" "$work/s" 1
ends 2 "a rate that is none is refused" send --throttle fast 1
says '^cowsnap: fast: this is no rate; 20M' "a rate that is none is named"
ends 2 "a token that is none is refused" send --resume cowsnap1-12 1
says 'this is no token' "a token that is none is named"
ends 2 "a stream that cannot be written is an error" bash -c \
	"'$work/tools/cowsnap' send --origin '$work/o' '$work/s' 1 >/dev/full"
says 'the stream: No space left' "a stream that cannot be written: why is said"

# ---- not for this target ------------------------------------------------------------

# refuses DESC STREAM REGEX [OPTION]...: the file $work/t keeps every byte and its state.
refuses()
{
	cp "$work/t" "$work/t.before"
	cp "$work/t.cowsnap" "$work/t.cowsnap.before" 2>/dev/null
	ends 2 "$1" take "$2" "$work/t" "${@:4}"
	says "$3" "$1: why is said"
	cmp "$work/t" "$work/t.before" >"$work/out" 2>&1 &&
		{ [[ ! -e $work/t.cowsnap ]] || cmp "$work/t.cowsnap" "$work/t.cowsnap.before"; } >>"$work/out" 2>&1
	is $? 0 "$1: nothing was changed"
	rm -f "$work"/t*.before
}

send --from 1 2 >"$work/other"
refuses "changes of another base" "$work/other" 'it holds snapshot 4 .*, and the stream needs a copy of snapshot 1'
refuses "a full stream over an image" "$work/full" 'it holds snapshot 4 .*; --force writes over it'
refuses "a file that is no stream" "$work/image.1" 'this is no stream of cowsnap send; nothing was changed'
refuses "an empty stream" /dev/null 'the stream has ended early; nothing was changed'
ok "the image is copied" cp "$work/t" "$work/copy"
send --from 4 2 >"$work/to2"
ends 2 "changes onto a file of which nothing is known" take "$work/to2" "$work/copy"
says 'it is not known what it holds, .* --force if it is one' "changes onto an unknown file: the remedy is --force"
ends 2 "changes onto a file that is too short" take "$work/to2" "$work/short" --force
says 'it is shorter than the image that the changes' "changes onto a file that is too short: why is said"
ok "--force takes an unknown file for the base" take "$work/to2" "$work/copy" --force
ok "--force onto an unknown file gives the right image" cmp "$work/copy" "$work/image.2"
ends 2 "changes onto nothing" take "$work/to2" "$work/nothing"
says 'there is no such file' "changes onto nothing: why is said"
ok "changes onto nothing make no file" test ! -e "$work/nothing"
printf xxxxxxxx | dd of="$work/t" bs=1 seek=100 conv=notrunc status=none
refuses "changes onto an image that was changed" "$work/to2" 'it was changed since it became snapshot 4'
printf x >"$work/data"
ends 2 "a file with other data" take "$work/full" "$work/data"
says 'it holds data; --force writes over it' "a file with other data: what it holds is said"
ok "--force writes over a file with other data" take "$work/full" "$work/data" --force
ok "--force over other data gives the image" cmp "$work/data" "$work/image.1"
cp "$work/s" "$work/store"
ends 2 "a store that is not in use" take "$work/full" "$work/store"
says 'it holds a store of dm-cowsnap; --force writes over it' "a store that is not in use is recognised"
ok "a store that is not in use keeps every byte" cmp "$work/s" "$work/store"
if loop=$(losetup -f --show "$work/store" 2>/dev/null); then
	ends 2 "a device that is a store" take "$work/full" "$loop" --state "$work/loop.state"
	cp "$work/out" "$work/said"
	losetup -d "$loop"
	ok "a device that is a store is recognised" grep -q 'it holds a store of dm-cowsnap' "$work/said"
	ok "a device that is a store keeps every byte" cmp "$work/s" "$work/store"
fi
echo nonsense >"$work/t.cowsnap"
refuses "a target with a damaged state" "$work/inc" 'it is damaged, so that nobody knows'
ok "a full stream with --force puts all right" take "$work/full" "$work/t" --force
ok "a full stream with --force gives the image" cmp "$work/t" "$work/image.1"
# shellcheck disable=SC2094  # it is only locked
(
	flock -x 9
	take "$work/inc" "$work/t" >"$work/said" 2>&1
	echo $? >"$work/status"
) 9<"$work/t"
is "$(<"$work/status")" 2 "a target that another program holds is refused"

# forged FIELD VALUE REGEX: right checksums, wrong numbers.
forged()
{
	tool forge "$1" "$2" <"$work/inc" >"$work/forged"
	refuses "a stream with the $1 $2" "$work/forged" "$3"
}

forged version 2 'its format is version 2, and only 1 is known here'
forged magic other 'this is no stream'
forged header_bytes 127 'its header is damaged'
forged header_bytes 4294967295 'its header is damaged'
forged flags 4 'features unknown here \(0x4\)'
forged flags 2 'the stream needs a copy of snapshot'
forged to_epoch 0 'numbers that cannot be'
forged to_bytes 4194305 'numbers that cannot be'
forged to_bytes 0 'numbers that cannot be'
forged from_bytes 0 'numbers that cannot be'
forged position 4198400 'numbers that cannot be'
forged position 8192 'goes on with one of which nothing is here'
forged from_epoch 77 'the stream needs a copy of snapshot'
forged type 9 'a record of the stream cannot be \(type 9'
forged offset 1 'a record of the stream cannot be'
forged offset 4194304 'a record of the stream cannot be'
forged length 9223372036854775807 'a record of the stream cannot be'
forged length 0 'a record of the stream cannot be'
forged stored 4294967295 'a record of the stream cannot be'
forged stored 100 'a record of the stream cannot be'

# ---- cut, and gone on with ---------------------------------------------------------

# cut_and_go_on STREAM TARGET AT SEND_WORD...: says what is wrong.
cut_and_go_on()
{
	local stream=$1 target=$2 at=$3 token rc=0

	shift 3
	head -c "$at" "$stream" | receive "$target" 2>"$work/said" || rc=$?
	if ((rc == 2)); then
		# Nothing of it was right yet.
		take "$stream" "$target" || echo "cut at $at: the whole does not go"
		return
	fi
	((rc == 1)) || { echo "cut at $at: status $rc" && return; }
	token=$(receive --token "$target")
	grep -qF -- "--resume $token" "$work/said" || echo "cut at $at: no token is said"
	send --resume "$token" "$@" | receive "$target" || echo "cut at $at: does not go on"
}

all_cuts()
{
	local at base=$1 stream=$2 image=$3

	shift 3
	for at in $(tool cuts 24 <"$stream"); do
		rm -f "$work"/c*
		[[ ! $base ]] || cp "$base" "$work/c"
		[[ ! $base ]] || cp "$base.cowsnap" "$work/c.cowsnap"
		cut_and_go_on "$stream" "$work/c" "$at" "$@"
		cmp "$work/c" "$image"
	done
}

is "$(all_cuts "" "$work/full" "$work/image.1" 1 2>&1)" "" "a full stream that is cut goes on, from 24 places"
is "$(all_cuts "$work/t" "$work/inc" "$work/image.4" 4 2>&1)" "" "changes that are cut go on, from 24 places"
send --compress --from 1 4 >"$work/packed"
is "$(all_cuts "$work/t" "$work/packed" "$work/image.4" --compress 4 2>&1)" "" \
	"compressed changes that are cut go on, from 24 places"
cp "$work/t" "$work/c"
cp "$work/t.cowsnap" "$work/c.cowsnap"
ends 1 "changes that are cut end with 1" bash -c "head -c 90000 '$work/inc' | '$work/tools/cowsnap' receive '$work/c'"
ends 2 "a target in the middle of one stream refuses another" take "$work/back" "$work/c"
says 'a stream of snapshot 4 .* has stopped half way in it; go on with cowsnap send --resume' "a target in the middle of a stream names the remedy"
ok "a target in the middle of a stream takes it from its start" take "$work/inc" "$work/c"
ok "a stream sent again from its start gives the image" cmp "$work/c" "$work/image.4"
ends 2 "a whole image has no token" receive --token "$work/c"
token=$(cp "$work/t" "$work/c"; cp "$work/t.cowsnap" "$work/c.cowsnap"
	head -c 90000 "$work/inc" | receive "$work/c" 2>/dev/null; receive --token "$work/c")
send --resume "$token" 4 >"$work/rest"
cp "$work/t" "$work/c"
cp "$work/t.cowsnap" "$work/c.cowsnap"
head -c 50000 "$work/inc" | receive "$work/c" 2>/dev/null
ends 2 "a stream that goes on later than the target has come is refused" take "$work/rest" "$work/c"
says 'the stream goes on at byte [0-9]+, and only [0-9]+ are here; see cowsnap receive --token' "a stream that goes on too late: both places are said"
# The base has grown meanwhile: what is beyond its old end was in no stream.
send --resume "$(receive --token "$work/c")" 4 >"$work/rest"
tool forge from_bytes $(($(stat -c %s "$work/t") + 4096)) <"$work/rest" >"$work/other"
cp "$work/c" "$work/kept"
cp "$work/c.cowsnap" "$work/kept.cowsnap"
ends 2 "a stream whose base has another length does not go on" take "$work/other" "$work/c"
says 'the stream goes on with one of which nothing is here; send it from the start' "a base of another length: why is said"
ok "a base of another length: nothing is changed" bash -c "cmp '$work/c' '$work/kept' && cmp '$work/c.cowsnap' '$work/kept.cowsnap'"
ok "a stream with the right base goes on" take "$work/rest" "$work/c"
ok "a stream with the right base gives the image" cmp "$work/c" "$work/image.4"
# The target of a full stream that was cut, with eight bytes of another content.
cut_and_changed()
{
	rm -f "$work"/c*
	head -c 900000 "$work/full" | receive "$work/c" 2>/dev/null
	part=$(receive --token "$work/c")
	printf xxxxxxxx | dd of="$work/c" bs=1 seek=100 conv=notrunc status=none
}
cut_and_changed
send --resume "$part" 1 >"$work/rest"
ends 2 "a stream does not go on in a target that was changed" take "$work/rest" "$work/c"
says 'it was changed since a stream of snapshot 1 .* stopped half way in it; receive a full' "a target that was changed: why is said"
ends 2 "a changed target refuses the stream from its start" take "$work/full" "$work/c"
ends 2 "a changed target does not go on with --force" take "$work/rest" "$work/c" --force
ok "a changed target takes a full stream with --force" take "$work/full" "$work/c" --force
ok "a full stream over a changed target gives the image" cmp "$work/c" "$work/image.1"
cut_and_changed
head -c 300000 "$work/full" | receive --force "$work/c" 2>/dev/null
ok "a full stream with --force that was cut goes on" bash -c "$(declare -f send cowsnap); work=$work
	send --resume $("$work/tools/cowsnap" receive --token "$work/c") 1 | cowsnap receive $work/c"
ok "a full stream with --force that went on is whole" cmp "$work/c" "$work/image.1"
ends 2 "a token of one snapshot does not send another" send --resume "$token" 3
says 'the stream to be resumed is of epoch 5, this snapshot has epoch 4' "a token of another snapshot: why is said"
ends 2 "a token that was copied badly is refused" send --resume "${token%?}" 4

# killed SIGNAL STATUS: while a slow stream comes in.
killed()
{
	local pid

	rm -f "$work"/c* "$work/pipe"
	mkfifo "$work/pipe"
	send --throttle 1M 1 >"$work/pipe" 2>/dev/null &
	"$work/tools/cowsnap" receive "$work/c" <"$work/pipe" 2>"$work/said" &
	pid=$!
	until [[ -s $work/c ]] || ! kill -0 $pid 2>/dev/null; do sleep .05; done
	kill "-$1" $pid
	# The shell says how it ended.
	{ wait $pid; } 2>/dev/null
	is $? "$2" "SIG$1 ends receive with $2"
	wait
	token=$(receive --token "$work/c")
	ok "after SIG$1 it goes on" bash -c "$(declare -f send cowsnap); work=$work
		send --resume $token 1 | cowsnap receive $work/c"
	ok "after SIG$1 the image is whole" cmp "$work/c" "$work/image.1"
}

ends 2 "a sender that is interrupted says so" bash -c "'$work/tools/cowsnap' send --throttle 1M \
	--origin '$work/o' '$work/s' 1 >'$work/cut.stream' &
	until [[ -s $work/cut.stream ]] || ! kill -0 \$!; do sleep .05; done; kill -TERM \$!; wait \$!"
says 'the stream: interrupted' "an interrupted sender says so in one line"
killed INT 1
killed TERM 1
killed KILL 137

# ---- no room ------------------------------------------------------------------------

rm -f "$work"/c*
ends 1 "a file that may not grow stops the stream" bash -c "ulimit -f 1000
	'$work/tools/cowsnap' receive '$work/c' <'$work/full'"
says 'File too large; go on with cowsnap send --resume' "a file that may not grow: why is said, and how to go on"
ok "the stream goes on where the file may grow" take "$work/full" "$work/c"
ok "the stream that went on after an error gives the image" cmp "$work/c" "$work/image.1"

# A filesystem of 2 MiB, gone with the shell; then there is more room.
# shellcheck disable=SC2016  # the inner shell's
small='mount -t tmpfs -o size=2M tmpfs "$1/small" || exit 9
	"$1/tools/cowsnap" receive "$1/small/c" <"$1/full"
	echo "status $?" >&2
	mount -o remount,size=16M "$1/small"
	"$1/tools/cowsnap" receive "$1/small/c" <"$1/full" && cmp "$1/small/c" "$1/image.1"'
mkdir "$work/small"
if unshare -m mount -t tmpfs tmpfs "$work/small" 2>/dev/null; then
	ok "a filesystem that is full stops the stream, and with more room it goes on" \
		unshare -m bash -c "$small" - "$work"
	cp "$work/out" "$work/said"
	ok "a full filesystem: why is said, and how to go on" grep -qE 'No space left on device; go on with cowsnap send --resume' "$work/said"
	ok "a full filesystem: the status is 1" grep -qx 'status 1' "$work/said"
else
	count=$((count + 1))
	echo "ok $count - a filesystem that is full stops the stream # SKIP no mounts here"
fi
ends 2 "a state that cannot be written changes nothing" take "$work/full" "$work/d" --state /dev/full/state
ok "a state that cannot be written leaves no file" test ! -e "$work/d"
ok "the state may be kept elsewhere" take "$work/full" "$work/d" --state "$work/elsewhere"
ok "a state kept elsewhere is found there" take "$work/inc" "$work/d" --state "$work/elsewhere"
ok "changes with a state kept elsewhere give the image" cmp "$work/d" "$work/image.4"

# ---- damaged ------------------------------------------------------------------------

# mutant WORD...: one sentence, one of three endings, and the image comes to be right in the end.
mutant()
{
	local rc=0 lines token

	cp "$work/t" "$work/c"
	cp "$work/t.cowsnap" "$work/c.cowsnap"
	tool "$@" <"$work/inc" | receive "$work/c" 2>"$work/said" || rc=$?
	lines=$(wc -l <"$work/said")
	case $rc in
	0) cmp "$work/c" "$work/image.4" && ((lines == 0)) || echo "$*: received, and wrong" ;;
	2) cmp "$work/c" "$work/t" && cmp "$work/c.cowsnap" "$work/t.cowsnap" ;;
	1)
		token=$(receive --token "$work/c")
		send --resume "$token" 4 | receive "$work/c"
		cmp "$work/c" "$work/image.4"
		;;
	*) echo "$*: status $rc" ;;
	esac
	((rc == 0 || lines == 1)) || { echo "$*: $lines lines:" && cat "$work/said"; }
	endings[rc]=$((${endings[rc]-0} + 1))
}

for way in drop repeat swap shift; do
	endings=()
	mutant alter $way >"$work/mutants" 2>&1
	is "$(<"$work/mutants")" "" "records that are whole, but $way: the target goes on"
	is "$((${endings[1]-0} + ${endings[2]-0}))" 1 "records that are whole, but $way: it is noticed"
done
endings=()
for ((seed = 0; seed < MUTATIONS; seed++)); do
	mutant mutate "$seed"
done >"$work/mutants" 2>&1
is "$(<"$work/mutants")" "" "$MUTATIONS damaged streams: the target is as it was, or goes on"
ok "of these some changed nothing (${endings[2]-0}), and some were stopped half way (${endings[1]-0})" \
	test "$((${endings[1]-0} * ${endings[2]-0}))" -gt 0
printf '1..%d\n' "$count"
