# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# More for jobs than guest.sh has: arrays, file systems, the tools that users ran.

# raid10 SIZE FILL WORDS: six spinning disks of that size and with those words as /dev/md0. What the
# first so many MiB of it are filled with is put there while the disks take no time yet.
raid10()
{
	local i rams=() disks=()

	for i in {0..5}; do
		rams+=("/dev/ram$i")
		disks+=("/dev/mapper/d$i")
	done
	need raid10
	ram_disks 6 "$1"
	{
		mdadm --create /dev/md0 --run --level=10 --raid-devices=6 --chunk=64 \
			--assume-clean --homehost=any --name=md0 "${rams[@]}"
		fill /dev/md0 0 "$2"
		mdadm --stop /dev/md0
	} >&2
	for i in {0..5}; do
		# shellcheck disable=SC2086  # words for a table
		spin "d$i" "/dev/ram$i" $3
	done
	mdadm --assemble /dev/md0 --run "${disks[@]}" >&2
}

# file_system KIND DEVICE: with all of it written now, none of it later.
file_system()
{
	need "$1"
	case $1 in
	ext4) mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$2" ;;
	xfs) mkfs.xfs -q -f -K -m reflink=1 "$2" ;;
	btrfs) mkfs.btrfs -q -f -K "$2" ;;
	esac
}

# test_file DIR SIZE: a file as sysbench names it, with data that does not compress.
test_file()
{
	mkdir -p "$1"
	fio --name=fill --filename="$1/test_file.0" --rw=write --bs=1m --size="$2" --thread \
		--disk_util=0 --end_fsync=1 --output=/dev/null
}

# A mapped device's numbers, which is what dm-platter's traces are called.
dm_name()
{
	dmsetup info -c --noheadings --separator : -o major,minor "$1"
}

# Nanoseconds of virtual time since the machine was started.
now()
{
	local line

	line=$(grep -m 1 '^now at' /proc/timer_list)
	line=${line#now at }
	echo "${line%% *}"
}

# timed NAME COMMAND...: how many nanoseconds it takes.
timed()
{
	local begin

	begin=$(now)
	"${@:2}"
	figure "$1" $(($(now) - begin))
}

# sysbench_file NAME DIR SIZE SECONDS WORDS...: random writes into a file, writes a second.
sysbench_file()
{
	local name=$1 dir=$2 size=$3 seconds=$4

	shift 4
	(cd "$dir" && sysbench fileio --file-num=1 --file-total-size="$size" --file-test-mode=rndwr \
		--time="$seconds" --events=0 --threads=1 --rand-seed=1 --rand-type=uniform \
		--validate=on --report-interval=5 "$@" run) >/tmp/sysbench
	emit "$name" text </tmp/sysbench
	figure "$name" "$(awk '/writes\/s:/ { print $2 }' /tmp/sysbench)"
}

# dd_file NAME MEGABYTES WORDS...: into a file below /mnt, megabytes a second as dd says; the mean of
# all runs of that name so far. Random data, 100 MiB at most: cowsnap writes no copy of zeroes.
dd_file()
{
	local name=$1 count=$2

	shift 2
	[[ -e /tmp/data ]] || head -c 104857600 /dev/urandom >/tmp/data
	dd if=/tmp/data of=/mnt/file bs=4096 count=$((count * 256)) "$@" 2>/tmp/dd
	awk '/copied/ { for (i = 1; i < NF; i++) if ($i == "s,") print $1 / $(i - 1) / 1e6 }' \
		/tmp/dd >>"/tmp/rates-$name"
	figure "$name" "$(awk '{ sum += $1 } END { print sum / NR }' "/tmp/rates-$name")"
}

# disk_traffic: what the null_blk devices have written, most and least.
disk_traffic()
{
	local most

	most=$(awk '{ print $7 * 512 / 1e6 }' /sys/block/nullb*/stat | sort -n)
	figure busiest "$(tail -n 1 <<<"$most")"
	figure least "$(head -n 1 <<<"$most")"
}

# create_files NAME COUNT: files of 4 KiB below /mnt, each synced; files a second.
create_files()
{
	local begin

	mkdir /mnt/files
	begin=$(now)
	fio --name=files --directory=/mnt/files --nrfiles="$2" --filesize=4k --bs=4k --rw=write \
		--openfiles=1 --file_service_type=sequential --create_on_open=1 --fallocate=none \
		--fsync_on_close=1 --thread --disk_util=0 --output=/dev/null
	sync
	figure "$1" "$(awk "BEGIN { print $2 / ($(now) - $begin) * 1e9 }")"
}

# Bytes that the kernel has in its slabs.
slab_bytes()
{
	sync
	awk '/^Slab:/ { print $2 * 1024 }' /proc/meminfo
}
