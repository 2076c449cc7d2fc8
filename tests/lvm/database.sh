# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# What the tests with a database share: PostgreSQL on /dev/vg/lv with a load of many small
# transactions on it; a second server on a snapshot, and the first after a rollback, have
# to recover and to be sound. How a snapshot is made is the test's: snapshot NAME.
#
# Sound is what PostgreSQL itself says: the balances that each transaction moves
# agree, every index fits its table (pg_amcheck), every page its checksum
# (pg_checksums). And nothing that was acknowledged before the snapshot is missing.

PG=$(echo /usr/lib/postgresql/*/bin)
[[ -x $PG/postgres ]] || skip_all "no postgresql here (tests/check -r db)"

chmod 711 "$TEST_TMP"
mkdir "$TEST_TMP/pg"
chown postgres "$TEST_TMP/pg"

plan 24

# pg PROGRAM [ARG...]: as its own user; it refuses to run as root.
pg()
{
	runuser -u postgres -- "$PG/$1" "${@:2}"
}

# start DIR PORT: recovers first, if it has to; the log is $TEST_TMP/pg/PORT.
start()
{
	at_exit _stop "$1" immediate
	pg pg_ctl -s -w -t 300 -D "$1/data" -l "$TEST_TMP/pg/$2" -o "-p $2 -k $TEST_TMP/pg \
		-c listen_addresses= -c shared_buffers=16MB -c max_wal_size=16MB" start
}

_stop()
{
	[[ ! -f $1/data/postmaster.pid ]] || stop "$@"
}

stop()
{
	pg pg_ctl -s -w -t 300 -D "$1/data" -m "$2" stop
}

# sql PORT QUERY
sql()
{
	pg psql -h "$TEST_TMP/pg" -p "$1" -d postgres -XAtq -v ON_ERROR_STOP=1 -c "$2"
}

transactions()
{
	sql 5001 'select count(*) from pgbench_history'
}

# busy: as many transactions again as there are, so that the load is under way.
busy()
{
	local before

	before=$(transactions)
	wait_for 120 more_than $((before + 100))
}

more_than()
{
	(($(transactions) > $1))
}

# sound PORT DIR WORDS: four points; the server is down then.
sound()
{
	local port=$1 dir=$2 words=$3

	is "$(sql "$port" 'select count(*) > 0 and sum(delta) = (select sum(abalance) from pgbench_accounts)
		and sum(delta) = (select sum(tbalance) from pgbench_tellers)
		and sum(delta) = (select sum(bbalance) from pgbench_branches) from pgbench_history')" t \
		"$words: the balances agree"
	ok "$words: tables and indexes fit" pg pg_amcheck -h "$TEST_TMP/pg" -p "$port" -d postgres \
		--install-missing --heapallindexed
	ok "$words: the server stops" stop "$dir" fast
	ok "$words: every page has its checksum" pg pg_checksums --check -D "$dir/data"
}

marks()
{
	sql "$1" 'select name from marks order by name' | tr '\n' ' '
}

database_is_kept()
{
	local dir copy load

	dir=$(mkmount /dev/vg/lv ext4)
	chown postgres "$dir"
	ok "a database is made" pg initdb -k -N --wal-segsize=1 -A trust --no-locale -D "$dir/data"
	ok "the database is served" start "$dir" 5001
	ok "the database gets its tables" pg pgbench -h "$TEST_TMP/pg" -p 5001 -i -q postgres
	sql 5001 'create table marks (name text)'
	pg pgbench -h "$TEST_TMP/pg" -p 5001 -n -c 4 -T 3600 postgres >"$TEST_TMP/load" 2>&1 &
	load=$!
	ok "the database gets a load" busy

	sql 5001 "insert into marks values ('1')"
	ok "a snapshot is made under load" snapshot s1
	sql 5001 "insert into marks values ('2')"
	ok "the load goes on after the snapshot" busy

	copy=$(domount /dev/vg/s1)
	rm "$copy/data/postmaster.pid"
	ok "a second server starts on the snapshot" start "$copy" 5002
	like "$(<"$TEST_TMP/pg/5002")" 'automatic recovery in progress.*redo done' \
		"the second server had to recover"
	is "$(marks 5002)" "1 " "all from before the snapshot is there, and nothing later"
	sound 5002 "$copy" "the snapshot"
	umount "$copy"

	ok "another snapshot is made under load" snapshot s2
	sql 5001 "insert into marks values ('3')"
	busy
	kill "$load"
	wait "$load"
	ok "the first server is stopped in the midst of it" stop "$dir" immediate
	umount "$dir"
	ok "rollback: the snapshot is merged" lvconvert -i 1 --merge vg/s2
	mount /dev/vg/lv "$dir"
	rm "$dir/data/postmaster.pid"
	: >"$TEST_TMP/pg/5001"
	ok "rolled back: the server starts" start "$dir" 5001
	like "$(<"$TEST_TMP/pg/5001")" 'automatic recovery in progress.*redo done' \
		"rolled back: the server had to recover"
	is "$(marks 5001)" "1 2 " \
		"rolled back: all from before the snapshot is there, and nothing later"
	sound 5001 "$dir" "rolled back"

	# That all this would be noticed.
	dd if=/dev/urandom of="$(find "$dir/data/base" -name '*_vm' -prune -o -type f -size +1000k -print -quit)" \
		bs=1 seek=$((50 * 8192 + 4000)) count=8 conv=notrunc status=none
	not_ok "eight wrong bytes: a page has not its checksum" pg pg_checksums --check -D "$dir/data"
}
