#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The cowsnap command takes a device from create to remove, with ext4 and XFS, mounted or not,
# alone or in a group; what is killed on its way goes on when it is run again.

. "$(dirname "$0")/common.sh"

need mkfs.ext4 mkfs.xfs perl
expect_log 'I/O error'

need_command

view=$TEST_TMP/view
second=$TEST_TMP/second
mkdir "$view"

cowsnap()
{
	diag "cowsnap $*"
	"$tool" "$@"
}

# refused REGEX DESC ARGS...: cowsnap ARGS ends with 2 and one sentence that has REGEX in it.
refused()
{
	refuses cowsnap "$@"
}

# option_of ORIGIN OPTION: what status says of it.
option_of()
{
	"$tool" status "$1" | awk -v option="$2" '$1 == option { print $2 }' | sort -u | xargs
}

# state NAME: what list says of an origin or a snapshot; "" if there is none.
state()
{
	"$tool" list | awk -v name="$1" '$1 == name { print $(NF - 1) }'
}

is_state()
{
	[[ $(state "$1") == "$2" ]]
}

# What a clone that did not end has left is not this test's.
rm -f /var/lib/cowsnap/clone-*

journal_is_there()
{
	compgen -G '/var/lib/cowsnap/clone-*[0-9a-f]' >/dev/null
}

table_of()
{
	dmsetup table "$1" 2>/dev/null | awk '{ print $3 }'
}

# _forget: whatever a failed part has left.
_forget()
{
	local name

	umount -q "$second" "$view" 2>/dev/null
	dmsetup ls | awk '/^[a-z]+(@|-setup)/ { print $1 }' | xargs -rn1 dmsetup remove
	for name in data more vol vol-home; do
		_dmremove "$name"
	done
}
at_exit _forget

# ---- from create to remove, on a plain device ----

# whole_way TYPE SIZE: 12 points
whole_way()
{
	local type=$1

	base=$(mkloop "$2")
	store=$(mkloop 64M)
	ok "$type: create" cowsnap create --name data "$base" "$store"
	dir=$(mkmount /dev/mapper/data "$type")
	echo old >"$dir/file"
	is "$(cowsnap snapshot data | tail -n 1)" data@1 "$type: snapshot says what it has made"
	echo new >"$dir/file"
	sync -f "$dir"
	ok "$type: mount" cowsnap mount data@1 "$view"
	is "$(<"$view/file")" old "$type: the snapshot has the old file"
	ok "$type: umount" cowsnap umount "$view"
	not_ok "$type: the device of the snapshot is gone" dmsetup info data@1
	ok "$type: mount for writing" cowsnap mount -w data@1 "$view"
	echo own >"$view/own"
	[[ $type != ext4 ]] || not_while_mounted
	[[ $type != ext4 ]] || not_below
	[[ $type != ext4 ]] || not_twice
	cowsnap umount data@1 >/dev/null
	umount "$dir"
	ok "$type: rollback" cowsnap rollback -q data@1
	is "$(state data@1)" "" "$type: the snapshot is gone with that"
	mount "/dev/mapper/data" "$dir"
	is "$(cat "$dir/file" "$dir/own" | xargs)" "old own" \
		"$type: the origin is what the snapshot was"
	[[ $type != ext4 ]] || not_with_snapshots
	umount "$dir"
	ok "$type: remove" cowsnap remove data
	is "$(blkid -p -o value -s TYPE "$base") $(blkid -p -o value -s TYPE "$store")" "$type " \
		"$type: the plain device is there, the store can be used again"
}

not_while_mounted()
{
	is "$(state data@1)" live "list has the snapshot"
	refused "mounted on $view" "a snapshot that is mounted is not deleted" delete data@1
	refused "mounted on $dir" "a mounted origin is not rolled back" rollback data@1
}

not_below()
{
	mount -t tmpfs none "$view"
	refused "something else was mounted there after data@1" \
		"what was mounted over a snapshot is not taken away" umount data@1
	umount "$view"
}

not_twice()
{
	mkdir "$second"
	mount --bind "$view" "$second"
	is "$("$tool" umount -n "$second")" "umount $second" \
		"a dry run of umount keeps the device that is mounted elsewhere"
	ok "umount finds the second place of a snapshot" cowsnap umount "$second"
	not_ok "nothing is mounted there" mountpoint -q "$second"
	is "$(findmnt -no SOURCE "$view")" /dev/mapper/data@1 "the first place stays mounted"
}

not_with_snapshots()
{
	cowsnap snapshot data >/dev/null
	refused 'it has 1 snapshot' "remove does not delete snapshots" remove data
	ok "delete" cowsnap delete data@1
	refused "mounted on $dir" "an origin that is mounted is not removed" remove data
}

whole_way ext4 16M
whole_way xfs 320M
diag "after $SECONDS s"

# ---- a mapped device that is mounted ----

base=$(mkloop 16M)
store=$(mkloop 16M)
dmcreate vol "0 $(sectors "$base") linear $base 0"
dir=$(mkmount /dev/mapper/vol ext4)
exec {held}>"$dir/held"
cowsnap create --dry-run /dev/mapper/vol "$store" >"$TEST_TMP/lines"
is "$(table_of vol)" linear "mounted: a dry run changes nothing"
ok "mounted: create takes the volume over" cowsnap create /dev/mapper/vol "$store"
is "$(table_of vol)" cowsnap-origin "mounted: it is an origin"
echo old >&$held
cowsnap snapshot vol >/dev/null
echo new >"$dir/file"
ok "mounted: a snapshot of it is mounted" cowsnap mount vol@1 "$view"
not_ok "mounted: the snapshot lacks the new file" test -e "$view/file"
is "$(<"$view/held")" old "mounted: it has what an open file got before"
cowsnap umount "$view" >/dev/null
dmsetup table vol >"$TEST_TMP/made"
ok "mounted: create again does nothing" cowsnap create /dev/mapper/vol "$store"
ok "mounted: create again with what is so already, and what can be set" \
	cowsnap create --chunk 4K --discard skip --low-water 71 --copy-ahead 1M \
	/dev/mapper/vol "$store"
is "$(option_of vol low_water) $(option_of vol copy_ahead)" "71 1024" "mounted: that is set"
refused 'chunks of 4K, --chunk says 64K; leave out --chunk, or .*cowsnap remove vol' \
	"mounted: create again with other chunks" \
	create --chunk 64K --low-water 72 /dev/mapper/vol "$store"
refused 'discard skip, --discard says none; leave out --discard, or .*cowsnap remove --keep vol' \
	"mounted: create again with another discard" \
	create --discard none --low-water 72 /dev/mapper/vol "$store"
is "$(option_of vol low_water)" 71 "mounted: a refusal sets nothing"
ok "mounted: remove --keep gives the table back" cowsnap remove --keep vol
is "$(table_of vol)" linear "mounted: the volume is plain again"
refused 'store with snapshots' "mounted: a store with snapshots is not overwritten" \
	create /dev/mapper/vol "$store"
refused 'chunks of 4K, --chunk says 8K; leave out --chunk' \
	"mounted: create --existing with other chunks" \
	create --existing --chunk 8K /dev/mapper/vol "$store"
ok "mounted: create --existing" cowsnap create --existing --low-water 73 /dev/mapper/vol "$store"
is "$(option_of vol low_water)" 73 "mounted: it takes an option"
is "$(state vol@1)" live "mounted: its snapshot is there"
ok "mounted: remove --force" cowsnap remove --force vol
# The lines of the dry run, as a shell reads them.
ok "mounted: the lines of the dry run run" bash -e "$TEST_TMP/lines"
is "$(dmsetup table vol | cut -d ' ' -f 1-3,5-)" "$(cut -d ' ' -f 1-3,5- "$TEST_TMP/made")" \
	"mounted: they do what create did"
cowsnap remove vol >/dev/null
exec {held}>&-
is "$(<"$dir/file")" new "mounted: the files are there"
umount "$dir"
dmremove vol
refused 'no volume of the device mapper' "a mounted plain device is not taken over" \
	create "$(findmnt -no SOURCE "$(domount "$base")")" "$store"

diag "after $SECONDS s"

# ---- a group ----

one=$(mkloop 16M)
two=$(mkloop 16M)
slow=$(mkloop 16M)
dmcreate slow "0 $(sectors "$slow") delay $slow 0 0 $slow 0 20000 $slow 0 0"
store=$(mkloop 16M)
other=$(mkloop 16M)
third=$(mkloop 16M)
cowsnap create --name data "$one" "$store" >/dev/null
dmcreate room "0 $(sectors "$other") linear $other 0"
cowsnap create --name more "$two" /dev/mapper/room >/dev/null
# The writer of a number to the first writes it to the second afterwards.
perl -e 'use Fcntl; sysopen(A, "/dev/mapper/data", O_WRONLY | O_SYNC) or die;
	sysopen(B, "/dev/mapper/more", O_WRONLY | O_SYNC) or die;
	for ($i = 1; ; $i++) { for my $f (*A, *B) {
		sysseek($f, 0, 0); syswrite($f, sprintf("%-512d", $i)) or die } }' &
writer=$!
has_number()
{
	[[ $(dd if=/dev/mapper/more bs=512 count=1 iflag=direct status=none | tr -d ' \0') ]]
}
wait_for 60 has_number
ok "group: two snapshots at one instant" cowsnap snapshot --group data more
kill "$writer"
wait "$writer" 2>/dev/null
cowsnap activate data@1 more@1 >/dev/null
first=$(get /dev/mapper/data@1 0 512 | tr -d ' \0')
second=$(get /dev/mapper/more@1 0 512 | tr -d ' \0')
ok "group: $first and $second are of one instant" \
	test $((first - second)) -ge 0 -a $((first - second)) -le 1 -a "$second" -gt 0
cowsnap deactivate data@1 more@1
refused '"none" is no origin' "group: with one that is not there" snapshot -g data none
is "$(state data@2)" "" "group: none of the others is made"

# One of the stores fails: the other origin has its snapshot by then.
dmreload room "0 $(sectors "$other") error"
refused '"more"' "group: with a store that cannot be written" snapshot -g data more
is "$(state data@2) $(state data) $(state more)" " active active" \
	"group: what was made before is deleted, and all are resumed"
dmreload room "0 $(sectors "$other") linear $other 0"

# A write that takes its time keeps the second from standing still. How long the first does has to
# be seen, on a busy machine as well.
cowsnap create --name vol /dev/mapper/slow "$third" >/dev/null
slow_write()
{
	dd if=/dev/zero of=/dev/mapper/vol bs=4096 count=1 oflag=direct status=none &
	wait_for 60 writes_are_delayed slow 1
}
slow_write
"$tool" snapshot --group --limit 8 data vol >"$TEST_TMP/said" 2>&1 &
waiting=$!
wait_for 60 is_state data suspended
wait_for 60 is_state data active
ok "group: the one that stood still is resumed while the other is waited for" kill -0 "$waiting"
wait "$waiting"
is "$? $(grep -c '^cowsnap: after 8 s not all' "$TEST_TMP/said")" "2 1" \
	"group: one that does not stand still in time"
ok "group: nothing is kept" test -z "$(state data@2)$(state vol@1)"
is "$(state data) $(state vol)" "active active" "group: all are resumed"
slow_write
"$tool" snapshot --group --limit 30 data vol &
victim=$!
wait_for 60 is_state data suspended
kill -KILL "$victim"
ok "group: killed, it leaves nothing suspended" wait_for 60 is_state data active
dmreload slow "$(linear_table "$slow")"
wait 2>/dev/null
is "$(state vol)" active "group: the other is not suspended either"
cowsnap remove -f vol >/dev/null
cowsnap remove -f more >/dev/null
dmremove room
dmremove slow

diag "after $SECONDS s"

# ---- clone ----

clone_again()
{
	"$tool" clone -q data@1 /dev/mapper/slow >"$TEST_TMP/said"
}

cowsnap delete data@1
fill /dev/mapper/data "$TEST_TMP/image"
cowsnap snapshot data >/dev/null
put_letter /dev/mapper/data z 0 65536
target=$(mkloop 16M)
dmcreate slow "0 $(sectors "$target") delay $target 0 0 $target 0 250"
"$tool" clone -q data@1 /dev/mapper/slow &
victim=$!
ok "clone: it notes how far it is" wait_for 60 journal_is_there
kill -KILL "$victim"
wait "$victim" 2>/dev/null
dmreload slow "0 $(sectors "$target") linear $target 0"
ok "clone: killed and run again" clone_again
ok "clone: it goes on where it was" grep -q '^going on at [1-9]' "$TEST_TMP/said"
cowsnap clone -qf data@1 "$two" >"$TEST_TMP/said"
ok "clone: it has every byte" same /dev/mapper/slow "$TEST_TMP/image"

# The target was used for something else since, but not where the copy stopped.
dmreload slow "0 $(sectors "$target") delay $target 0 0 $target 0 250"
"$tool" clone -qf data@1 /dev/mapper/slow &
victim=$!
wait_for 60 journal_is_there
kill -KILL "$victim"
wait "$victim" 2>/dev/null
ok "clone: it is killed on its way" journal_is_there
dmreload slow "0 $(sectors "$target") linear $target 0"
put_letter /dev/mapper/slow x 0 4096
"$tool" clone -qf data@1 /dev/mapper/slow >"$TEST_TMP/said"
ok "clone: a target that was used for something else is copied anew" \
	same /dev/mapper/slow "$TEST_TMP/image"
ok "clone: so has one that was not interrupted" same "$two" "$TEST_TMP/image"
refused 'too small' "clone: a target that is too small" clone data@1 "$(mkloop 8M)"
dmremove slow
cowsnap remove -f data >/dev/null

diag "after $SECONDS s"

# ---- create, killed anywhere ----

dmcreate vol "0 $(sectors "$one") linear $one 0"
begin=${EPOCHREALTIME/./}
cowsnap create /dev/mapper/vol "$store" >/dev/null
took=$((${EPOCHREALTIME/./} - begin))
cowsnap remove vol >/dev/null

# one_round MICROSECONDS: killed after so long, then a whole life.
one_round()
{
	timeout -s KILL "$(printf '%d.%06d' $(($1 / 1000000)) $(($1 % 1000000)))" \
		"$tool" create /dev/mapper/vol "$store" >/dev/null 2>&1
	"$tool" create /dev/mapper/vol "$store" && "$tool" snapshot vol || return
	[[ "$(state vol) $(state vol@1)" == "active live" ]] || return
	"$tool" remove -f vol || return
	[[ $(table_of vol) == linear && ! $(table_of vol-home) && ! $(table_of vol-setup) ]]
}

whole=1
for part in 2 5 8; do
	one_round $((took * part / 10)) >"$TEST_TMP/said" 2>&1 && continue
	whole=0
	diag "killed after $part tenths of $took us:" && diag <"$TEST_TMP/said"
	dmsetup table | diag
	break
done
is "$whole" 1 "create, killed and run again, makes an origin"

diag "after $SECONDS s"

# ---- a transient store ----

ok "transient: create makes the first snapshot" \
	cowsnap create --transient --copy-ahead 0 /dev/mapper/vol "$store"
ok "transient: the next one is in the same store" cowsnap snapshot vol
is "$(state vol@1) $(state vol@2)" "live live" "transient: both are there"
ok "transient: create again with an option" \
	cowsnap create --transient --on-full drop_oldest /dev/mapper/vol "$store"
is "$(option_of vol on_full)" drop_oldest "transient: that is set"
ok "transient: watch" cowsnap watch --count 1
refused 'cowsnap watch vol' "transient: a snapshot has nothing to watch" watch --count 1 vol@1
ok "transient: set" cowsnap set vol copy_ahead 1M low_water 80
is "$("$tool" status vol | awk '$1 == "copy_ahead" { print $2 }' | sort -u)" 1024 \
	"transient: status has the option"
cowsnap delete vol@1 vol@2
is "$("$tool" list vol | wc -l)" 2 "transient: the store is gone with its snapshots"
ok "transient: another one" cowsnap create --transient /dev/mapper/vol "$store"

# ---- what create finds, and what it leaves ----

cowsnap snapshot vol >/dev/null
cowsnap delete vol@1
refused '"vol" has it as a transient store already; cowsnap remove vol' \
	"create: the store is there, and is transient" create /dev/mapper/vol "$store"
is "$("$tool" create --transient /dev/mapper/vol "$store" | xargs)" "/dev/mapper/vol" \
	"create: a first snapshot that is not there is not printed"
cowsnap remove -f vol >/dev/null
dmcreate vol@1 "0 8 zero"
refused 'vol@1' "create: the first snapshot cannot be made" create -t /dev/mapper/vol "$store"
is "$(table_of vol) $(table_of vol-home)" "linear " "create: then the volume is as it was"
plain=$(mkloop 16M)
dmcreate data@1 "0 8 zero"
refused 'data@1' "create: the same of a plain device" create -t --name data "$plain" "$store"
is "$(table_of data)" "" "create: then there is no origin"
dmremove vol@1
dmremove data@1
ok "create: a persistent store" cowsnap create /dev/mapper/vol "$store"
refused '"vol" has it as a persistent store already' \
	"create: the store is there, and is persistent" create --transient /dev/mapper/vol "$store"
cowsnap snapshot vol >/dev/null
cowsnap remove --keep vol >/dev/null
refused 'store with snapshots' "create: a transient store does not overwrite snapshots" \
	create --transient /dev/mapper/vol "$store"
ok "create: unless it is forced to" cowsnap create --transient --force /dev/mapper/vol "$store"
is "$(state vol@1)" live "create: then the first snapshot is there"
cowsnap remove -f vol >/dev/null
dmremove vol

refused '"data-home" is a name that cowsnap uses itself' "create: a name that ends in -home" \
	create --name data-home "$plain" "$store"

# setup_of ORIGIN STORE: the first snapshot of an interrupted run.
setup_of()
{
	dmcreate data-setup "0 $(sectors "$1") cowsnap $1 $2 P 8 3 id 65535 create"
}

setup_of "$plain" "$other"
refused 'dmsetup remove data-setup' "create: what a run with another store has left" \
	create --name data "$plain" "$store"
ok "create: it goes on with the same store" cowsnap create --name data "$plain" "$other"
cowsnap remove data >/dev/null
setup_of "$plain" "$other"
refused 'chunks of 4K, --chunk says 8K; .*dmsetup remove data-setup' \
	"create: what a run with other chunks has left" \
	create --chunk 8K --name data "$plain" "$other"
ok "create: it goes on, with an option" \
	cowsnap create --low-water 74 --name data "$plain" "$other"
is "$(option_of data low_water)" 74 "create: that is set"
cowsnap remove data >/dev/null
setup_of "$plain" "$other"
refused 'dmsetup remove data-setup' "create: what a run of another origin has left" \
	create --name data "$one" "$other"
is "$(table_of data-setup) $(table_of data)" "cowsnap " "create: that is left as it is"
dmcreate data "0 $(sectors "$plain") cowsnap-origin $plain 2 store $other"
dmremove data-setup
dmcreate data-setup "0 8 zero"
refused 'dmsetup remove data-setup' "create: something else has the name, the origin is there" \
	create --name data "$plain" "$other"
dmremove data-setup
refused 'discard skip, --discard says none' "create: nor does it go on with another discard" \
	create --discard none --name data "$plain" "$other"
ok "create: without that it goes on" cowsnap create --name data "$plain" "$other"
is "$("$tool" list data | grep -c @)" 0 "create: the first snapshot is gone"
cowsnap remove data >/dev/null

# ---- nobody mounts an origin that is about to be rolled back ----

# is_claimed DEV: nobody else can mount it.
is_claimed()
{
	! perl -MFcntl -e 'sysopen(my $f, $ARGV[0], O_RDONLY | O_EXCL) or exit 1' "$1"
}

cowsnap create --name data "$plain" "$store" >/dev/null
mkfs.ext4 -q /dev/mapper/data
cowsnap snapshot data >/dev/null
# For some seconds it is tried to take the snapshot's device away.
cowsnap activate data@1 >/dev/null
exec {held}</dev/mapper/data@1
"$tool" rollback -q data@1 >"$TEST_TMP/said" 2>&1 {held}<&- &
pid=$!
ok "rollback: it claims the origin" wait_for 20 is_claimed /dev/mapper/data
not_ok "rollback: then nobody can mount it" mount /dev/mapper/data "$view"
exec {held}<&-
wait "$pid"
is "$? $(<"$TEST_TMP/said")" "0 data is what data@1 was, which is gone" \
	"rollback: the device mapper can change it all the same"
ok "rollback: then it can be mounted" mount /dev/mapper/data "$view"
umount "$view"
cowsnap snapshot data >/dev/null
cowsnap activate data@1 >/dev/null
exec {held}</dev/mapper/data@1
refused 'in use through /dev/mapper/data@1' "rollback: the snapshot stays open" rollback -q data@1
not_ok "rollback: after a failure the origin is free" is_claimed /dev/mapper/data
exec {held}<&-
exec {held}</dev/mapper/data
refused 'in use: end what has it open' "rollback: an open origin is refused" rollback -q data@1
exec {held}<&-
cowsnap remove -f data >/dev/null

# ---- what a discard does, after a rollback that another process ends ----

cowsnap create --discard none --name data "$plain" "$store" >/dev/null
cowsnap snapshot data >/dev/null
put_letter /dev/mapper/data z 0 65536
cowsnap rollback --background data@1
ok "rollback: another process ends it" cowsnap rollback -q data@1
like "$(dmsetup table data)" 'discard none$' "rollback: a discard does what it did"
not_ok "rollback: no note of that is left" test -e /run/cowsnap/data.rollback
cowsnap remove -f data >/dev/null
done_testing
