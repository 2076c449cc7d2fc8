#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# A new user's story, as the README tells it: a snapshot, a backup in full, one of what has changed,
# restored elsewhere and compared, rolled back and removed, in at most ten commands.

. "$(dirname "$0")/common.sh"
# shellcheck source=story.sh
. "$(dirname "$0")/story.sh"

need mkfs.ext4
tools=$(dirname "${COWSNAP_KO:-/none}")/tools
[[ -x $tools/cowsnap ]] || tools=$TESTS_DIR/../tools
PATH=$tools:$PATH
cowsnap --version >/dev/null || bail_out "no cowsnap command that runs here"
mkdir -p /var/lib/cowsnap 2>/dev/null || mount -t tmpfs tmpfs /var/lib
plan 19

base=$(mkloop 24M)
store=$(mkloop 16M)
other=$(mkloop 24M)
head -c 24M /dev/urandom >"$other"
mkfs.ext4 -q "$base"
dir=$TEST_TMP/dir
mkdir "$dir"
at_exit _dmremove data
at_exit _umount "$dir"
# shellcheck disable=SC2034  # for tell
SUBSTITUTE="s,/dev/ORIGIN,$base,g; s,/dev/STORE,$store,g; s,/dev/OTHER,$other,g
	s,/backup/,$TEST_TMP/,g"
day=0

# day_on DEVICE: which day a file says that it is.
day_on()
{
	mount -o ro "$1" "$dir" && cat "$dir/day"
	umount "$dir"
}

before()
{
	case $1 in
	"cowsnap snapshot"*)
		day=$((day + 1))
		((day > 1)) || mount /dev/mapper/data "$dir"
		echo $day >"$dir/day"
		head -c 1M /dev/urandom >"$dir/data-$day"
		;;
	"dd "*)
		echo 3 >"$dir/day"
		sync -f "$dir"
		;;
	"cowsnap rollback"*) umount "$dir" ;;
	esac
}

after()
{
	case $1 in
	*--from*)
		ok "a backup in full would be the same" \
			type_in "cowsnap send data@2 | cowsnap receive $TEST_TMP/whole.img &&
				cmp $TEST_TMP/whole.img $TEST_TMP/data.img"
		;;
	cmp*) is "$(day_on "$other")" 2 "what is restored has the second day" ;;
	"cowsnap rollback"*) is "$(day_on /dev/mapper/data)" 2 "rolled back: the origin has the second day" ;;
	"cowsnap remove"*)
		is "$(day_on "$base")" 2 "removed: the plain device has the second day"
		not_ok "the origin is gone" dmsetup info data
		is "$(cowsnap list | wc -l)" 1 "removed: nothing is left to list"
		ok "the store can be used again" cmp -n 4096 "$store" /dev/zero
		;;
	esac
}

is "$(story_lines "$TESTS_DIR/../README.md" | wc -l)" \
	"$(story_lines "$TESTS_DIR/../README.md" | grep -cE '^(cowsnap|dd|cmp) ')" \
	"each line of the story is a command"
tell "$TESTS_DIR/../README.md"
