#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Many snapshots in one store: each keeps its own instant, whatever is made and deleted
# around it and over a reload of the module; room that a deleted one kept is used again;
# and snapshots of two origins can be of one instant.
#
# COWSNAP_SNAPSHOTS=N: how many.

. "$(dirname "$0")/common.sh"

need perl
need_target zero
BYTES=524288
N=${COWSNAP_SNAPSHOTS:-$(scaled 200)}
((N >= 24)) || N=24
ids=() sums=()

exact_copies
plan 44

# All of 0 to 65535 in an order of its own, 65535 first.
for ((n = 0; n < N + 8; n++)); do
	ids[n]=$(((n * 40503 + 65535) % 65536))
done

# make FROM TO: snapshots by message; before each, three writes of 512 bytes to 12 KiB
# anywhere. Prints a checksum for each. One process, since there are so many.
make_them()
{
	perl -e 'use Digest::MD5 "md5_hex"; use IO::Handle;
		my $image = shift;
		open(my $f, "+<", $image) or die "$image: $!";
		open(my $o, "+<", "/dev/mapper/o") or die "o: $!";
		read($f, my $now, -s $f);
		for my $id (@ARGV) {
			for (1 .. 3) {
				my $data = chr(33 + rand(90)) x (512 * int(1 + rand(24)));
				my $at = 512 * int(rand(1000));
				$data = substr($data, 0, length($now) - $at);
				sysseek($o, $at, 0);
				syswrite($o, $data) == length($data) or die "write: $!";
				substr($now, $at, length($data)) = $data;
			}
			$o->sync or die "fsync: $!";
			print md5_hex($now), "\n";
			system("dmsetup", "message", "o", 0, "create", $id) == 0 or die "create $id";
		}
		seek($f, 0, 0);
		print $f $now;' "$TEST_TMP/now" "${ids[@]:$1:$2 - $1}"
}

make()
{
	make_them "$1" "$2" >"$TEST_TMP/sums" || return
	mapfile -t -O "$1" sums <"$TEST_TMP/sums"
}

# wrong N...: those whose content is not what the origin had then; ten at a time.
wrong()
{
	local n table
	local -a names paths lines

	while (($#)); do
		table='' names=() paths=()
		for n in "${@:1:10}"; do
			names+=("look$n")
			paths+=("/dev/mapper/look$n")
			table+="look$n,,,rw,$(snap_table "$base" "$store" P 8 id "${ids[n]}");"
		done
		if ! dmsetup create --concise "$table"; then
			echo "cannot open some of ${*:1:10}"
			return
		fi
		mapfile -t lines < <(md5sum "${paths[@]}")
		for n in "${@:1:10}"; do
			[[ ${lines[0]-} = "${sums[n]} "* ]] || printf '%s ' "$n"
			lines=("${lines[@]:1}")
		done
		dmsetup remove --retry "${names[@]}"
		shift $(($# < 10 ? $# : 10))
	done
}

every()
{
	seq "$2" "$1" $((N - 1))
}

delete()
{
	local n

	for n; do
		dmsetup message o 0 delete "${ids[n]}" || return
	done
}

freed_more_than()
{
	[[ $(key_of s freed) -gt $1 ]]
}

reload_module()
{
	rmmod dm_cowsnap && insmod "$COWSNAP_KO" && exact_copies
}

# ---- many ----

base=$(mkloop 512K)
store=$(mkloop $((N / 40 + 4))M)
fill "$base" "$TEST_TMP/now"
sums[0]=$(md5sum <"$TEST_TMP/now")
sums[0]=${sums[0]%% *}
origin_up o "$base"
ok "the first one, with the highest id" snap_up s "$base" "$store" P 8 id 65535 create
ok "$N live ones in one store" make 1 "$N"
is "$(key_of o snapshots)" "$N" "the origin counts them"
not_ok "no id is larger than 65535" dm message o 0 create 65536
not_ok "one that is there is not made again" dm message o 0 create "${ids[N / 2]}"
not_ok "nor by a table" snap_up s2 "$base" "$store" P 8 id "${ids[N / 2]}" create
dmremove s
mapfile -t sample < <(every 10 0)
is "$(wrong "${sample[@]}" $((N - 1)))" "" "every tenth, and the last, has its instant"
snap_up s "$base" "$store" P 8 id 65535
before=$(used_sectors s)
freed=$(key_of s freed)
mapfile -t gone < <(every 3 1)
ok "every third is deleted" delete "${gone[@]}"
is "$(key_of o snapshots)" $((N - ${#gone[@]})) "the origin counts those left"
ok "what they alone kept is freed" wait_for 20 freed_more_than "$freed"
# The last of it, too.
sleep 1
ok "and the store is less full" [ "$(used_sectors s)" -lt "$before" ]
used=$(used_sectors s)
exceptions=$(key_of s exceptions)
not_ok "a deleted one cannot be opened" snap_up s2 "$base" "$store" P 8 id "${ids[1]}"
dmremove s
dmremove o
reload_module
ok "an origin opens the store" origin_up o "$base" store "$store"
is "$(key_of o snapshots)" $((N - ${#gone[@]})) "those left are there"
snap_up s "$base" "$store" P 8 id 65535
is "$(used_sectors s)" "$used" "the store is as full as it was"
is "$(key_of s exceptions)" "$exceptions" "with as many versions"
dmremove s
mapfile -t left < <(every 3 0 && every 3 2)
is "$(wrong "${left[@]}")" "" "each one left has its instant"
not_ok "a deleted one is not there" snap_up s2 "$base" "$store" P 8 id "${ids[1]}"

# ---- an origin shorter than its device ----

base2=$(mkloop 1M)
store2=$(mkloop 2M)
half="0 1024 cowsnap-origin $base2"
dmcreate a "$half"
dmcreate b "0 1024 cowsnap $base2 $store2 P 8 1 create"
dmreload a "$half 2 store $store2"
dmremove b
ok "a snapshot of an origin shorter than its device" dm message a 0 create 2
ok "is as long as the origin" dmcreate b "0 1024 cowsnap $base2 $store2 P 8 2 id 2"
dmremove b
dmreload a "0 1600 cowsnap-origin $base2 2 store $store2"
ok "one made when it is longer" dm message a 0 create 3
not_ok "is longer" dmcreate b "0 1024 cowsnap $base2 $store2 P 8 2 id 3"
ok "by as much" dmcreate b "0 1600 cowsnap $base2 $store2 P 8 2 id 3"
dmremove b
dmremove a

# ---- ids and records are given out again ----

sums[1]=${sums[N - 1]}
ok "a deleted id is made again" dm message o 0 create "${ids[1]}"
ok "and more" make "$N" $((N + 8))
is "$(wrong 1 0 2 3 "$N" $((N + 7)))" "" "they have their instants, and those around them"
dmremove o
reload_module
origin_up o "$base" store "$store"
is "$(wrong 1 0 2 3 "$N" $((N + 7)))" "" "and after a reload"

# ---- all but one are deleted ----

mapfile -t most < <(every 3 3 && every 3 2)
ok "nearly all are deleted" delete "${most[@]}"
is "$(key_of o snapshots)" 10 "the others are there"
is "$(wrong 0 1 "$N" $((N + 7)))" "" "and right"
dmremove o

# ---- room is used again: more is written than the store holds ----

# Chunks of 1.5 origins, so that one deleted has to go before the next is written over.
cycles()
{
	local i

	for ((i = 0; i < cycle_count; i++)); do
		dmsetup message o 0 create 1 &&
			put_letter /dev/mapper/o "$((i % 10))" 0 "$BYTES" || return
		dmsetup message o 0 delete 1 || return
		[[ ! $1 ]] || wait_for 20 less_than_half || return
	done
}

less_than_half()
{
	[[ $(used_sectors k) -lt $((BYTES * 5 / 4 / 512)) ]]
}

base=$(mkloop 512K)
store=$(mkloop 1250K)
cycle_count=25
fill "$base" "$TEST_TMP/now"
origin_up o "$base"
snap_up k "$base" "$store" P 8
put_letter /dev/mapper/o A 0 "$BYTES"
put /dev/mapper/k "$TEST_TMP/now" 8192 4096
ok "ten times the store is written, snapshots made and deleted" cycles wait
ok "one that was there all along is whole" same /dev/mapper/k "$TEST_TMP/now"
ok "so it is when nobody waits for what is freed" cycles ""
like "$(status k)" '^[0-9]+/' "the store has not become full"
ok "the old one is whole" same /dev/mapper/k "$TEST_TMP/now"
dmremove k
dmremove o
reload_module
snap_up k "$base" "$store" P 8
ok "and after a reload" same /dev/mapper/k "$TEST_TMP/now"
dmremove k

# ---- what is deleted makes room for the very next write ----

# Zeroes are kept without data, so a full store is made quickly. Deleted, and written by
# a process that is there already.
delete_and_write()
{
	perl -e 'open(my $o, "+<", "/dev/mapper/o") or die "o: $!";
		use IO::Handle;
		my $zeroes = "\0" x 1048576;
		system("dmsetup", "message", "o", 0, "delete", $ARGV[0]) == 0 or die "delete";
		for (0 .. 7) {
			sysseek($o, $_ * 16 * 1048576, 0);
			syswrite($o, $zeroes) == 1048576 or die "write: $!";
		}
		$o->sync or die "fsync: $!"' "$1"
}

dmcreate zeroes "0 262144 zero"
base=/dev/mapper/zeroes
# 32768 chunks, and what their tables take.
store=$(mkloop $(((32768 + 128 + 2) * 4096)))
origin_up o "$base"
snap_up k "$base" "$store" P 8 id 1 create
dmreload o "$(origin_table "$base" store "$store")"
dmremove k
put_letter /dev/mapper/o 0 0 134217728 1048576
snap_up k "$base" "$store" P 8 id 2 create
like "$(status k)" '^[0-9]+/' "a store is full to the brim"
ok "one is deleted, and the origin written at once" delete_and_write 1
like "$(status k)" '^[0-9]+/' "the one left is whole"
is "$(key_of k exceptions)" 2048 "with what was written"
dmremove k
dmremove o

# ---- one instant for two origins ----

# Numbers, each written to a and then to b, one after the other.
count_up()
{
	exec perl -e 'use IO::Handle; my @f;
		open($f[$_], "+<", "/dev/mapper/" . ("a", "b")[$_]) or die "$!" for 0, 1;
		for my $n (1 .. 100000) {
			for (@f) {
				sysseek($_, 0, 0);
				syswrite($_, sprintf("%-512d", $n));
				$_->sync;
			}
		}'
}

number_in()
{
	get "$1" 0 512 | tr -d ' \0'
}

# The first may be one ahead, not more, and never behind.
one_instant()
{
	local a b

	dmsetup create ga --table "$(snap_table "$base" "$store" P 8 id "$1")" &&
		dmsetup create gb --table "$(snap_table "$base2" "$store2" P 8 id "$1")" || return
	a=$(number_in /dev/mapper/ga)
	b=$(number_in /dev/mapper/gb)
	diag "group $1: $a and $b"
	dmsetup remove --retry ga
	dmsetup remove --retry gb
	((a > 0 && a - b >= 0 && a - b <= 1))
}

group()
{
	dmsetup suspend a && dmsetup suspend b &&
		dmsetup message a 0 create "$1" && dmsetup message b 0 create "$1" || return
	dmsetup resume b && dmsetup resume a
}

base=$(mkloop 512K)
base2=$(mkloop 512K)
store=$(mkloop 4M)
store2=$(mkloop 4M)
fill_letter "$base" 0
fill_letter "$base2" 0
origin_up a "$base"
origin_up b "$base2"
# Stores have to be there for a message to make snapshots in them.
snap_up ka "$base" "$store" P 8
snap_up kb "$base2" "$store2" P 8
count_up &
counter=$!
counting()
{
	[[ $(number_in /dev/mapper/b) -gt 0 ]]
}
wait_for 60 counting
for n in 1 2 3; do
	sleep 1
	ok "a group of two, made while both are suspended, number $n" group "$n"
done
sleep 1
kill "$counter"
wait "$counter" 2>/dev/null
bad=''
for n in 1 2 3; do
	one_instant "$n" || bad+="$n "
done
is "$bad" "" "each group is of one instant"
