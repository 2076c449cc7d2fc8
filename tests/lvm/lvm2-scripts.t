#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# lvm2's own test scripts that make snapshots, out of its source package: each that passes
# with dm-snapshot passes with dm-cowsnap in its place.
#
# COWSNAP_LVM2_SCRIPTS="NAME...": these alone.

. "$(dirname "$0")/../functional/common.sh"

SHARED=/run/cowsnap/lvm2-tests
BUILT=/build/src
HERE=$TEST_TMP/lvm2

[[ -d $SHARED/test/shell ]] || skip_all "no lvm2 with its tests (tools/lvm2/build --tests)"

# Those of snapshots by their name, whatever else is in it: some of the cache and of thin pools
# make dm-snapshot's as well. Of the others those that make one, but for what is about other
# targets.
scripts()
{
	local script

	if [[ ${COWSNAP_LVM2_SCRIPTS-} ]]; then
		tr ' ' '\n' <<<"$COWSNAP_LVM2_SCRIPTS"
		return
	fi
	for script in shell/*.sh; do
		case $script in
		*snap*) ;;
		*cluster* | *lvmlockd* | *thin* | *cache* | *vdo* | *integrity* | *polling*)
			continue
			;;
		*raid* | *pvmove*) continue ;;
		*) grep -qE 'lvcreate.*( -s( |$)|--snapshot)' "$script" || continue ;;
		esac
		basename "$script" .sh
	done
}

dm_snapshot()
{
	[[ ! -d /sys/module/dm_cowsnap ]] || rmmod dm_cowsnap || return
	modprobe dm-snapshot
}

dm_cowsnap()
{
	rmmod dm_snapshot 2>/dev/null
	[[ ! -d /sys/module/dm_cowsnap ]] || rmmod dm_cowsnap || return
	insmod "${COWSNAP_KO:?}" claim_snapshot=1
}

as_before()
{
	rmmod dm_snapshot 2>/dev/null
	[[ ! -d /sys/module/dm_cowsnap ]] || rmmod dm_cowsnap
	insmod "$COWSNAP_KO"
}

# What a script that failed leaves behind would be in the way of the next.
sweep()
{
	local name tries=0

	pkill -x dmeventd
	while read -r name; do
		umount -q "$name"
	done < <(awk '$1 ~ /LVMTEST/ { print $2 }' /proc/mounts)
	# One is on top of another.
	while ((tries++ < 8)); do
		while read -r name; do
			dmsetup resume "$name"
			dmsetup remove --retry "$name"
		done < <(dmsetup ls 2>/dev/null | grep -o '^LVMTEST[^[:space:]]*')
		dmsetup ls 2>/dev/null | grep -q ^LVMTEST || break
	done
	losetup -nO NAME,BACK-FILE | awk '/LVMTEST/ { print $1 }' | xargs -rn 1 losetup -d
	rm -rf "$LVM_TEST_DIR"/LVMTEST*
} >/dev/null 2>&1

# In memory, since each process started from the shared directory takes its time. What it
# knows of where it was built is put right.
unpack()
{
	local link

	cp -a "$SHARED/." "$HERE" && sed -i "s,$BUILT,$HERE,g" "$HERE/test/lib/paths" || return
	while read -r link; do
		ln -sfn "$HERE${link#* "$BUILT"}" "${link%% *}" || return
	done < <(find "$HERE/test/lib" -type l -lname "$BUILT/*" -printf '%p %l\n')
}

# change SCRIPT COMMAND: edit it in place.
change()
{
	cp "shell/$1.sh" "$TEST_TMP/script" && sed -i "$2" "shell/$1.sh" || return
	! cmp -s "$TEST_TMP/script" "shell/$1.sh" || bail_out "$1 has not what is to be changed"
}

# For both targets, where a script asks for what only one of them can be.
change_scripts()
{
	# A merge of a megabyte has to be seen on its way. With 0.4 s for each write, dm-cowsnap
	# makes so few that it is over before lvm has begun to look.
	change snapshot-merge-thin 's/ 0 400 / 0 1500 /' || return
	# How much of a small store is used, and when it is extended, goes by the two chunks that
	# dm-snapshot has for itself. All that dm-cowsnap needs there is in one.
	change snapshot-usage '/data_percent "12.00"/d; /^lvcreate -aey -l5 /,/^fill 20K/d'
}

# run TARGETS SCRIPT: prints passed, skipped or failed.
run()
{
	local targets=$1 script=$2 log rc=0

	log=${COWSNAP_OUT:-$TEST_TMP}/lvm2-$script-$targets.txt
	"$targets" >"$log" 2>&1 || { echo "no $targets" && return; }
	timeout -k 10 400 bash "shell/$script.sh" >>"$log" 2>&1 </dev/null || rc=$?
	case $rc in
	0) echo passed ;;
	200) echo skipped ;;
	*) echo "failed ($rc)" ;;
	esac
	((rc == 0 || rc == 200)) || sweep
}

# That of lvm2's log which says where a script ended.
last_words()
{
	grep -aE '^#[^ ]*\.sh:[0-9]+|^[[:space:]]*(FATAL|ERROR|TEST )|Failed|failed' \
		"${COWSNAP_OUT:-$TEST_TMP}/lvm2-$1-dm_cowsnap.txt" | tail -n 15 | cut -c1-200 | diag
}

# dm-snapshot's troubles are not ours, and some scripts make devices fail on purpose.
expect_log 'EXT[234]-fs error'

need lvm dmsetup mkfs.ext4
unpack || bail_out "no lvm2 in $SHARED"
cd "$HERE/test" || bail_out "no $HERE/test"
at_exit as_before
export LVM_TEST_DIR=${COWSNAP_TMP:-/tmp} LVM_TEST_FLAVOUR=ndev-vanilla LVM_TEST_PREFER_BRD=0
export LVM_TEST_NODEBUG=1
unset LVM_SYSTEM_DIR

change_scripts || bail_out "lvm2's scripts cannot be changed"
mapfile -t all < <(scripts)
both=0 stock_only=0
for script in "${all[@]}"; do
	start=$SECONDS
	stock=$(run dm_snapshot "$script")
	if [[ $stock != passed ]]; then
		skip "$script" "$stock with dm-snapshot"
		continue
	fi
	middle=$SECONDS
	ours=$(run dm_cowsnap "$script")
	diag "$script: $((middle - start)) s with dm-snapshot, $((SECONDS - middle)) s with dm-cowsnap"
	if is "$ours" passed "$script"; then
		both=$((both + 1))
	else
		stock_only=$((stock_only + 1))
		last_words "$script"
	fi
done
diag "${#all[@]} scripts; with dm-snapshot $((both + stock_only)) pass, of these with dm-cowsnap $both"
isnt "$((both + stock_only))" 0 "some of lvm2's scripts pass with dm-snapshot"
cd /
done_testing
