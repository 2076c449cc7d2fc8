#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# README.md is true: its command lines run as they stand, every key of the status
# lines and every word it promises is known, and the version is one everywhere.

. "$(dirname "$0")/common.sh"

need mkfs.ext4
README=$TESTS_DIR/../README.md
HEADER=$TESTS_DIR/../include/dm-cowsnap.h
plan 14

# block N: the Nth block of commands after the marker, with our devices in it.
block()
{
	awk -v want="$1" '/<!-- run/ { seen = 1 }
		seen && /^```/ { inside = !inside; n += inside; next }
		inside && n == want' "$README" |
		sed "s,/dev/ORIGIN,$base,g; s,/dev/STORE,$store,g; s, /mnt\>, $TEST_TMP/mnt,"
}

# run_block N: each line, and stop at the first that fails.
run_block()
{
	block "$1" >"$TEST_TMP/block"
	diag <"$TEST_TMP/block"
	(
		set -e
		# shellcheck disable=SC2034  # the block uses it
		LEN=$(sectors "$base")
		# shellcheck source=/dev/null
		. "$TEST_TMP/block"
	)
}

# Keys of a status line: every other word, from word $2 on.
keys()
{
	status "$1" | cut -d' ' -f"$2"- | tr ' ' '\n' | sed -n 'p;n'
}

undocumented()
{
	local key

	for key in $(keys s 3) $(keys o 1); do
		grep -q "\`$key\`" "$README" || echo "$key"
	done
}

version=$(sed -n 's/^#define COWSNAP_VERSION "\(.*\)"/\1/p' "$HEADER")
base=$(mkloop 16M)
store=$(mkloop 16M)
mkdir "$TEST_TMP/mnt"
at_exit _dmremove origin
at_exit _dmremove snap
ok "the first lines of use run as they stand" run_block 1
mkfs.ext4 -q /dev/mapper/origin
at_exit _umount "$TEST_TMP/mnt"
ok "and those for a filesystem" run_block 2
ok "the snapshot is mounted" mountpoint -q "$TEST_TMP/mnt"
umount "$TEST_TMP/mnt"
dmremove snap
dmremove origin
at_exit _dmremove monday
at_exit _dmremove tuesday
ok "those for a persistent store" run_block 3
ok "and for rolling back" run_block 4
merged()
{
	status origin | awk '{ split($1, used, "/"); exit !(used[1] == $2) }'
}
wait_for 60 merged || diag "not merged: $(status origin)"
dmremove origin
dd if=/dev/zero of="$store" bs=4096 count=1 status=none

origin_up o "$base"
snap_up s "$base" "$store" P 8 id 3 create
isnt "$(keys s 3)" "" "the status line has keys"
is "$(undocumented)" "" "every key of the status lines is documented"
dmremove s
snap_up s "$base" "$store" P 8 id 4 create throttle 50 on_full wait wait_timeout 9 \
	low_water 80 discard_zeroes_cow discard_passdown_origin
ok "the features of the table are known" dm message s 0 set throttle 60
ok "and the messages" dm message s 0 reset_stats
ok "all of them" dm message s 0 resize
ok "of the store as well" dm message s 0 commit
ok "and on_full" dm message s 0 set on_full drop_oldest
is "$(sed -n 's,.*dm-cowsnap/\([0-9.]*\).*,\1,p' "$README" | sort -u)" "$version" \
	"the README names the version"
is "$(sed -n 's/^## //p' "$TESTS_DIR/../CHANGELOG.md" | head -n 1)" "$version" \
	"and so does the change log"
dmremove s
dmremove o
