# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# What the tests of trackers share: an origin o on $base with the store $store, images of it, and
# what cowsnap diff says of them.

for tool in "$TOOLS/cowsnap" "$TESTS_DIR/../tools/cowsnap"; do
	[[ ! -x $tool ]] || break
done
[[ -x $tool ]] || skip_all "cowsnap has not been built"

# tracked_origin MIB STORE_MIB [CHUNK_SECTORS]: the origin, its store, and no snapshot.
tracked_origin()
{
	base=$(mkloop "$1M")
	store=$(mkloop "$2M")
	chunk=${3:-8}
	exact_copies
	fill "$base" "$TEST_TMP/unused"
	snap_up first "$base" "$store" P "$chunk"
	origin_up o "$base" store "$store"
	dmremove first
	dm message o 0 delete 0
}

# again: the store is closed, and opened, as by a reboot.
again()
{
	dmremove o
	origin_up o "$base" store "$store"
}

# snapshot_as ID IMAGE: a snapshot, and a file with what it shows.
snapshot_as()
{
	dm message o 0 create "$1" && image /dev/mapper/o "$TEST_TMP/$2"
}

# write_at KIB BYTES...: other data, which is random; pairs, each one write.
write_at()
{
	local -a pairs=()

	while (($#)); do
		pairs+=($(($1 * 1024)) "$2")
		shift 2
	done
	put /dev/mapper/o - "${pairs[@]}"
}

# scatter NUMBER: writes of 4 to 64 KiB all over the origin.
scatter()
{
	local -a pairs=()
	local n pages=$(($(sectors /dev/mapper/o) / 8 - 16))

	for ((n = 0; n < $1; n++)); do
		pairs+=($(((RANDOM * 32768 + RANDOM) % pages * 4)) $(((RANDOM % 16 + 1) * 4096)))
	done
	write_at "${pairs[@]}"
}

# missed_and_more IMAGE SIDE...: chunks that differ from the image and are not listed, and those
# listed without need. Without a device o the image is compared with the base.
missed_and_more()
{
	local image=$TEST_TMP/$1 now=$base

	shift
	[[ ! -e /dev/mapper/o ]] || now=/dev/mapper/o
	"$tool" diff --extents "$@" >"$TEST_TMP/extents" 2>"$TEST_TMP/said" || {
		echo "refused: $(<"$TEST_TMP/said")"
		return
	}
	image "$now" "$TEST_TMP/now"
	perl "$TESTS_DIR/host/stream.pl" compare $((chunk * 512)) "$image" "$TEST_TMP/now" \
		<"$TEST_TMP/extents"
}

# missed IMAGE SIDE...: only how many are not listed.
missed()
{
	missed_and_more "$@" | cut -d ' ' -f 1
}

# state_of ID: as the list has it.
state_of()
{
	dmsetup message o 0 list | sed -n "s/^snapshot $1 \([a-z]*\) .*/\1/p"
}

# used: sectors of the store.
used()
{
	dmsetup message o 0 list | sed -n 's,^store [^ ]* P chunk [0-9]* \([0-9]*\)/.*,\1,p'
}
