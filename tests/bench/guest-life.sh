# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# What happens in the life of a snapshot while somebody writes: it is made, deleted, merged.

# writer NAME FIO-WORDS...: as measure, beside what follows, until written.
writer()
{
	local name=$1

	shift
	reset_counters
	# shellcheck disable=SC2046  # one word or none
	"${FIO[@]}" --name="$name" $(place_of "$@") "$@" --output="/tmp/$name.json" &
	WRITER=$!
}

# enough: the writer ends with the request that it has begun, if it has not ended.
enough()
{
	kill -INT "$WRITER" 2>/dev/null || true
}

# writing: waits until the origin is being written. fio takes its time to start.
writing()
{
	local block

	block=$(dmsetup info -c --noheadings -o blkdevname origin)
	until (($(awk '{ print $5 }' "/sys/block/$block/stat") > 0)); do
		sleep 0.01
	done
}

# written NAME: waits for the writer, and says what it found.
written()
{
	wait
	emit "$1" fio <"/tmp/$1.json"
	counters "$1"
}

# ---- creation -----------------------------------------------------------------

# bare_origin KIND: an origin that has no snapshot yet.
bare_origin()
{
	local len

	SNAPS=() MADE=()
	# shellcheck disable=SC2034  # for guest.sh
	TARGET=/dev/mapper/origin
	len=$(sectors "$BASE")
	case $1 in
	linear) layer origin "0 $len linear $BASE 0" ;;
	snapshot) need dm-snapshot && layer origin "0 $len snapshot-origin $BASE" ;;
	cowsnap) zero "${STORES[0]}" && layer origin "0 $len cowsnap-origin $BASE" ;;
	esac
}

# table_of KIND MODE NUMBER: a snapshot's, with a store each or one for all.
table_of()
{
	local len

	len=$(sectors "$BASE")
	case $1 in
	snapshot) echo "0 $len snapshot $BASE ${STORES[$3]} $2 8" ;;
	cowsnap) echo "0 $len cowsnap $BASE ${STORES[0]} $2 8 3 id $3 create" ;;
	esac
}

# add_snapshot KIND MODE: one more, in the steps that LVM takes. All that can be done before the
# origin is suspended is done before. Of "linear" only the suspension is left.
add_snapshot()
{
	local number=${#SNAPS[@]} name

	if [[ $1 == linear ]]; then
		dmsetup suspend origin
		dmsetup resume origin
		return
	fi
	name=snap$number
	[[ $1 == cowsnap ]] || zero "${STORES[number]}"
	dmsetup create "$name" --notable
	dmsetup load "$name" --table "$(table_of "$1" "$2" "$number")"
	dmsetup suspend origin
	dmsetup resume "$name"
	dmsetup resume origin
	SNAPS+=("/dev/mapper/$name")
	MADE+=("$name")
}

# add_snapshots KIND MODE COUNT
add_snapshots()
{
	local i

	for ((i = 0; i < $3; i++)); do
		add_snapshot "$1" "$2"
	done
}

# remove_all: the snapshots, then the origin, which was made first.
remove_all()
{
	unstack
	SNAPS=()
}

# ---- deletion -----------------------------------------------------------------

# delete_oldest KIND: as LVM does.
delete_oldest()
{
	dmsetup suspend origin
	dmsetup remove snap0
	dmsetup resume origin
	[[ $1 == snapshot ]] || dmsetup message origin 0 delete 0
	# The origin was made first, then the oldest.
	MADE=(origin "${MADE[@]:2}")
}

# ---- merging ------------------------------------------------------------------

# merge_snapshot KIND: the only snapshot into its origin. The stack is taken down by hand then.
merge_snapshot()
{
	local len words

	len=$(sectors "$BASE")
	case $1 in
	snapshot) words="snapshot-merge $BASE ${STORES[0]} P 8" ;;
	cowsnap) words="cowsnap-merge $BASE ${STORES[0]} P 8 2 id 0" ;;
	esac
	dmsetup suspend origin
	dmsetup remove snap0
	dmsetup load origin --table "0 $len $words"
	dmsetup resume origin
	MADE=(origin)
}

# wait_merged: each look takes the processor from those who write meanwhile. So there are few: the next
# comes when four fifths of what is left should be done. What it takes to look and to wait takes no
# process: see merging().
wait_merged()
{
	local begin=${EPOCHREALTIME/./} all=0 left used meta pause most

	while :; do
		echo >&"${LOOKS[1]}"
		read -r _ _ _ used meta _ <&"${LOOKS[0]}"
		left=$((${used%%/*} - meta))
		((left > 0)) || break
		((all)) || all=$left
		pause=20
		((all == left)) ||
			pause=$(((${EPOCHREALTIME/./} - begin) * left / (all - left) / 1250 + 1))
		# A merge is slow to begin, so its first looks tell little.
		most=$(((${EPOCHREALTIME/./} - begin) / 4000 + 20))
		((pause < most)) || pause=$most
		((pause < 2000)) || pause=2000
		printf -v pause '%d.%03d' $((pause / 1000)) $((pause % 1000))
		# Nobody writes there without being asked.
		read -rt "$pause" <&"${LOOKS[0]}" || true
	done
}

# merging NAME KIND MEGABYTES: MB/s of what has to come home.
merging()
{
	local begin looker

	coproc LOOKS { looks origin; }
	begin=$(now)
	merge_snapshot "$2"
	wait_merged
	figure "$1" "$(awk "BEGIN { print $3 * 1.048576 / ($(now) - $begin) * 1e9 }")"
	looker=$LOOKS_PID
	eval "exec ${LOOKS[1]}>&-"
	wait "$looker"
}

# plain_copy NAME MEGABYTES: from the first store's place to the origin's, 1 MiB at a time.
plain_copy()
{
	local begin

	begin=$(now)
	dd if="${STORES[0]}" of="$BASE" bs=1M count="$2" iflag=direct oflag=direct status=none
	figure "$1" "$(awk "BEGIN { print $2 * 1.048576 / ($(now) - $begin) * 1e9 }")"
}

# ---- what a write costs --------------------------------------------------------

# requests_of DEVICE: that it has completed, reads and writes and flushes.
requests_of()
{
	awk '{ print $1 + $5 + $16 }' "/sys/block/$1/stat"
}

# measure_requests NAME DEVICE WRITES FIO-WORDS...: how many requests each of the writes needs.
measure_requests()
{
	local name=$1 device=$2 writes=$3 begin

	shift 3
	begin=$(requests_of "$device")
	measure "$name-run" "$@"
	figure "$name" "$(awk "BEGIN { print ($(requests_of "$device") - $begin) / $writes }")"
}
