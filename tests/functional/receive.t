#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Streams are received into an origin with a store: its snapshots keep each image bit for bit,
# whether or not the stream was killed, damaged or sent for another base.

. "$(dirname "$0")/common.sh"

need_command

ROUNDS=$(scaled 12)
STATE=/var/lib/cowsnap/receive/'!dev!mapper!dst'

# receive_into TARGET FROM TO [OPTION]...: a stream of the origin src; FROM "" sends in full.
receive_into()
{
	"$tool" send ${2:+--from "src@$2"} "src@$3" | "$tool" receive "${@:4}" "$1"
}

# content SNAPSHOT FILE: what it shows, through a device of its own.
content()
{
	"$tool" activate "$1" >/dev/null && image "/dev/mapper/$1" "$2" && "$tool" deactivate "$1"
}

# shows SNAPSHOT IMAGE
shows()
{
	content "$1" "$TEST_TMP/content" && cmp "$TEST_TMP/content" "$2"
}

# newest: number of the last snapshot of dst.
newest()
{
	"$tool" list dst | awk '$1 ~ /^dst@/ { sub(/.*@/, "", $1); print $1 }' | sort -n | tail -n 1
}

# refused REGEX DESC COMMAND...: with one sentence that has REGEX in it, and dst stays as it is.
refused()
{
	local regex=$1 desc=$2 rc=0

	shift 2
	image /dev/mapper/dst "$TEST_TMP/before"
	cp "$STATE" "$TEST_TMP/state" 2>/dev/null || : >"$TEST_TMP/state"
	"$@" >"$TEST_TMP/said" 2>&1 || rc=$?
	diag <"$TEST_TMP/said"
	ok "$desc: is refused" test "$rc" -eq 2
	ok "$desc: one sentence says why" grep -qE -- "$regex" "$TEST_TMP/said"
	ok "$desc: the origin is as it was" same /dev/mapper/dst "$TEST_TMP/before"
	cmp -s "$STATE" "$TEST_TMP/state" || [[ ! -e $STATE && ! -s $TEST_TMP/state ]]
	is $? 0 "$desc: what is noted of it is as it was"
}

_forget()
{
	local name

	dmsetup ls | awk '/^(src|dst)@/ { print $1 }' | xargs -rn1 dmsetup remove
	for name in src dst other; do
		_dmremove "$name"
	done
	rm -f "$STATE"
}
at_exit _forget

"$tool" create --name src "$(mkloop 8M)" "$(mkloop 32M)" >/dev/null
base=$(mkloop 8M)
"$tool" create --name dst "$base" "$(mkloop 128M)" >/dev/null
fill /dev/mapper/src "$TEST_TMP/now"
fill /dev/mapper/dst "$TEST_TMP/own"
"$tool" snapshot dst >/dev/null
# Three images: little between the first two, much between the others.
for number in 1 2 3; do
	cp "$TEST_TMP/now" "$TEST_TMP/image$number"
	"$tool" snapshot src >/dev/null
	put /dev/mapper/src "$TEST_TMP/now" $((number * 65536)) 8192
	((number < 2)) || put /dev/mapper/src "$TEST_TMP/now" $((2 << 20)) $((4 << 20))
done

# ---- from image to image

refused 'it is not known what it holds' "changes for an origin of which nothing is known" \
	receive_into dst 1 2 --snapshot
ok "a full stream is received" receive_into dst "" 1 --snapshot
is "$(<"$TEST_TMP/out")" dst@2 "the snapshot that it got is said"
ok "the origin is the image" same /dev/mapper/dst "$TEST_TMP/image1"
ok "its older snapshot has what was there" shows dst@1 "$TEST_TMP/own"
# The same again is no change, though the store has copied it.
dd if="$TEST_TMP/image1" of=/dev/mapper/dst bs=4096 count=2 skip=16 seek=16 oflag=direct \
	conv=notrunc status=none
ok "the changes are received, by the path of the origin" receive_into /dev/mapper/dst 1 2 --snapshot
ok "the origin is the newer image" same /dev/mapper/dst "$TEST_TMP/image2"
ok "its oldest snapshot has what was there first" shows dst@1 "$TEST_TMP/own"
ok "the next has the first image" shows dst@2 "$TEST_TMP/image1"
ok "the last has the newer image" shows dst@3 "$TEST_TMP/image2"
# Slow enough that there is more to send when it is known that nothing has to be done.
again()
{
	# shellcheck disable=SC2317  # run by ok
	"$tool" send --throttle 8K --from src@1 src@2 | "$tool" receive --snapshot dst
}
ok "the same changes again are no error" again
is "$(newest)" 3 "the same changes again make no snapshot"
ok "without --snapshot none is made" receive_into /dev/mapper/dst 2 1
is "$(newest)" 3 "receive without --snapshot has made none"
ok "the same stream again with --snapshot makes the snapshot" receive_into dst 2 1 --snapshot
is "$(newest)" 4 "the image that was there has its snapshot"
ok "the snapshot made afterwards shows the image" shows dst@4 "$TEST_TMP/image1"

# ---- another base

refused 'it holds snapshot 1 .*, and the stream needs a copy of snapshot 2' "changes of another base" \
	receive_into dst 2 3 --snapshot
# Not where a sample is taken.
put /dev/mapper/dst - 69632 4096
refused 'it was changed since .*; cowsnap rollback dst@4' "an origin that was written meanwhile" \
	receive_into dst 1 2 --snapshot
ok "the remedy works" "$tool" rollback -q dst@4
ok "after the rollback the changes are received" receive_into dst 1 2 --snapshot
ok "the origin is the newer image again" same /dev/mapper/dst "$TEST_TMP/image2"
last=$(newest)

# ---- killed

# again SEND_WORD...: if receive was at its end before it was killed, it does not want the stream.
again()
{
	"$tool" send "$@" 2>/dev/null | "$tool" receive --snapshot dst
	return "${PIPESTATUS[1]}"
}

# killed FROM TO TENTHS: receive is, after part of the time that the stream takes; what is wrong.
killed()
{
	local from=$1 to=$2 pipe=$TEST_TMP/pipe token

	rm -f "$pipe"
	mkfifo "$pipe"
	# A shell of its own: it says how receive ended, sooner or later.
	(
		"$tool" send --throttle 6M --from "src@$from" "src@$to" >"$pipe" &
		"$tool" receive --snapshot dst <"$pipe" >/dev/null &
		sleep "0.$3"
		kill -KILL $!
		wait
	) 2>/dev/null
	shows "dst@$last" "$TEST_TMP/image$from" || echo "killed at $3: the base has changed"
	if token=$("$tool" receive --token /dev/mapper/dst 2>/dev/null) && (($3 % 2)); then
		again --resume "$token" "src@$to"
	else
		again --from "src@$from" "src@$to"
	fi >"$TEST_TMP/said" 2>&1 || { echo "killed at $3: it does not go on" && cat "$TEST_TMP/said"; }
	same /dev/mapper/dst "$TEST_TMP/image$to" || echo "killed at $3: the image is wrong"
	shows "dst@$last" "$TEST_TMP/image$from" || echo "killed at $3: the base is not kept"
	last=$(newest)
	shows "dst@$last" "$TEST_TMP/image$to" || echo "killed at $3: the image is not kept"
}

for ((round = 0; round < ROUNDS; round++)); do
	killed $((2 + round % 2)) $((3 - round % 2)) $((round % 6 + 1))
	((round % 3)) || "$tool" delete "dst@$((last - 1))" || echo "it cannot be deleted"
done >"$TEST_TMP/wrong" 2>&1
is "$(<"$TEST_TMP/wrong")" "" "killed $ROUNDS times, it goes on, and every image is kept"
if ((ROUNDS % 2)); then
	receive_into dst 3 2 --snapshot >/dev/null
	last=$(newest)
fi

# ---- damaged

"$tool" send --from src@2 src@3 >"$TEST_TMP/stream"
damaged()
{
	cp "$TEST_TMP/stream" "$TEST_TMP/damaged"
	printf '\377\0\377' | dd of="$TEST_TMP/damaged" bs=1 seek="$1" conv=notrunc status=none
	"$tool" receive --snapshot dst <"$TEST_TMP/damaged"
}

refused 'header is damaged' "a stream whose header is damaged" damaged 40
refused 'damaged; nothing was changed' "a stream whose first record is damaged" damaged 170
damaged 3000000 >"$TEST_TMP/said" 2>&1
is $? 1 "a stream that is damaged in its middle stops"
ok "where to go on is said" grep -q 'go on with cowsnap send --resume cowsnap1-' "$TEST_TMP/said"
is "$(newest)" "$last" "no snapshot is made of half an image"
ok "the base is kept" shows "dst@$last" "$TEST_TMP/image2"
token=$("$tool" receive --token /dev/mapper/dst)
ok "a stream damaged in its middle goes on with the token" bash -c \
	"'$tool' send --resume $token src@3 | '$tool' receive --snapshot dst"
ok "the origin is the newest image" same /dev/mapper/dst "$TEST_TMP/image3"

# ---- longer than the image

# has IMAGE: as far as that goes.
has()
{
	cmp -n "$(stat -c %s "$1")" /dev/mapper/dst "$1"
}

truncate -s 12M "$(loop_file "$base")"
losetup -c "$base"
"$tool" resize dst >/dev/null
put /dev/mapper/dst - $((9 << 20)) 65536
ok "what is beyond the image is no change of an origin that has grown" receive_into dst 3 2 --snapshot
ok "the origin has the image" has "$TEST_TMP/image2"
put /dev/mapper/dst - 69632 4096
refused 'it was changed since .*; cowsnap rollback dst@' "one that has grown and was written" \
	receive_into dst 2 3 --snapshot

# ---- not for it

not_ok "an origin that is not there is refused" receive_into none 2 3 --snapshot
"$tool" create --name other --transient "$(mkloop 8M)" "$(mkloop 16M)" >/dev/null
not_ok "an origin with a transient store is refused" receive_into other "" 3 --snapshot
like "$(<"$TEST_TMP/out")" 'it has no persistent store' "receive --snapshot without a persistent store: why is said"
"$tool" remove -f other >/dev/null
mkfs.ext4 -q -F /dev/mapper/dst
dir=$(domount /dev/mapper/dst)
not_ok "an origin that is mounted is refused" receive_into dst 2 3 --snapshot
umount "$dir"
done_testing
