# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# What the jobs of the benchmarks are written with, in the guest. A job makes RAM disks,
# perhaps spinning disks out of them, cuts volumes, puts a stack of snapshots over them, and
# measures. Results go to stdout: a line "@result NAME KIND", the text, a line "@done".
#
# Places and sizes are in MiB unless they are called sectors.

set -euo pipefail

BASE=''		# the volume below the origin
STORES=()	# where the stack may keep old data, one for each snapshot
TARGET=''	# what users write to: set by stack
SNAPS=()	# the snapshots of the stack, first made first
DISKS=()	# names of spinning disks, whose counters are shown
STACK=()	# how to make the stack again
MADE=()		# devices of the stack, last made last
SEALED=''	# by the first store: what is in that goes home when the stack is taken down

MIB=2048	# in sectors

emit()
{
	printf '@result %s %s\n' "$1" "$2"
	cat
	printf '\n@done\n'
}

sectors()
{
	blockdev --getsz "$1"
}

make_dm()
{
	dmsetup create "$1" --table "$2"
}

# need MODULE [PARAMETER...]: load it, and before it what it depends on.
need()
{
	local file name

	while read -r file; do
		name=${file%.ko}
		[[ -d /sys/module/${name//-/_} ]] && continue
		if [[ $name == "$1" ]]; then
			insmod "/modules/$file" "${@:2}"
		else
			insmod "/modules/$file"
		fi
	done <"/modules/$1.list"
}

# ---- devices ------------------------------------------------------------------

ram_disks()
{
	need brd rd_nr="$1" rd_size=$(($2 * 1024)) max_part=0
}

# null_disk NAME SIZE NANOSECONDS [MBS]: each request takes so long, any number of them at a
# time; not more than so many megabytes a second.
null_disk()
{
	local dir=/sys/kernel/config/nullb/$1 attr

	[[ -d /sys/kernel/config/nullb ]] || {
		need null_blk nr_devices=0
		mount -t configfs configfs /sys/kernel/config
	}
	mkdir "$dir"
	for attr in size="$2" memory_backed=1 irqmode=2 completion_nsec="$3" hw_queue_depth=1024 \
		submit_queues=1 blocksize=512 mbps="${4-0}" power=1; do
		printf '%s\n' "${attr#*=}" >"$dir/${attr%%=*}"
	done
}

# fill DEVICE OFFSET LENGTH: data that is neither zero nor compressible.
fill()
{
	fio --name=fill --filename="$1" --allow_file_create=0 --rw=write --bs=1m --direct=1 \
		--offset="$2m" --size="$3m" --ioengine=psync --thread --disk_util=0 --refill_buffers=0 \
		--scramble_buffers=1 --output=/dev/null
}

# spin NAME RAM WORDS...: a spinning disk. The words are dm-platter's.
spin()
{
	local name=$1 ram=$2

	shift 2
	make_dm "$name" "0 $(sectors "$ram") platter $ram 0 $# $*"
	# The target below, memory, would have it pass for one that does not turn.
	echo 1 >"/sys/dev/block/$(dmsetup info -c --noheadings --separator : -o major,minor "$name")/queue/rotational"
	DISKS+=("$name")
}

# volume NAME DEVICE OFFSET LENGTH
volume()
{
	make_dm "$1" "0 $(($4 * MIB)) linear $2 $(($3 * MIB))"
}

# stores PREFIX DEVICE OFFSET EACH COUNT: volumes for old data, one after the other.
stores()
{
	local i

	STORES=()
	for ((i = 0; i < $5; i++)); do
		volume "$1$i" "$2" $(($3 + i * $4)) "$4"
		STORES+=("/dev/mapper/$1$i")
	done
}

# ---- stacks -------------------------------------------------------------------

layer()
{
	make_dm "$@"
	MADE+=("$1")
}

zero()
{
	dd if=/dev/zero of="$1" bs=1M count=1 oflag=direct status=none
}

# dm-snapshot's way of several snapshots: a store each. The origin comes last; made
# before its first snapshot it would save the first chunk of each larger write only.
stack_snapshot()
{
	local mode=$1 chunk=$2 count=${3:-1} i len

	need dm-snapshot
	len=$(sectors "$BASE")
	for ((i = 0; i < count; i++)); do
		zero "${STORES[i]}"
		layer "snap$i" "0 $len snapshot $BASE ${STORES[i]} $mode $chunk"
		SNAPS+=("/dev/mapper/snap$i")
	done
	layer origin "0 $len snapshot-origin $BASE"
	TARGET=/dev/mapper/origin
}

# stack_cowsnap MODE CHUNK [COUNT [FEATURE...]]: one store, whatever the count. The
# features are those of the first snapshot's table.
stack_cowsnap()
{
	local mode=$1 chunk=$2 count=${3:-1} i len
	local -a features

	len=$(sectors "$BASE")
	zero "${STORES[0]}"
	for ((i = 0; i < count; i++)); do
		features=(id "$i" create)
		((i)) || features+=("${@:4}")
		layer "snap$i" "0 $len cowsnap $BASE ${STORES[0]} $mode $chunk ${#features[@]} ${features[*]}"
		SNAPS+=("/dev/mapper/snap$i")
	done
	layer origin "0 $len cowsnap-origin $BASE"
	TARGET=/dev/mapper/origin
}

# stack_cowsnap_redirect CHUNK [FEATURE...]: a snapshot of a sealed origin. What is written first goes
# to the store, which may have nothing else.
stack_cowsnap_redirect()
{
	local chunk=$1 len
	local -a features=(redirect 90 "${@:2}")

	len=$(sectors "$BASE")
	zero "${STORES[0]}"
	make_dm new "0 $len cowsnap $BASE ${STORES[0]} P $chunk"
	dmsetup remove new
	cowsnap seal "$BASE" "${STORES[0]}" >&2
	SEALED=1
	layer snap0 "0 $len cowsnap $BASE ${STORES[0]} P $chunk ${#features[@]} ${features[*]}"
	layer origin "0 $len cowsnap-origin $BASE 2 store ${STORES[0]}"
	SNAPS=(/dev/mapper/snap0)
	TARGET=/dev/mapper/origin
}

# What the store has of the origin goes home.
settle()
{
	cowsnap settle "$BASE" "${STORES[0]}" >&2
	cowsnap unseal "$BASE" "${STORES[0]}" >&2
	SEALED=''
}

# stack_cowsnap_tracker CHUNK: an origin whose only snapshot has been given up to a tracker.
stack_cowsnap_tracker()
{
	local chunk=$1 len

	len=$(sectors "$BASE")
	zero "${STORES[0]}"
	make_dm given "0 $len cowsnap $BASE ${STORES[0]} P $chunk"
	layer origin "0 $len cowsnap-origin $BASE 2 store ${STORES[0]}"
	dmsetup remove given
	dmsetup message origin 0 track 0
	TARGET=/dev/mapper/origin
}

stack_raw()
{
	TARGET=$BASE
}

stack_linear()
{
	layer empty "0 $(sectors "$BASE") linear $BASE 0"
	TARGET=/dev/mapper/empty
}

# stack_thin BLOCK_SECTORS [COUNT]: a volume with all that BASE holds, and snapshots of it.
# STORES are metadata and pool.
stack_thin()
{
	local block=$1 count=${2:-1} i len

	need dm-thin-pool
	len=$(sectors "$BASE")
	zero "${STORES[0]}"
	layer pool "0 $(sectors "${STORES[1]}") thin-pool ${STORES[0]} ${STORES[1]} $block 0 1 skip_block_zeroing"
	dmsetup message pool 0 create_thin 0
	layer origin "0 $len thin /dev/mapper/pool 0"
	TARGET=/dev/mapper/origin
	dd if="$BASE" of="$TARGET" bs=1M iflag=direct oflag=direct status=none
	dmsetup suspend origin
	for ((i = 1; i <= count; i++)); do
		dmsetup message pool 0 create_snap "$i" 0
	done
	dmsetup resume origin
	for ((i = 1; i <= count; i++)); do
		layer "snap$i" "0 $len thin /dev/mapper/pool $i"
		SNAPS+=("/dev/mapper/snap$i")
	done
}

# stack KIND WORDS...: make it, and remember how.
stack()
{
	STACK=("$@")
	SNAPS=() MADE=()
	"stack_$1" "${@:2}"
}

unstack()
{
	local i

	sync
	for ((i = ${#MADE[@]} - 1; i >= 0; i--)); do
		dmsetup remove "${MADE[i]}"
	done
	MADE=()
	[[ -z $SEALED ]] || settle
}

# A new snapshot in place of the old one: what is written next is written first.
fresh()
{
	unstack
	stack "${STACK[@]}"
}

# ---- measuring -----------------------------------------------------------------

reset_counters()
{
	local disk

	for disk in "${DISKS[@]}"; do
		dmsetup message "$disk" 0 reset
	done
}

# counters NAME: what each disk has done, and each layer of the stack has to say.
counters()
{
	local device

	for device in "${DISKS[@]}" "${MADE[@]}"; do
		printf '%s %s\n' "$device" "$(dmsetup status "$device")"
	done | emit "$1" status
}

FIO=(fio --thread --disk_util=0 --output-format=json --allow_file_create=0 --direct=1
	--random_generator=tausworthe64 --ioengine=libaio)

# place_of FIO-WORDS...: says --filename=TARGET, unless the first job has a file of its own. fio
# adds a second name to the first: it would divide the requests among both.
place_of()
{
	local first=" $* "

	[[ ${first%% --name=*} == *" --filename="* ]] || echo "--filename=$TARGET"
}

# measure NAME FIO-WORDS...: on TARGET, unless a file name is given.
measure()
{
	local name=$1

	shift
	reset_counters
	# shellcheck disable=SC2046  # one word or none
	"${FIO[@]}" --name="$name" $(place_of "$@") "$@" --output=/tmp/fio.json
	emit "$name" fio </tmp/fio.json
	counters "$name"
}

# A figure that fio does not give: figure NAME VALUE
figure()
{
	emit "$1" figure <<<"$2"
}
