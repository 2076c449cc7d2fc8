#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A read of copied chunks whose pages are not the reader's alone is no damage: one buffer
# twice in one request gets what was read last, and no checksum is called wrong.

. "$(dirname "$0")/common.sh"

exact_copies
plan 8

base=$(mkloop 8M)
store=$(mkloop 16M)
fill "$base" "$TEST_TMP/old"
origin_up o "$base"
snap_up s "$base" "$store" P 8
put_letter /dev/mapper/o B 0 1048576

# twice OFFSET BYTES WORDS
twice()
{
	if "$TOOLS/cowio" twice /dev/mapper/s "$1" "$2" >"$TEST_TMP/got" 2>&1; then
		tail -c +$(($1 + $2 + 1)) "$TEST_TMP/old" | head -c "$2" >"$TEST_TMP/want"
		ok "$3: the buffer has what was read last" cmp "$TEST_TMP/want" "$TEST_TMP/got"
	else
		fail "$3: $(<"$TEST_TMP/got")"
	fi
}

twice 8192 4096 "two chunks"
twice 65536 65536 "runs of chunks"
# From two devices, in no order.
at=$((1048576 - 4096))
"$TOOLS/cowio" twice /dev/mapper/s $at 4096 >"$TEST_TMP/got" 2>&1
# shellcheck disable=SC2016  # perl's
ok "a copied chunk and one at home: the buffer has one of the two" perl -e 'local $/;
	open(my $g, "<", $ARGV[0]); open(my $i, "<", $ARGV[1]); seek($i, $ARGV[2], 0);
	read($i, my $both, 8192); my $got = <$g>;
	exit($got ne substr($both, 0, 4096) && $got ne substr($both, 4096))' \
	"$TEST_TMP/got" "$TEST_TMP/old" $at
is "$(key_of s bad_checksums)" 0 "no checksum is called wrong"

# The data of chunk 4, found in the store by what it is, is really damaged.
place=$(perl -e 'local $/; open(my $f, "<", $ARGV[0]); my $all = <$f>;
	open(my $i, "<", $ARGV[1]); seek($i, 4 * 4096, 0); read($i, my $want, 64);
	print index($all, $want)' "$(loop_file "$store")" "$TEST_TMP/old")
blockdev --flushbufs "$store"
ok "the copy of chunk 4 is found in the store" [ "$place" -gt 0 ]
printf xxxxxxxx | dd of="$store" bs=1 seek=$((place + 100)) conv=notrunc,fsync status=none
blockdev --flushbufs "$store"
like "$("$TOOLS/cowio" twice /dev/mapper/s $((3 * 4096)) 4096 2>&1)" 'Input/output error' \
	"damage in the second chunk read is an error"
like "$("$TOOLS/cowio" twice /dev/mapper/s $((4 * 4096)) 4096 2>&1)" 'Input/output error' \
	"damage in the first chunk read is an error"
ok "the wrong checksum is counted" [ "$(key_of s bad_checksums)" -gt 0 ]
