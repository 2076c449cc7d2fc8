#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# An origin that is sealed, and has data in its store that no other place has, is started with its
# store as any other. Without it nothing of it is used, nothing is changed, and other lines go on.
# No command takes the store, or the line, away from it before its data is home, and those that show
# what there is show that.

. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/tab.sh"

need_command
exact_copies
expect_log 'blk_update_request|Buffer I/O error|critical .* error|I/O error, dev|lost async page write'

MIB=1048576
said=$TEST_TMP/said

_forget()
{
	words
	dmsetup ls | awk '/^(data|more)(@|-)/ { print $1 }' | xargs -rn1 dmsetup remove
	_dmremove data
	_dmremove more
	new_boot
}
at_exit _forget

# line OPTIONS [STORE [DEVICE]]: the file, with one line.
line()
{
	printf 'data\t%s\t%s\t%s\n' "${3:-$base}" "${2:-$store}" "$1" >"$tab"
}

# begin: sealed, with a snapshot, and 40 chunks of the origin that are in the store alone.
begin()
{
	_forget
	dd if=/dev/zero of="$store" bs=1M count=16 oflag=direct status=none
	fill "$base" "$TEST_TMP/now"
	cp "$TEST_TMP/now" "$TEST_TMP/old"
	"$tool" create --name data "$base" "$store" >/dev/null
	"$tool" snapshot data >/dev/null
	"$tool" remove --keep data >/dev/null
	"$tool" seal "$base" "$store" >/dev/null
	line nofail
	tab start
	"$tool" set data settle off redirect 50
	put /dev/mapper/data "$TEST_TMP/now" $MIB 65536 $((5 * MIB)) 98304
	tab stop
	remember
}

# remember: what both devices have. all_as_it_was: they have it still, and the file its line.
remember()
{
	blockdev --flushbufs "$base" "$store"
	cat "$(loop_file "$base")" "$(loop_file "$store")" "$tab" | sha256sum >"$TEST_TMP/sum"
}

all_as_it_was()
{
	blockdev --flushbufs "$base" "$store"
	cat "$(loop_file "$base")" "$(loop_file "$store")" "$tab" | sha256sum -c "$TEST_TMP/sum" --quiet
}

# is_whole WORDS: the origin can be started, and shows what it should, and so does its snapshot.
is_whole()
{
	new_boot
	line nofail
	ok "$1: then it is started" tab start
	ok "$1: it has all its data" same /dev/mapper/data "$TEST_TMP/now"
	is "$(state data@1)" live "$1: its snapshot is live"
	"$tool" activate data@1 >/dev/null
	ok "$1: its snapshot is what it was" same /dev/mapper/data@1 "$TEST_TMP/old"
	tab stop >/dev/null
}

# fails REGEX COMMAND...: with status 2, and a sentence that has REGEX in it.
fails()
{
	local regex=$1 rc=0

	shift
	"$@" >"$said" 2>&1 || rc=$?
	cat "$said"
	((rc == 2)) && grep -qE -- "$regex" "$said"
}

# not_used REGEX WORDS: it is not started, why is said, and nobody can tell from the disks.
not_used()
{
	ok "$2: start fails, and says why" fails "$1" tab start
	ok "$2: no origin is started" inactive
	not_ok "$2: nothing is given up" test -e /run/cowsnap/data.dropped
	ok "$2: its links are not given back" env DEVNAME="$base" MAJOR=7 MINOR="${base#/dev/loop}" \
		"$tool" tab --file="$tab" owns
	tab settle
	ok "$2: nothing is changed" all_as_it_was
}

# number_of KEY: of the store, as status has it.
number_of()
{
	"$tool" status data | awk -v key="$1" '$1 == "store" { inside = 1 } inside && $1 == key { print $2; exit }'
}

base=$(mkloop 32M)
store=$(mkloop 16M)
other=$(mkloop 32M)
other_store=$(mkloop 16M)

# ---- what is shown ----

begin
is_whole "with its store"
tab start
is "$(number_of sealed) $(number_of redirect) $(number_of unsettled)" "1 50 40" "status has what is in the store"
like "$("$tool" list data)" "$store .* sealed +-.*redirect 50%  +8M +160K +- +unsettled +-.*data@1" \
	"so has list"
like "$("$tool" list --json data)" '"sealed": ?1.*"unsettled": ?40' "so has its JSON"
like "$("$tool" status --prometheus data)" \
	'cowsnap_store_sealed.[^ ]*. 1.*cowsnap_store_unsettled.[^ ]*. 40' "so have the metrics"
is "$("$tool" remove --keep data)" "$base is sealed, and of no use without its store" \
	"what is left without the origin is said"

# ---- the store is missing ----

for options in nofail defaults; do
	line "$options" /dev/none
	remember
	not_used "data: .*$([[ $options == nofail ]] && echo 'is sealed' || echo /dev/none)" \
		"$options, store missing"
	is_whole "$options, store missing"
done
line nofail /dev/none
"$tool" create --name more "$other" "$other_store" >/dev/null
"$tool" remove --keep more >/dev/null
printf 'more\t%s\t%s\tnofail\n' "$other" "$other_store" >>"$tab"
not_ok "beside another line start tells of the one" tab start
like "$(dmsetup table more)" cowsnap-origin "but starts the other"
tab stop >/dev/null

begin
head -c 4096 /dev/urandom >"$store"
remember
not_used 'sealed and of no use without its store' "nofail, another content in the store"

begin
blockdev --setro "$store"
not_used 'sealed and of no use without its store.*read-only' "nofail, the store is read-only"
blockdev --setrw "$store"
is_whole "nofail, the store is read-only"

begin
rmmod dm_cowsnap
not_used 'sealed and of no use without its store.*the module is not there' "nofail, no module"
insmod "$COWSNAP_KO"
is_whole "nofail, no module"

# ---- cowsnap=drop ----

words cowsnap=drop
remember
not_used 'sealed and of no use without its store.*cowsnap=drop' "cowsnap=drop"
is "$(stored_state)" live "cowsnap=drop: the snapshot is live"
line nofail /dev/none
remember
not_used 'sealed and of no use without its store.*cowsnap=drop' "cowsnap=drop, store missing"
line nofail "$store" UUID=none
remember
ok "cowsnap=drop, device not found: start fails, and says why" \
	fails 'data: store .* is sealed.* or run cowsnap settle and cowsnap unseal' tab start
ok "cowsnap=drop, device not found: nothing is changed" all_as_it_was
words
is_whole "cowsnap=drop"

# ---- a rollback ----

new_boot
words cowsnap.rollback=data@1
ok "start with cowsnap.rollback" tab start
ok "cowsnap.rollback: the origin is what the snapshot was" same /dev/mapper/data "$TEST_TMP/old"
ok "cowsnap.rollback: settle waits for its end" tab settle
is "$(state data@1)" "" "cowsnap.rollback: the snapshot is gone"
is "$(number_of unsettled)" 0 "cowsnap.rollback: so is what was redirected since then"
tab stop >/dev/null
begin
tab start

# ---- what would take the store away ----

way='cowsnap settle and cowsnap unseal'
ok "disable is refused" fails "$way" cowsnap disable --file="$tab" data
ok "disable -f is refused" fails "$way" cowsnap disable -f --file="$tab" data
ok "remove is refused" fails "$way" cowsnap remove data
ok "remove -f is refused" fails "$way" cowsnap remove -f data
ok "a snapshot does not become a tracker" fails 'settle' cowsnap delete --track data@1
is "$(state data@1)" live "all refused: the snapshot is live"
tab stop
remember
ok "disable is refused where it is not active" fails "$way" cowsnap disable --file="$tab" data
ok "so is disable -f" fails "$way" cowsnap disable -f --file="$tab" data
ok "create is refused" fails 'a store with snapshots' cowsnap create "$base" "$store"
ok "create -f is refused" fails "$way" cowsnap create -f "$base" "$store"
ok "create with another store is refused" fails 'is sealed by the store with uuid' cowsnap create "$base" "$other"
ok "create -t with another store is refused" fails 'is sealed by the store with uuid' cowsnap create -t "$base" "$other"
ok "enable with another store is refused" fails 'sealed by the store with uuid' cowsnap enable --file="$TEST_TMP/tab2" -f \
	--name x --store="$other" "$base"
ok "enable for another device is refused" fails "$way" cowsnap enable --file="$TEST_TMP/tab2" -f \
	--name x --store="$store" "$other"
not_ok "no line is written" test -e "$TEST_TMP/tab2"
ok "unseal is refused" fails 'cowsnap settle' cowsnap unseal "$base" "$store"
ok "all refused: nothing is changed" all_as_it_was
is_whole "all refused"

rm "$tab"
ok "enable with its own store, without a line, writes the line" cowsnap enable --file="$tab" --name data \
	--store="$store" "$base"
ok "enable with its own store starts it" active
tab stop
is_whole "enable with its own store"

# ---- without snapshots ----

tab start
ok "the last snapshot is deleted" cowsnap delete data@1
ok "without it the origin has all its data" same /dev/mapper/data "$TEST_TMP/now"
ok "remove is refused even so" fails "$way" cowsnap remove data
ok "disable is refused even so" fails "$way" cowsnap disable --file="$tab" data
tab stop
tab start
ok "started again it has all its data" same /dev/mapper/data "$TEST_TMP/now"
tab stop
ok "it is settled" cowsnap settle -q "$base" "$store"
ok "and unsealed" cowsnap unseal "$base" "$store"
ok "then it is disabled" cowsnap disable --file="$tab" data
ok "its device has all its data" same "$base" "$TEST_TMP/now"

# ---- sealed before the store was told of a loss: later nobody could tell which came first ----

uuid=$(od -An -t x1 -j 48 -N 16 "$store" | tr -d ' \n')
line "nofail,invalid=$(date +%s),store-uuid=$uuid"
ok "seal is refused while its line has a loss to tell" fails 'which .* has to be told first: cowsnap tab start data' \
	cowsnap seal --file="$tab" "$base" "$store"
tab start
tab stop
ok "seal is not refused once that is told" cowsnap seal --file="$tab" "$base" "$store"

# ---- a store that dies, and comes back ----

begin
dmcreate weak "$(linear_table "$store")"
line nofail /dev/mapper/weak
tab start
swap_table weak "$(error_table "$store")"
put_letter /dev/mapper/data Z $((20 * MIB)) 512
is "$(state data@1)" invalid "a store that dies costs the snapshot"
once="$way, once it can be read again"
ok "a store that died is not taken for one that nobody needs: remove -f is refused" fails "$once" \
	cowsnap remove -f data
ok "so is disable -f" fails "$once" cowsnap disable -f --file="$tab" data
ok "refused: the origin is there" active
swap_table weak "$(linear_table "$store")"
tab stop
like "$(<"$tab")" 'nofail,died=[0-9]+' "the line says that it died"
ok "the store is back: start succeeds" tab start
is "$(state data@1)" invalid "the store is back: the snapshot is invalid"
ok "the store is back: the line says so no more" test -z "$(grep died= "$tab")"
letters Z 512 | dd of="$TEST_TMP/now" bs=1M seek=20 conv=notrunc status=none
ok "the store is back: the origin has all its data" same /dev/mapper/data "$TEST_TMP/now"
tab stop

swap_table weak "$(error_table "$store")"
ok "disable -f is refused while its store cannot be read" \
	fails 'is sealed by the store with uuid .*, which cannot be found or read.*--without-store' \
	cowsnap disable -f --file="$tab" data
line nofail /dev/none
ok "disable -f is refused while its store is not there" \
	fails 'is sealed by the store with uuid' cowsnap disable -f --file="$tab" data
swap_table weak "$(linear_table "$store")"
dd if="$store" of="$TEST_TMP/head" bs=1M count=1 iflag=direct status=none
dd if=/dev/urandom of="$store" bs=1M count=1 oflag=direct status=none
printf 'dm-cowsnap store' | dd of="$store" conv=notrunc status=none
blockdev --flushbufs "$store"
line nofail /dev/mapper/weak
ok "disable is refused while its store is damaged" fails 'is sealed by the store with uuid' \
	cowsnap disable --file="$tab" data
dd if="$TEST_TMP/head" of="$store" bs=1M count=1 oflag=direct status=none
ok "after all that it is started" tab start
ok "after all that it has all its data" same /dev/mapper/data "$TEST_TMP/now"
tab stop

# ---- a volume that was taken over, and is in use when its store dies ----

dmcreate vol "$(linear_table "$base")"
cowsnap create --existing /dev/mapper/vol /dev/mapper/weak
dmcreate user "$(linear_table /dev/mapper/vol)"
swap_table weak "$(error_table "$store")"
ok "taken over: remove --keep is refused" fails 'in use, and it would begin with seals' cowsnap remove --keep vol
like "$(dmsetup table vol)" cowsnap-origin "taken over: it is an origin still"
swap_table weak "$(linear_table "$store")"
dmremove user
ok "taken over: remove --keep is not refused when nobody uses it" cowsnap remove --keep vol
_dmremove vol
_dmremove weak
done_testing
