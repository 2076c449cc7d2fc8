#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Names with characters that a shell, JSON, printf or device mapper takes for its own: an origin of
# such a name lives from create to remove, or is refused with one sentence; paths may have any.

. "$(dirname "$0")/common.sh"

need mkfs.ext4 perl
need_command

base=$(mkloop 8M)
store=$(mkloop 8M)
cd "$TEST_TMP" || exit
devices=$(dmsetup ls)

# In what --json lists.
has_origin()
{
	"$tool" list --json | perl -MJSON::PP -0777 -e '
		my ($name) = @ARGV;
		my $list = JSON::PP->new->latin1->decode(<STDIN>);
		exit !grep { $_->{name} eq $name } @{$list->{origins}}' -- "$1"
}

# From create to remove.
whole_life()
{
	local snapshot

	snapshot=$("$tool" snapshot -- "$1" | tail -n 1)
	echo "its snapshot: $snapshot"
	[[ $snapshot == "$1@1" ]] || return
	has_origin "$1" || { "$tool" list --json && return 1; }
	"$tool" status -- "$1@1" &&
		"$tool" diff -- "$1@1" && "$tool" set -- "$1" throttle 50 &&
		"$tool" activate -- "$1@1" && "$tool" deactivate -- "$1@1" &&
		"$tool" send -- "$1@1" >stream && "$tool" delete -- "$1@1" && "$tool" remove -- "$1"
}

# Where something went wrong, for the next one.
clear_away()
{
	dmsetup ls | awk '!/^No devices/ { print $1 }' | xargs -rn1 dmsetup remove
	dd if=/dev/zero of="$store" bs=4096 count=1 status=none
}

# It has to be one or the other, and nothing may be left.
takes_or_refuses()
{
	local rc=0

	"$tool" create --name "$1" "$base" "$store" >said 2>error || rc=$?
	case $rc in
	0) whole_life "$1" >said 2>&1 || { diag <said && clear_away && return 1; } ;;
	2) [[ $(wc -l <error) == 1 && ! -s said ]] || { diag <error && return 1; } ;;
	*) diag <error && return 1 ;;
	esac
	taken[rc]=$((${taken[rc]-0} + 1))
	[[ $(dmsetup ls) == "$devices" && ! -e pwned ]]
}

taken=()
names=('a b' ' a' 'a ' $'\xc3\xa4' $'\xff' 'x"y' "q'q" "\$(touch pwned)" "\`touch pwned\`" ';touch pwned'
	"back\\slash" "\\x20" $'new\nline' $'t\tab' '-n' '--name' '@' '@1' 'a@1' 'a/b' '..' '.' ''
	'%s%n%d' '{"a":1}' '<&>' '*' '?' '~' '#' 'a=b' 'a:b,c' - : _ a.b a+b a:b ... 7:0
	"$(printf 'n%.0s' {1..100})" "$(printf 'n%.0s' {1..120})"
	"$(printf 'n%.0s' {1..128})" "$(printf 'n%.0s' {1..4000})")
for name in "${names[@]}"; do
	ok "$(printf 'an origin called %.40q' "$name")" takes_or_refuses "$name"
done
ok "some are taken, some refused" test "${taken[0]-0}" -ge 5 -a "${taken[2]-0}" -ge 5
diag "${taken[0]} taken, ${taken[2]} refused"
"$tool" create --name one "$base" "$store" >/dev/null
not_ok "an origin gets no second name" "$tool" create --name two "$base" "$store"
ok "create again with the same name is no error" "$tool" create --name one "$base" "$store"
"$tool" remove one >/dev/null

# Paths.
odd=$'o dd "$x" `touch pwned` \xff\n%s'
mkdir "$odd"
ln -s "$base" "$odd/$odd"
at_exit _dmremove data
at_exit _dmremove data@1
at_exit _umount "$TEST_TMP/$odd"
mkfs.ext4 -qF "$base"
ok "a device is created by an odd path" "$tool" create --name data "$odd/$odd" "$store"
"$tool" snapshot data >/dev/null
ok "a snapshot is mounted in an odd directory" "$tool" mount data@1 "$odd"
ok "a snapshot is unmounted from an odd directory" "$tool" umount "$odd"
ok "a stream becomes a file of an odd name" \
	bash -c "set -o pipefail; '$tool' send data@1 | '$tool' receive \"\$1\"" - "$odd/image"
ok "the file of an odd name has every byte" cmp "$odd/image" "$base"
ok "changes are received into the file of an odd name" \
	bash -c "set -o pipefail; '$tool' snapshot data >/dev/null && '$tool' send --from data@1 data@2 |
		'$tool' receive \"\$1\"" - "$odd/image"
ok "an origin is found by an odd path of its device" "$tool" list "$odd/$odd"
ok "the origin made by an odd path is removed" "$tool" remove -f data
not_ok "no command in a name was run" test -e pwned
cd / || exit
done_testing
