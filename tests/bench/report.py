# SPDX-License-Identifier: GPL-2.0-only
"""The report: all tables and charts, as Markdown, and the figures as JSON."""

import json

import charts
import more

HEAD = """<!-- SPDX-License-Identifier: GPL-2.0-only -->
# Benchmarks

Made by `make bench` from commit `{commit}`, kernel {kernel}, {qemu}. Virtual time: one instruction is one
nanosecond and disks are modelled ([tests/bench](../tests/bench/README.md), [tests/disk](../tests/disk/README.md)), so the same commit gives
the same figures on any machine. In brackets the ratio to raw, or to what the table names. The figures for machines are in
[benchmarks.json](benchmarks.json).

"""

CAPTIONS = {
    "settling": "Rate over time as a fresh snapshot settles (case A).",
    "snapshots": "Cost against the number of snapshots.",
    "latency": "How long a first write takes.",
    "head": "Where the head is while 32 MiB are written and synced.",
}


def draw(jobs, directory):
    """Those charts whose cases were run."""
    drawn = {}
    if "a-database" in jobs:
        drawn["a-database"] = charts.settling(jobs["a-database"], directory)
    if "snapshots" in jobs:
        drawn["snapshots"] = charts.snapshot_counts(jobs["snapshots"], directory, more.COUNTS)
    if "disk" in jobs:
        drawn["disk"] = charts.latencies(jobs["disk"], directory,
                                         ["raw", "dm-snapshot P", "dm-snapshot N", "cowsnap P",
                                          "cowsnap N"])
    if "head" in jobs:
        drawn["head"] = charts.head_positions(jobs["head"], directory)
    return drawn


def write(directory, cases, jobs, found):
    """benchmarks.md, benchmarks.json and the pictures in a directory of that name."""
    pictures = directory / "benchmarks"
    pictures.mkdir(parents=True, exist_ok=True)
    drawn = draw(jobs, pictures)
    parts = [HEAD.format(**found)]
    for case in cases:
        parts.append(f"## {case.title}\n\n{case.text}\n\n{case.markdown(found['cases'][case.name])}\n")
        if case.name in drawn:
            name = drawn[case.name]
            parts.append(f"![{CAPTIONS[name]}](benchmarks/{name}.svg)\n\n{CAPTIONS[name]}\n\n")
    (directory / "benchmarks.md").write_text("".join(parts).rstrip() + "\n")
    (directory / "benchmarks.json").write_text(json.dumps(found, indent=1) + "\n")
