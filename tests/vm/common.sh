# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash disable=SC2034
#
# What the scripts in tests/vm share: where things are kept, how to speak, how
# to take a lock, and where Debian packages come from.

VM_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TOP_DIR=$(cd "$VM_DIR/../.." && pwd)
CACHE_DIR=${COWSNAP_CACHE:-/var/cache/dm-cowsnap}

# The version of Debian's kernel series that each short name stands for.
DEBIAN_SERIES="6.1 6.12"

# That of Debian 11, the oldest the module is for.
OLD_SERIES=5.10

# The kernel whose source the debug kernel is built from.
DEBUG_SERIES=6.1

say()
{
	printf '== %s\n' "$*" >&2
}

die()
{
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

need_root()
{
	[[ $(id -u) -eq 0 ]] || die "must be run as root"
}

# own_mounts ARGUMENTS-OF-THE-SCRIPT...: begin the script anew in a mount namespace of its own, if it
# is in the one it was started in. Whatever ends it, its mounts end too, and no rm goes into them.
own_mounts()
{
	local here

	here=$(readlink /proc/self/ns/mnt)
	[[ ${COWSNAP_STARTED_IN:=$here} == "$here" ]] || return 0
	export COWSNAP_STARTED_IN
	exec unshare --mount --propagation private -- "$0" "$@"
}

# remove DIR...: without what is mounted below.
remove()
{
	rm -rf --one-file-system "$@"
}

# lock NAME: one process at a time from here to the end of the calling shell.
# The descriptor is closed in children that outlive us by passing {lock_fd}>&-.
lock()
{
	mkdir -p "$CACHE_DIR"
	exec {lock_fd}>"$CACHE_DIR/.lock-$1"
	if ! flock -n "$lock_fd"; then
		say "waiting for another run to finish with $1"
		flock "$lock_fd"
	fi
}

unlock()
{
	exec {lock_fd}>&-
}

# The archive this machine itself installs Debian packages from.
debian_mirror()
{
	local codename

	codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
	# The words in $() are apt's to expand, not the shell's.
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(CREATED_BY) $(CODENAME) $(COMPONENT) $(REPO_URI)' |
		awk -v c="$codename" '$1 == "Packages" && $2 == c && $3 == "main" { print $4; exit }'
}

# quietly LOG COMMAND...: the output goes to LOG and is shown only on failure.
quietly()
{
	local log=$1 rc=0

	shift
	"$@" >"$log" 2>&1 </dev/null || rc=$?
	if ((rc)); then
		tail -n 60 "$log" >&2
		printf '%s: failed (%d): %s\n(whole log: %s)\n' "${0##*/}" "$rc" "$*" "$log" >&2
	fi
	return "$rc"
}

# newest_version: the highest of the versions read from stdin.
newest_version()
{
	sort -V | tail -n 1
}

# unmount DIR...: what DKMS has started may be there for a moment longer.
unmount()
{
	local dir try

	for dir; do
		for ((try = 0; try < 50; try++)); do
			! umount "$dir" 2>/dev/null || continue 2
			sleep 0.2
		done
		umount "$dir"
	done
}
