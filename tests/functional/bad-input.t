#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Every wrong table is refused with a sentence in the kernel log that names the
# offending value, and touches nothing: not the origin, not the store.

. "$(dirname "$0")/common.sh"

base=$(mkloop 16M)
store=$(mkloop 16M)
store2=$(mkloop 16M)
tiny=$(mkloop 2K)
small=$(mkloop 4M)
short=$(mkloop 8M)
coarse=$(mkloop 16M --sector 4096)
fixed=$(mkloop 16M --ro)
len=$(sectors "$base")

for dev in "$base" "$store" "$tiny" "$small" "$short"; do
	fill_letter "$dev" A
done

# mark: a line in the kernel log; said: what device mapper has logged since the last one.
mark()
{
	mark="cowsnap-test: mark $RANDOM$RANDOM"
	printf '<5>%s\n' "$mark" >/dev/kmsg
}

said()
{
	dmesg | awk -v m="$mark" 'index($0, m) { found = 1; next } found' |
		grep -iE 'device-mapper:|cowsnap'
}

# refused WHY TABLE REGEX: one point; the log must have a line that fits REGEX.
refused()
{
	local why=$1 table=$2 regex=$3

	mark
	if dmcreate x "$table" >/dev/null 2>&1; then
		fail "$why: refused"
		dmremove x
		return
	fi
	if said | grep -qiE -- "$regex"; then
		pass "$why: refused by name"
		return
	fi
	fail "$why: refused by name"
	diag "no line fits: $regex"
	said | diag
}

snapshot_words()
{
	local t="0 $len cowsnap"

	refused "no words" "$t" 'missing'
	refused "one word" "$t $base" 'missing'
	refused "no chunk size" "$t $base $store N" 'missing'
	refused "an extra word" "$t $base $store N 8 0 surplus" '(surplus|is 0, but 1)'
	refused "a word where the number of features belongs" "$t $base $store N 8 sparkle" 'sparkle'
	refused "an unknown feature" "$t $base $store N 8 1 sparkle" 'sparkle'
	refused "fewer features than counted" "$t $base $store N 8 3 discard_zeroes_cow" \
		'feature|argument|3'
	refused "more features than counted" \
		"$t $base $store N 8 1 discard_zeroes_cow discard_passdown_origin" \
		'(discard_passdown_origin|is 1, but 2)'
	refused "a feature without the one it needs" \
		"$t $base $store N 8 1 discard_passdown_origin" 'discard_zeroes_cow'
	refused "an unknown persistence" "$t $base $store X 8" '\<X\>'
	refused "an unknown overflow letter" "$t $base $store NX 8" '\<NX\>'
	refused "an empty option of persistence" "$t $base $store n 8" '\<n\>'
}

chunk_sizes()
{
	local t="0 $len cowsnap"

	refused "a chunk size in letters" "$t $base $store N eight" 'eight'
	refused "a chunk size with letters" "$t $base $store N 8k" '8k'
	refused "a negative chunk size" "$t $base $store N -8" '-8'
	refused "chunk 0" "$t $base $store N 0" '\<0\>'
	refused "a chunk no power of two" "$t $base $store N 12" '\<12\>'
	refused "a huge chunk" "$t $base $store N 4294967296" '4294967296'
	refused "a chunk that dm-snapshot takes" "$t $base $store N 524288" \
		'524288 sectors.*at most 16384.*smaller'
	refused "a chunk larger than the store" "$t $base $small N 16384" '16384'
	refused "a chunk below the store's logical sector" "$t $base $coarse N 4" '(\<4\>|2048)'
	refused "a chunk below the origin's logical sector" \
		"0 $len cowsnap $coarse $store N 4" '(\<4\>|2048)'
}

devices()
{
	local t="0 $len cowsnap"

	refused "an unknown origin" "$t /dev/no-such-origin $store N 8" 'no-such-origin'
	refused "an unknown store" "$t $base /dev/no-such-store N 8" 'no-such-store'
	refused "a number no device has" "$t $base 250:777 N 8" '250:777'
	refused "origin and store the same" "$t $base $base N 8" \
		"same|$(basename "$base")|$base"
	refused "origin and store the same by another name" \
		"$t $base $(stat -L -c '%Hr:%Lr' "$base") N 8" 'same'
	refused "a store too small" "$t $base $tiny N 8" '4 sectors'
	refused "a snapshot longer than its origin" "$t $short $store N 8" "$len"
	refused "a read-only store under a writable table" "$t $base $fixed N 8" 'read-only'
}

origin_words()
{
	local t="0 $len cowsnap-origin"

	refused "an origin without words" "$t" 'missing'
	refused "an origin with an unknown feature" "$t $base 1 sparkle" 'sparkle'
	refused "an origin with an extra word" "$t $base 0 surplus" '(surplus|is 0, but 1)'
	refused "an origin with letters for a number" "$t $base many" 'many'
	refused "an origin with an unknown discard mode" "$t $base 2 discard sometimes" 'sometimes'
	refused "an origin with half an option" "$t $base 1 discard" 'discard'
	refused "an origin with two stores" \
		"$t $base 4 store $store store $store2" 'store.*only once'
	refused "an origin with a store that is not named" "$t $base 1 store" 'device has to follow'
	refused "an origin that is not there" "$t /dev/no-such-origin" 'no-such-origin'
	refused "an origin longer than its device" "0 $len cowsnap-origin $short" "$len"
}

store_in_use()
{
	local t="0 $len cowsnap $base" dir part

	dir=$(mkmount "$store2" ext4)
	refused "a store with a mounted filesystem" "$t $store2 N 8" "$store2|use|busy"
	_umount "$dir"
	if addpart "$store2" 1 2048 16384 2>/dev/null; then
		part=${store2}p1
		[[ -b $part ]] || mknod "$part" b "$(cut -d: -f1 "/sys/class/block/${part##*/}/dev")" \
			"$(cut -d: -f2 "/sys/class/block/${part##*/}/dev")"
		dir=$(mkmount "$part" ext4)
		refused "a whole disk whose partition is in use" "$t $store2 N 8" "$store2|use|busy"
		_umount "$dir"
		delpart "$store2" 1
	else
		skip "a whole disk whose partition is in use" "no partitions on loop devices here"
	fi
	origin_up o "$base"
	snap_up s "$base" "$store" N 8
	refused "a store in use for another origin" \
		"0 $(sectors "$short") cowsnap $short $store N 8" "${store#/dev/}|use|busy"
	refused "a store in use with another chunk size" "$t $store N 16" '\<16\>'
	refused "a store as origin" "0 $(sectors "$store") cowsnap-origin $store" "$store|store|use|busy"
	refused "an origin as store" "0 $(sectors "$short") cowsnap $short $base N 8" "$base|origin|use|busy"
	dmremove s
	dmremove o
}

nothing_touched()
{
	local dev

	for dev in "$base" "$store" "$tiny" "$small" "$short"; do
		ok "$dev is untouched" all_letter "$dev" A
	done
}

# Stores that their devices do not suit.
moved_stores()
{
	local disk

	dd if=/dev/zero of="$store2" bs=1M count=1 conv=fsync status=none
	origin_up o "$base"
	snap_up s "$base" "$store2" P 8
	dmremove s
	dmremove o
	dd if="$store2" of="$coarse" bs=1M conv=fsync status=none
	refused "a store with blocks smaller than its new device's" "0 $len cowsnap $base $coarse P 8" \
		'blocks of 512 bytes.*4096.*move it'

	if ! modinfo scsi_debug >/dev/null 2>&1; then
		skip "a store across physical blocks: a warning" "no scsi_debug"
		return
	fi
	disk=$(mkscsi sector_size=512 physblk_exp=3 dev_size_mb=8) || bail_out "no disk of scsi_debug"
	dmcreate across "0 8192 linear $disk 1"
	mark
	snap_up s "$base" /dev/mapper/across P 8
	like "$(said)" 'straddles .* 4096 bytes' "a store across physical blocks: a warning"
	dmremove s
	dmremove across
}

plan 53
snapshot_words
chunk_sizes
devices
origin_words
nothing_touched
store_in_use
moved_stores
