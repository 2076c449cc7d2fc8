#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What /etc/cowsnaptab lists is started and stopped; what cannot be started is refused with a
# sentence, or given up, and then no outdated snapshot is left to be believed.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/store.sh"
. "$(dirname "$0")/tab.sh"

need mkfs.ext4 blkid
need_command

uuid=11111111-2222-3333-4444-555555555555
base=$(mkloop 32M)
store=$(mkloop 16M)
dir=$TEST_TMP/dir
mkdir "$dir"
mkfs.ext4 -qF -U "$uuid" "$base"

# value_of NAME...: of the third device's store.
value_of()
{
	"$tool" dump "$third" | awk -v names="$*" '
		BEGIN { n = split(names, name, " ") }
		{ value[$1] = $2 }
		END { for (i = 1; i <= n; i++) printf "%s%s", value[name[i]], i < n ? " " : "\n" }'
}

line()
{
	printf 'data\tUUID=%s\t%s\t%s\n' "$uuid" "${2:-$store}" "$1" >"$tab"
}

_forget()
{
	words
	umount -q "$dir" 2>/dev/null
	dmsetup ls | awk '/^data(@|-)/ { print $1 }' | xargs -rn1 dmsetup remove
	_dmremove data
	new_boot
}
at_exit _forget

# A store with one live snapshot, and nothing active.
begin_anew()
{
	_forget
	tab stop >/dev/null 2>&1
	rm -f "$tab"
	head -c 1M /dev/zero >"$store"
	"$tool" enable --file="$tab" --name data -f --store="$store" "$base" >/dev/null
	mount /dev/mapper/data "$dir"
	echo old >"$dir/file"
	"$tool" snapshot data >/dev/null
	echo new >"$dir/file"
	umount "$dir"
	tab stop >/dev/null
}

# ---- as it should be ----

ok "enable of a device that is not in use" \
	cowsnap enable --file="$tab" --name data --store="$store" "$base"
ok "its origin is there at once" active
like "$(<"$tab")" "data.UUID=$uuid.*nofail,store-uuid=" "the line names it by what it keeps"
ok "enable again" cowsnap enable --file="$tab" --name data --store="$store" "$base"
is "$(grep -c . "$tab")" 2 "enable twice: the file has one line (and a head)"
ok "a snapshot is made in the store that enable made" cowsnap snapshot data
ok "start of what is started" tab start
ok "stop of a started origin" tab stop
ok "stopped: the origin is gone" inactive
ok "stop of what is stopped" tab stop data
ok "the store is whole" cowsnap check "$store"
ok "start of a stopped origin" tab start data
is "$(state data@1)" live "started again: the snapshot is live"
tab stop >/dev/null
echo "$(tail -n 1 "$tab"),snapshot=1" >"$tab"
ok "start with a device for the snapshot" tab start
ok "start with snapshot=1: the snapshot has a device" test -b /dev/mapper/data@1
ok "stop takes the snapshot's device away too" tab stop
echo "$(<"$tab"),noauto" >"$tab"
tab start >/dev/null
ok "noauto is left alone" inactive

# ---- what is missing ----

begin_anew
line defaults
sed -i "s/$uuid/none/" "$tab"
refused 'device UUID=none: there is no such device' "without nofail a device that is not there is an error" \
	start data
second=$(mkloop 32M)
dd if="$base" of="$second" bs=1M status=none
line defaults
refused 'both have it; name one by its path' "two devices with that UUID" start
wipefs -qa "$second"
line defaults "$second"
refused "store $second is (none|empty)" "a store that is none" start
head -c 1M /dev/zero >"$second"
refused "store $second is empty, so that its snapshots are lost" "a store that is empty" start
line store-uuid=00000000000000000000000000000000
refused 'is another one, with uuid' "a store with another uuid" start
line defaults /dev/none
refused 'store /dev/none: there is no such device' "a store that is not there" start
ok "refused: no origin was started" inactive
is "$(stored_state)" live "refused: the snapshot is live"

line nofail /dev/none
ok "with nofail a lost store is no failure" tab start
ok "nofail, store missing: no origin is started" inactive
ok "nofail, store missing: /run/cowsnap says why" grep -q 'no such device' /run/cowsnap/data.dropped
ok "nofail, store missing: settle succeeds" tab settle
like "$(<"$tab")" 'invalid=[0-9]+' "nofail, store missing: the line gets invalid="
sed -i "s|/dev/none|$store|" "$tab"
new_boot
ok "the store is back: start succeeds" tab start
is "$(state data@1)" invalid "the store is back: the snapshot is invalid"
# Times are in seconds.
sleep 1
cowsnap snapshot data >/dev/null
tab stop >/dev/null
tab start >/dev/null
is "$(state data@2)" live "a snapshot made after the loss is live"
tab stop >/dev/null

new_boot
line nofail
sed -i "s/$uuid/none/" "$tab"
ok "with nofail a device that is not there is passed over" tab start
ok "nofail, device missing: no origin is started" inactive
like "$(cat /run/cowsnap/data.dropped)" 'device UUID=none: there is no such device' \
	"nofail, device missing: /run/cowsnap says why"

# ---- a device that is used past its origin ----

begin_anew
mount "$base" "$dir"
line defaults
ok "start of a device that is mounted" tab start
ok "a mounted device: no origin is started" inactive
umount "$dir"
is "$(stored_state)" invalid "a mounted device: its snapshot is invalid"

begin_anew
rm "$tab"
head -c 1M /dev/zero >"$store"
mount "$base" "$dir"
cowsnap enable --file="$tab" --name data -f --store="$store" "$base" >/dev/null
tab start >"$TEST_TMP/said" 2>&1
is $? 0 "start of one whose store has never been used"
like "$(<"$TEST_TMP/said")" 'of which 0 became invalid' "start of an unused store: it says that nothing was lost"
tab settle
ok "start of an unused store: the line gets no invalid=" test -z "$(grep invalid= "$tab")"
umount "$dir"

# ---- cowsnap=drop ----

begin_anew
words root=/dev/sda cowsnap=drop
ok "start with cowsnap=drop" tab start
ok "cowsnap=drop: no origin is started" inactive
is "$(stored_state)" invalid "cowsnap=drop: the snapshot is invalid"
words root=/dev/sda
ok "start without cowsnap=drop" tab start data
is "$(state data@1)" invalid "after cowsnap=drop: the snapshot is invalid at the next start"
tab stop >/dev/null

begin_anew
tab start >/dev/null
ok "a snapshot becomes a tracker" cowsnap delete --track data@1
tab stop >/dev/null
words root=/dev/sda cowsnap=drop
tab start >/dev/null 2>&1
words root=/dev/sda
tab start data >/dev/null 2>&1
is "$(state data@1)" invalid "a tracker has missed what was written then"
tab stop >/dev/null

# ---- cowsnap.rollback ----

begin_anew
words cowsnap.rollback=data@1
ok "start with cowsnap.rollback" tab start
mount /dev/mapper/data "$dir"
is "$(<"$dir/file")" old "cowsnap.rollback: the origin is what the snapshot was"
echo newer >"$dir/file"
ok "cowsnap.rollback: settle waits for its end" tab settle
is "$(state data@1)" "" "cowsnap.rollback: the snapshot is gone"
umount "$dir"
tab stop >/dev/null
tab start >"$TEST_TMP/said" 2>&1
ok "at the next boot the word is explained" grep -q 'remove cowsnap.rollback' "$TEST_TMP/said"
mount /dev/mapper/data "$dir"
is "$(<"$dir/file")" newer "the word of an old rollback changes nothing"
umount "$dir"
words
cowsnap snapshot data >/dev/null
words cowsnap.rollback=data@1
ok "start of what is started" tab start
is "$(state data@1)" live "start of what is started rolls nothing back"
words

# ---- disable ----

ok "disable is refused while there are snapshots" \
	grep -q 'it has 1 snapshot; --force deletes' <("$tool" disable --file="$tab" data 2>&1)
ok "disable -f" cowsnap disable -f --file="$tab" data
ok "disable -f: the origin is gone" inactive
ok "disable -f: the line is gone" test -z "$(grep data "$tab")"

# ---- enable, killed at any step ----

# whatever_was_done: the file can be read, and the same command ends it.
whatever_was_done()
{
	tab check && cowsnap enable --file="$tab" --name data --store="$store" "$base" && active
}

killed=0 bad=0
for ms in $(seq 20 "$((40 * 100 / ${COWSNAP_SCALE:-100}))" 400); do
	head -c 1M /dev/zero >"$store"
	rm -f "$tab"
	timeout -s KILL "$(printf '0.%03d' "$ms")" \
		"$tool" enable --file="$tab" --name data --store="$store" "$base" >/dev/null 2>&1 ||
		killed=$((killed + 1))
	whatever_was_done >"$TEST_TMP/said" 2>&1 || {
		bad=$((bad + 1))
		diag "after $ms ms:" <"$TEST_TMP/said"
	}
	"$tool" disable -f --file="$tab" data >/dev/null
done
diag "killed $killed times"
is "$bad" 0 "enable killed at any time is ended by the next one"

# ---- what is not to be overwritten ----

enable()
{
	cowsnap enable --file="$tab" "$@"
}

# not_enabled REGEX DESC ARGS...: enable ends with 2 and one sentence that has REGEX in it.
not_enabled()
{
	refuses enable "$@"
}

begin_anew
truncate -s 40M "$(loop_file "$base")"
losetup --set-capacity "$base"
ok "enable again, of a device that has grown" enable --store="$store" "$base"
is "$(state data@1)" live "enable of a device that has grown: the snapshot is live"
begin_anew
line store-uuid=00000000000000000000000000000000 /dev/none
not_enabled 'a store with snapshots' "enable with the store of another device" --store="$store" "$base"
line nofail /dev/none
not_enabled 'a store with snapshots' "the same where the line has no uuid" --store="$store" "$base"
is "$(stored_state)" live "enable with another device's store: the snapshot is live"

begin_anew
sed -i 's/nofail,/nofail,discard=none,invalid=77,/' "$tab"
cp "$tab" "$TEST_TMP/before"
mount "$base" "$dir"
ok "enable again, of a device that has a line" enable --store="$store" "$base"
ok "the line stays as it is" cmp "$tab" "$TEST_TMP/before"
umount "$dir"

begin_anew
cp "$tab" "$TEST_TMP/before"
third=$(mkloop 16M)
fourth=$(mkloop 16M)
not_enabled 'option "typo" is unknown' "enable with a wrong option" -o typo --name x --store="$third" "$fourth"
not_enabled '"a b" is no name' "enable with a wrong name" --name 'a b' --store="$third" "$fourth"
not_enabled 'is a name that cowsnap uses' "enable with a name that is taken" --name x-home --store="$third" "$fourth"
not_enabled 'as the store of data' "enable with another line's store" --name x --store="$store" "$fourth"
ok "refused enable: the file is as it was" cmp "$tab" "$TEST_TMP/before"
ok "refused enable: the store is as it was" cmp -n 4096 "$third" /dev/zero
printf 'dm-cowsnap store' >"$third"
ok "a store that was about to be made is made" enable --name x --store="$third" "$fourth"
cowsnap disable --file="$tab" x
ok "enable: a store that was not used is made anew with other sizes" \
	enable --name x --chunk=64K --store="$third" "$fourth"
cowsnap disable -f --file="$tab" x
is "$(value_of chunk_sectors)" 128 "enable with other sizes: the chunk is as wanted"

# rotates 0|1 [OPTION...]: the fourth device is said to rotate (1) or not, and is enabled with a new
# store.
rotates()
{
	echo "$1" >"$(sysfs "$fourth")/queue/rotational"
	head -c 1M /dev/zero >"$third"
	enable --name x "${@:2}" --store="$third" "$fourth" >/dev/null
	cowsnap disable -f --file="$tab" x
}

rotates 1
is "$(value_of copy_around)" 256 "enable for a rotational disk: copy_around as the module's default"
rotates 1 --chunk=512K
is "$(value_of copy_ahead)" 0 "enable for a rotational disk with chunks of 512 KiB: nothing is copied ahead"
echo 64 >/sys/module/dm_cowsnap/parameters/copy_around
echo 1024 >/sys/module/dm_cowsnap/parameters/copy_ahead
rotates 1
is "$(value_of copy_around copy_ahead)" "64 1024" "enable: options as the module was loaded with"
echo -1 >/sys/module/dm_cowsnap/parameters/copy_around
echo 8192 >/sys/module/dm_cowsnap/parameters/copy_ahead
rotates 0
is "$(value_of copy_around copy_ahead)" "0 8192" "enable for a disk that is not rotational: nothing is copied around"

echo 1 >"$(sysfs "$third")/queue/rotational"
rotates 0
is "$(value_of log)" 1 "enable with a store that rotates: it has a log"
echo 0 >"$(sysfs "$third")/queue/rotational"
rotates 0
is "$(value_of log)" 2 "enable with another: it has one while writes are redirected"
echo 0 >/sys/module/dm_cowsnap/parameters/log
rotates 0
is "$(value_of log)" "" "enable: without a log, as the module was loaded with"
echo -1 >/sys/module/dm_cowsnap/parameters/log

# ---- what outlives a wrong clock ----

begin_anew
date -s '2 hours ago' >/dev/null
mount "$base" "$dir"
ok "a device that is mounted is given up, with a clock that is behind" tab start
umount "$dir"
date -s '2 hours' >/dev/null
is "$(stored_state)" invalid "a clock that is behind: the snapshot is invalid"
begin_anew
sed -i "s/nofail,/nofail,invalid=$(($(date +%s) + 100000)),/" "$tab"
ok "start of a line that was written with a clock that is ahead" tab start
is "$(state data@1)" invalid "a clock that is ahead: the snapshot is invalid"
ok "a clock that is ahead: the line has no invalid= any more" test -z "$(grep invalid= "$tab")"
cowsnap snapshot data >/dev/null
tab stop >/dev/null
tab start >/dev/null
is "$(state data@2)" live "a clock that is ahead: a later snapshot is live"
tab stop >/dev/null

begin_anew
tab start >/dev/null
sed -i "s/nofail,/nofail,invalid=77,/" "$tab"
ok "start of what an older initramfs has started" tab start
is "$(state data@1)" "" "start of what an older initramfs has started: the snapshot is gone"
ok "start of what an older initramfs has started: invalid= is gone" test -z "$(grep invalid= "$tab")"
tab stop >/dev/null

# ---- a volume that is taken over ----

take_over()
{
	_forget
	tab stop >/dev/null 2>&1
	head -c 1M /dev/zero >"$store"
	rm -f "$tab"
	dmsetup create data --table "0 $(sectors "$base") linear $base 0"
	enable -f --store="$store" /dev/mapper/data >/dev/null
	cowsnap snapshot data >/dev/null
}

below()
{
	DM_NAME=data DEVNAME=$(realpath /dev/mapper/data) DEVLINKS=/dev/mapper/data tab owns
}

take_over
ok "a volume is taken over" active
not_ok "a taken-over volume keeps its links" below
mount /dev/mapper/data "$dir"
refused 'in use, and its snapshots would miss' "stop of a taken-over volume in use" stop data
ok "a refused stop leaves the origin" active
umount "$dir"
ok "stop of a taken-over volume that is not in use" tab stop data
ok "a stopped taken-over volume is plain again" inactive
is "$(below)" "cowsnap/data mapper/data" "a stopped taken-over volume: for udev the origin is yet to come"
mount /dev/mapper/data "$dir"
ok "start of a taken-over volume that is mounted" tab start data
ok "a taken-over volume that is mounted: no origin is started" inactive
umount "$dir"
is "$(stored_state)" invalid "a taken-over volume that is mounted: its snapshot is invalid"
dmsetup remove data
new_boot
dmsetup create plain --table "0 $(sectors "$base") linear $base 0"
rm -f "$tab"
echo "/dev/mapper/plain $dir ext4 defaults 0 0" >"$TEST_TMP/fstab"
touch /etc/fstab
mount --bind "$TEST_TMP/fstab" /etc/fstab
not_enabled 'fstab names it /dev/mapper/plain, which goes past' "enable of one that fstab names so" \
	--name data -f --store="$store" /dev/mapper/plain
umount /etc/fstab
dmsetup remove plain

# ---- lines with a mistake ----

begin_anew
sed -i 's/nofail,/nofail,nofial,/' "$tab"
ok "a line that is wrong, but for its nofail: the device is given up" tab start
is "$(stored_state)" invalid "a wrong line with nofail: the snapshot is invalid"
begin_anew
sed -i 's/nofail,/nofial,/' "$tab"
not_ok "a wrong line without nofail: start fails" tab start
ok "a wrong line without nofail: no origin is started" inactive
is "$(stored_state)" live "a wrong line without nofail: the snapshot is live"
words cowsnap=drop
ok "a wrong line without nofail: start with cowsnap=drop succeeds" tab start
is "$(stored_state)" invalid "a wrong line with cowsnap=drop: the snapshot is invalid"
words

# ---- stores that cannot be told ----

begin_anew
blockdev --setro "$store"
ok "with a store that is read-only the device is given up" tab start
ok "a read-only store: no origin is started" inactive
ok "a read-only store: /run/cowsnap says so" grep -q read-only /run/cowsnap/data.dropped
ok "a read-only store: settle succeeds" tab settle
blockdev --setrw "$store"
like "$(<"$tab")" 'invalid=[0-9]+' "a read-only store: the line gets invalid="
new_boot
tab start >/dev/null
is "$(state data@1)" invalid "a store that is writable again: the snapshot is invalid"
tab stop >/dev/null
begin_anew
blockdev --setro "$store"
words cowsnap=drop
ok "a read-only store with cowsnap=drop: start succeeds" tab start
words
blockdev --setrw "$store"

begin_anew
dmcreate weak "$(linear_table "$store")"
rm -f "$tab"
enable --name data -f --store=/dev/mapper/weak "$base" >/dev/null
cowsnap snapshot data >/dev/null
dmsetup reload weak --table "$(error_table "$store")"
dmsetup suspend --noflush weak && dmsetup resume weak
dd if=/dev/zero of=/dev/mapper/data bs=1M count=1 seek=20 oflag=direct status=none
is "$(state data@1)" invalid "a store that dies costs the snapshots"
dmsetup reload weak --table "$(linear_table "$store")"
dmsetup suspend --noflush weak && dmsetup resume weak
tab stop >/dev/null
like "$(<"$tab")" 'invalid=[0-9]+' "a store that died in use: the line gets invalid="
_dmremove data
_dmremove weak

# ---- two devices that have it ----

begin_anew
dd if="$base" of="$fourth" bs=1M count=16 status=none
dd if="$base" of="$second" bs=1M count=32 status=none
line nofail
ok "two devices with that UUID are given up" tab start
words cowsnap=drop
new_boot
ok "two devices with that UUID are given up with cowsnap=drop too" tab start
ok "two devices with that UUID: the note gives both their links back" test -e /run/cowsnap/data.dropped
words
wipefs -qa "$second" "$fourth"
e2label "$base" data
mkfs.ext4 -qF -L DATA "$second"
begin_anew
sed -i 's/^data\tUUID=[^\t]*/data\tLABEL=data/' "$tab"
ok "two labels that differ in case are two" tab start
ok "two labels that differ in case: the right origin is started" active
tab stop >/dev/null
wipefs -qa "$second"
line nofail
ok "the device below is udev's to hide" \
	env DEVNAME="$base" ID_FS_UUID="$uuid" MAJOR=7 MINOR="${base#/dev/loop}" \
	"$tool" tab --file="$tab" owns
dmcreate foreign "$(linear_table "$base")"
not_ok "the device below is not hidden if something else stands on it" env DEVNAME="$base" ID_FS_UUID="$uuid" MAJOR=7 \
	MINOR="${base#/dev/loop}" "$tool" tab --file="$tab" owns
_dmremove foreign

# ---- rollbacks ----

begin_anew
tab start >/dev/null
words cowsnap.rollback=data@2
cowsnap snapshot data >/dev/null
is "$(state data@2)-$(state data@3)" -live "no snapshot gets the number to which a boot would roll back"
words
tab stop >/dev/null

begin_anew
cowsnap dump "$store" |
	sed 's/^merge_id .*/merge_id 1/; /^snapshot id 1 /s/live/merging/' >"$TEST_TMP/dump"
ok "a store in the middle of a rollback" cowsnap restore -f -i "$TEST_TMP/dump" "$store"
sed -i 's/nofail,/nofail,invalid=77,/' "$tab"
ok "a store in the middle of a rollback: start succeeds despite invalid=" tab start
ok "a store in the middle of a rollback: the origin is started" active
tab settle >/dev/null
tab stop >/dev/null

begin_anew
words cowsnap=drop
tab start >/dev/null 2>&1
new_boot
words cowsnap.rollback=data@1
tab start >"$TEST_TMP/said" 2>&1
is $? 0 "a rollback to a snapshot that is invalid costs no boot"
ok "a rollback to an invalid snapshot: the origin is there" active
like "$(<"$TEST_TMP/said")" 'data@1: nothing of it is left .*: remove cowsnap.rollback' "a rollback to an invalid snapshot: why it is not done is said"
words
tab stop >/dev/null

# What the store has lost of a snapshot would stay as it is now.
begin_anew
store_tool spoil-block "$(loop_file "$store")" "$COPIED"
blockdev --flushbufs "$store"
words cowsnap.rollback=data@1
tab start >"$TEST_TMP/said" 2>&1
is $? 0 "a rollback that cannot begin costs no boot"
like "$(kernel_log)" 'it has damaged tables, snapshot 1 cannot be merged' "a rollback that cannot begin: the log says why"
ok "a rollback that cannot begin: the origin is there" active
mount /dev/mapper/data "$dir"
is "$(<"$dir/file")" new "a rollback that cannot begin: nothing is changed"
umount "$dir"
like "$(<"$TEST_TMP/said")" 'data@1: not rolled back, data is as it was: remove cowsnap.rollback' \
	"a rollback that cannot begin: what to do is said"
words
tab stop >/dev/null

# ---- several at a time ----

lost=0
for _ in 1 2 3 4 5; do
	begin_anew
	tab start >/dev/null 2>&1 &
	tab start >/dev/null 2>&1 &
	wait
	[[ ! -e /run/cowsnap/data.dropped && $(state data@1) == live ]] || lost=$((lost + 1))
	tab stop >/dev/null
done
is "$lost" 0 "two that start the same do not hinder each other"

begin_anew
tab start >/dev/null
ok "a program that ignores its children's end can make a snapshot" \
	timeout 60 env --ignore-signal=CHLD "$tool" snapshot data
is "$(state data@2)" live "the snapshot made with SIGCHLD ignored is live"
tab stop >/dev/null

# ---- disable, of what is not active ----

begin_anew
ok "disable is refused while its store has snapshots" \
	grep -q 'snapshots in its store; --force deletes' <("$tool" disable --file="$tab" data 2>&1)
ok "disable -f" cowsnap disable -f --file="$tab" data
is "$(stored_state)" invalid "disable -f: snapshots in a store that is not active are invalid"
begin_anew
tab start >/dev/null
dmsetup suspend data
for id in {2..260}; do
	echo "create $id $(stat -L -c %Hr:%Lr "$store")"
done | while read -r message; do dmsetup message data 0 "$message"; done
dmsetup resume data
cp "$tab" "$TEST_TMP/before"
ok "disable -f of an origin with 260 snapshots" cowsnap disable -f --file="$tab" data
is "$("$tool" dump "$store" | grep -c '^snapshot ')" 0 "disable -f of an origin with 260 snapshots leaves none"

# ---- without the module ----

begin_anew
rmmod dm_cowsnap
cp "$tab" "$TEST_TMP/nofail"
line defaults
refused 'dm-cowsnap: the module is not there for this kernel; dkms' "without the module" start
is "$(stored_state)" live "without the module: the snapshot is live"
cp "$TEST_TMP/nofail" "$tab"
ok "nofail, without the module: start succeeds" tab start
ok "nofail, without the module: /run/cowsnap says why" grep -q 'the module is not there' /run/cowsnap/data.dropped
is "$(stored_state)" invalid "nofail, without the module: the snapshot is invalid"
insmod "$COWSNAP_KO"

# ---- with the module of another kernel ----

begin_anew
rmmod dm_cowsnap
modules=/lib/modules/$(uname -r)
mount -t tmpfs tmpfs "$modules"
sed 's/vermagic=[0-9]/vermagic=x/' "$COWSNAP_KO" >"$modules/dm-cowsnap.ko"
depmod
cp "$tab" "$TEST_TMP/nofail"
line defaults
refused 'dm-cowsnap: the module was built for another kernel; dkms' "with the module of another kernel" start
is "$(stored_state)" live "the module of another kernel: the snapshot is live"
cp "$TEST_TMP/nofail" "$tab"
ok "nofail, the module of another kernel: start succeeds" tab start
is "$(stored_state)" invalid "nofail, the module of another kernel: the snapshot is invalid"
umount "$modules"
insmod "$COWSNAP_KO"
done_testing
