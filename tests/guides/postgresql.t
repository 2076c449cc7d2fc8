#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The guide to backups of a database: a PostgreSQL under load, its log on another origin, is backed
# up in full and by what has changed, restored to other disks, and rolled back; each time it has all
# that was committed before the snapshot and nothing later, and is sound.

. "$(dirname "$0")/common.sh"

PG=$(echo /usr/lib/postgresql/*/bin)
[[ -x $PG/postgres ]] || skip_all "no postgresql here (tests/check -r guides)"
guide integration.md "## A database"
export PGDATABASE=postgres
LOG=/var/log/postgresql/postgresql-15-bank.log
load=''

pg()
{
	runuser -u postgres -- "$@"
}

sql()
{
	pg psql --cluster 15/bank -XAtq -v ON_ERROR_STOP=1 -c "$1"
}

transactions()
{
	sql 'select count(*) from pgbench_history'
}

more_than()
{
	(($(transactions) > $1))
}

# busy: so many transactions more, so that the load is under way.
busy()
{
	wait_for 120 more_than $(($(transactions) + 100))
}

start_load()
{
	pg pgbench --cluster 15/bank -n -c 2 -T 3600 >"$TEST_TMP/load" 2>&1 &
	load=$!
	busy
}

mark()
{
	sql "insert into marks values ('$1')"
}

marks()
{
	sql 'select name from marks order by name' | tr '\n' ' '
}

# lost: the machine that the database was on has gone, as far as it can be seen here.
lost()
{
	kill "$load" 2>/dev/null
	wait "$load"
	pg_ctlcluster 15 bank stop -m immediate
	umount /srv/pgdata /srv/pgwal
	: >"$LOG"
}

# sound WORDS: what PostgreSQL itself says.
sound()
{
	like "$(<"$LOG")" 'automatic recovery in progress.*redo done' "$1: the server had to recover"
	is "$(sql 'select count(*) > 0 and sum(delta) = (select sum(abalance) from pgbench_accounts)
		and sum(delta) = (select sum(tbalance) from pgbench_tellers)
		and sum(delta) = (select sum(bbalance) from pgbench_branches) from pgbench_history')" t \
		"$1: the balances agree"
	ok "$1: tables and indexes fit" pg "$PG/pg_amcheck" -h /var/run/postgresql \
		-p "$(pg_lsclusters -h | awk '$2 == "bank" { print $3 }')" -d postgres --install-missing --heapallindexed
}

# checksums WORDS: of a server that is stopped.
checksums()
{
	pg_ctlcluster 15 bank stop -m fast
	ok "$1: every page has its checksum" pg "$PG/pg_checksums" --check -D /srv/pgdata/bank
}

# states: of all snapshots that there are.
states()
{
	cowsnap list --json | perl -MJSON::PP -0777 -ne 'print join " ", map { $_->{state} }
		map { @{$_->{snapshots}} } map { @{$_->{stores}} } @{decode_json($_)->{origins}}'
}

_end()
{
	kill "$load" 2>/dev/null
	! pg_lsclusters -h | grep -q 'bank.*online' || pg_ctlcluster 15 bank stop -m immediate
	umount -q /srv/pgdata
	umount -q /srv/pgwal
	_origin_gone pgdata
	_origin_gone pgwal
	rm -rf /etc/postgresql/15/bank
}

# A machine without a source of randomness would let initdb wait for minutes; nothing is secret here.
perl -e 'open F, ">", "/dev/random"; ioctl F, 0x40085203, pack "iia64", 512, 64, rand . rand'

ip link set lo up
disk sdb1 192M
disk sdc1 192M
disk sdd1 160M
disk sdd2 160M
disk sde1 192M
disk sdf1 192M
at_exit _end

ok "the database is set up" run_block setup || exit
sql "alter system set max_wal_size = '32MB'"
sql "alter system set min_wal_size = '32MB'"
sql 'select pg_reload_conf()' >/dev/null
pg pgbench --cluster 15/bank -i -q >/dev/null 2>&1
sql 'create table marks (name text)'
ok "the database gets a load" start_load

# ---- backup and restore ----

install_file /usr/local/sbin/pg-backup
mark 1
ok "a backup in full" run_block backup
mark 2
busy
is "$(states)" "tracker tracker" "no snapshot takes room in a store afterwards"
ok "a backup of what has changed" pg-backup
mark 3
busy
ok "both origins have an image" test -e /srv/backup/pgdata.img -a -e /srv/backup/pgwal.img -a -e /srv/backup/complete
lost
ok "the backup is restored to other disks" run_block restore
is "$(marks)" "1 2 " "restored: all from before the backup is there, and nothing later"
sound restored
checksums restored
umount /srv/pgdata /srv/pgwal

# ---- a backup that fails half way ----

mount /dev/mapper/pgdata /srv/pgdata
mount /dev/mapper/pgwal /srv/pgwal
rm -f /srv/pgdata/bank/postmaster.pid
pg_ctlcluster 15 bank start
mv /srv/backup/pgwal.img /srv/backup/away
mkdir /srv/backup/pgwal.img
not_ok "a backup of which one half cannot be written fails" pg-backup
not_ok "its images are not called a pair" test -e /srv/backup/complete
is "$(states)" "tracker tracker" "a failed backup leaves no snapshot"
rmdir /srv/backup/pgwal.img
mv /srv/backup/away /srv/backup/pgwal.img
ok "the backup after a failed one makes the images a pair" pg-backup
ok "the images are called a pair again" test -e /srv/backup/complete

# ---- rolled back ----

mark 4
start_load
ok "a snapshot before something that may go wrong" run_block before
diag <"$TEST_TMP/out"
mark 5
busy
kill "$load"
wait "$load"
: >"$LOG"
ok "both origins are rolled back" run_block rollback
is "$(marks)" "1 2 3 4 " "rolled back: all from before the snapshot is there, and nothing later"
sound "rolled back"
mark 6
ok "a backup of what has changed, after a rollback" pg-backup
umount_all()
{
	umount /srv/pgdata /srv/pgwal
}
pg_ctlcluster 15 bank stop -m fast
ok "the server has stopped" umount_all
ok "the image of its data is restored once more" run_block restore
is "$(marks)" "1 2 3 4 6 " "restored once more: the marks of the backup are there"
checksums "restored once more"

# That all this would be noticed.
dd if=/dev/urandom of="$(find /srv/pgdata/bank/base -name '*_vm' -prune -o -type f -size +1000k -print -quit)" \
	bs=1 seek=$((50 * 8192 + 4000)) count=8 conv=notrunc status=none
not_ok "eight wrong bytes: a page has not its checksum" pg "$PG/pg_checksums" --check -D /srv/pgdata/bank
all_was_run
done_testing
