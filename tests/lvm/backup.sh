# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# The cowsnap command with snapshots that LVM has made: it lists, mounts, clones, compares and
# sends them by LVM's names. A backup in full and of what has changed is restored elsewhere.
#
# A test that sources this has the volume vg/lv of 16 MiB and a function make_snapshot NAME.

# shellcheck source=../functional/story.sh
. "$TESTS_DIR/functional/story.sh"

tool=	# what need_command finds
need_command

BACKUP=$TEST_TMP/backup
# shellcheck disable=SC2034  # for the plan
STORY_POINTS=33 TOLD_POINTS=14

# send TO [FROM]: received into the backup.
send()
{
	"$tool" send ${2:+--from "$2"} "$1" | "$tool" receive "$BACKUP"
}

json_names()
{
	perl -MJSON::PP -0777 -ne 'for my $o (@{decode_json($_)->{origins}}) {
		print join(" ", $o->{name}, sort map { $_->{device} } map { @{$_->{snapshots}} }
			@{$o->{stores}}), "\n" }'
}

# refused REGEX DESC ARGS...: cowsnap ARGS ends with 2 and one sentence that has REGEX in it.
refused()
{
	local rc=0

	"$tool" "${@:3}" >"$TEST_TMP/said" 2>&1 || rc=$?
	diag <"$TEST_TMP/said"
	ok "$2" test "$rc $(grep -cE -- "$1" "$TEST_TMP/said")" = "2 1"
}

look_story()
{
	local target

	is "$("$tool" list --json | json_names)" \
		"vg-lv /dev/mapper/vg-before /dev/mapper/vg-first" "list has both snapshots"
	is "$("$tool" list vg/lv | awk 'NR == 2 { print $1 }')" vg-lv "list knows the volume by LVM's name"
	like "$("$tool" status vg/first)" '^snapshot .*state +live' "status knows a snapshot by LVM's name"
	ok "a snapshot is mounted" "$tool" mount vg/first "$TEST_TMP/view"
	is "$(<"$TEST_TMP/view/file")" first "the mounted snapshot has the file as it was"
	ok "a snapshot is unmounted" "$tool" umount vg/first
	ok "LVM's device of it stays" test -b /dev/vg/first
	target=$(mkloop 16M)
	ok "a snapshot is cloned" "$tool" clone -q vg/first "$target"
	ok "the clone has every byte" cmp "$target" /dev/vg/first
	like "$("$tool" diff vg/first)" '^[1-9][0-9]* of 16777216 bytes differ' "diff: the snapshot differs from the volume"
	not_ok "diff refuses a volume that is no snapshot" "$tool" diff vg/lv
	refused 'a volume of LVM: use lvcreate -s' "LVM makes snapshots" snapshot vg-lv
	refused 'a volume of LVM: use lvremove' "LVM deletes them" delete vg-first
	refused 'a volume of LVM: use lvconvert --merge' "LVM rolls back" rollback vg-first
	refused 'a volume of LVM: use lvremove' "LVM removes the volume" remove vg-lv
}

backup_story()
{
	local dir

	mkdir "$TEST_TMP/view"
	dir=$(mkmount /dev/vg/lv ext4)
	echo before >"$dir/file"
	ok "a snapshot is made" make_snapshot before
	echo first >"$dir/file"
	ok "a second snapshot is made" make_snapshot first
	head -c 1M /dev/urandom >"$dir/more"
	sync -f "$dir"
	look_story
	# Two snapshots of one volume may have the same number, in stores of their own.
	ok "a full backup" send vg/first
	ok "the full backup is the snapshot" cmp "$BACKUP" /dev/vg/first
	echo second >"$dir/file"
	ok "a later snapshot is made" make_snapshot second
	echo now >"$dir/file"
	sync -f "$dir"
	"$tool" send --from vg/first vg/second >"$TEST_TMP/stream"
	ok "the stream of what has changed is small" test "$(stat -c %s "$TEST_TMP/stream")" -lt $((6 << 20))
	ok "a backup of what has changed" "$tool" receive "$BACKUP" <"$TEST_TMP/stream"
	ok "the backup of what has changed is the later snapshot" cmp "$BACKUP" /dev/vg/second
	not_ok "changes from another base are refused" send vg/first vg/before
	ok "refused changes leave the backup as it was" cmp "$BACKUP" /dev/vg/second
	umount "$dir"
	ok "a volume for the restored data is made" lvcreate -qq -y -Wn -L 16M -n restored vg
	ok "the backup is restored" dd if="$BACKUP" of=/dev/vg/restored bs=1M oflag=direct status=none
	ok "the restored volume is the snapshot" cmp /dev/vg/restored /dev/vg/second
	ok "LVM rolls the volume back" lvconvert -qq --merge vg/first
	mount /dev/vg/lv "$dir"
	is "$(<"$dir/file")" first "the volume has the file as it was"
	umount "$dir"
	ok "rolled back: the other snapshots are as they were" cmp /dev/vg/restored /dev/vg/second
	ok "volumes and snapshots are removed" lvremove -qq -y vg/second vg/before vg/lv vg/restored
	is "$("$tool" list | wc -l)" 1 "nothing is left to list"
}

# ---- the story that a document tells ----

before()
{
	case $1 in
	*"-n monday"*)
		mount /dev/vg/data "$TEST_TMP/view"
		echo monday >"$TEST_TMP/view/file"
		;;
	*"-n tuesday"*) echo tuesday >"$TEST_TMP/view/file" ;;
	"lvremove -y vg/monday") echo now >"$TEST_TMP/view/file" ;;
	lvconvert*) umount "$TEST_TMP/view" ;;
	esac
}

# file_on VOLUME: what it says.
file_on()
{
	mount -o ro "/dev/vg/$1" "$TEST_TMP/other" && cat "$TEST_TMP/other/file"
	umount "$TEST_TMP/other"
}

after()
{
	case $1 in
	cmp*) is "$(file_on other)" tuesday "what is restored is of Tuesday" ;;
	lvconvert*) is "$(file_on data)" tuesday "the volume rolled back is of Tuesday" ;;
	*vg/data) [[ $1 != lvremove* ]] ||
		is "$("$tool" list | wc -l)" 1 "nothing is left to list" ;;
	esac
}

# told_by DOCUMENT: $TOLD_POINTS points.
told_by()
{
	# shellcheck disable=SC2034  # for tell
	SUBSTITUTE="s, -L 2G , -L 20M ,; s, -L 8G , -L 48M ,; s, -L 20G , -L 16M ,
		s,/backup/,$TEST_TMP/told-,g"
	PATH=$(dirname "$tool"):$PATH
	mkdir "$TEST_TMP/other"
	lvcreate -qq -y -Wn -L 16M -n data vg
	mkfs.ext4 -q /dev/vg/data
	tell "$1"
}
