#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# cowsnap status --prometheus prints what Prometheus reads: lines of the right form, those of a
# metric together, with the numbers that status has. The service of docs/integration.md writes them,
# also when a snapshot is lost.

. "$(dirname "$0")/../guides/common.sh"

tool=$(command -v cowsnap)
guide integration.md "## Prometheus"
base=$(mkloop 16M)
store=$(mkloop 16M)
"$tool" create --name data "$base" "$store" >/dev/null
_forget()
{
	"$tool" remove -f data >/dev/null
}
at_exit _forget
"$tool" snapshot data >/dev/null

metrics=$TEST_TMP/metrics
ok "status --prometheus" "$tool" status --prometheus
cp "$TEST_TMP/out" "$metrics"
label='[a-z]+="([^"\\]|\\.)*"'
ok "each line of the metrics is of the right form" \
	test -z "$(grep -vE "^(# TYPE cowsnap_[a-z_]+ untyped|cowsnap_[a-z_]+\{$label(,$label)*\} [0-9]+)\$" "$metrics")"
ok "the lines of a metric stand together" \
	test -z "$(sed -nE 's/^(cowsnap_[a-z_]+)\{.*/\1/p' "$metrics" | uniq | sort | uniq -d)"
ok "each metric has a line TYPE" diff <(sed -nE 's/^(cowsnap_[a-z_]+)\{.*/\1/p' "$metrics" | uniq) \
	<(sed -nE 's/^# TYPE ([a-z_]+) .*/\1/p' "$metrics")
like "$(<"$metrics")" 'cowsnap_snapshot_state\{snapshot="data@1",state="live"\} 1' \
	"the state is a label"
# Numbers that do not change by themselves.
is "$(sed -n 's/^cowsnap_origin_size{origin="data"} //p' "$metrics")" "$((16 << 20))" \
	"the size of the origin"
is "$(sed -n 's/^cowsnap_store_size{.*} //p' "$metrics")" \
	"$("$tool" status data | awk '$1 == "store" { store = 1 } store && $1 == "size" { print $2; exit }')" \
	"the size of the store, as status has it"

# ---- the service of the guide ----

unit=$TEST_TMP/cowsnap-metrics.service
file=$TEST_TMP/cowsnap.prom

# service: runs the lines of the unit, as systemd would, with another file.
service()
{
	local line

	while IFS= read -r line; do
		FILE=$file sh -c "${line//\$\$/\$}" || return
	done < <(sed -n "s|^ExecStart=/bin/sh -c '\\(.*\\)'\$|\\1|p" "$unit")
}

# Names of metrics, and states, that the rules of the guide ask for.
asked_for()
{
	grep -oE 'cowsnap_(origin|store|snapshot)_[a-z_]+' "$TEST_TMP/rules" | sort -u
}

install_file cowsnap-metrics.service "$unit"
install_file cowsnap-metrics.timer "$TEST_TMP/timer"
install_file cowsnap.rules.yml "$TEST_TMP/rules"
like "$(grep ^Environment "$unit")" 'FILE=/.*/cowsnap.prom$' "the service has a file"
ok "the service writes it" service
is "$(grep -c . "$file")" "$(grep -c . "$metrics")" "the service's file has as many lines as status prints"
not_ok "the service leaves no temporary file" test -e "$file.new"
is "$(asked_for | grep -vxFf <(sed -nE 's/^# TYPE (.*) untyped/\1/p' "$metrics"))" "" \
	"status has each metric that the rules ask for"
like "$(<"$TEST_TMP/timer")" 'OnUnitActiveSec=1min.*WantedBy=timers.target' "the timer repeats it"

# Half of the store cannot take what is written: the snapshot is invalid.
"$tool" remove -f data >/dev/null
store=$(mkloop 2M)
"$tool" create --name data "$base" "$store" >/dev/null
"$tool" snapshot data >/dev/null
put_letter /dev/mapper/data A 0 $((8 << 20))
"$tool" status --prometheus >/dev/null
is $? 1 "a snapshot that is lost is in the exit status"
ok "the service does not fail then" service
state=$(sed -n 's/^cowsnap_snapshot_state.*state="\([^"]*\)"} 1/\1/p' "$file")
ok "the file says so, and the rules ask for that" grep -qE "state=~\".*\b$state\b" "$TEST_TMP/rules"
all_was_run
done_testing
