# SPDX-License-Identifier: GPL-2.0-only
"""The report: all tables and charts, as Markdown, and the figures as JSON."""

import against
import charts
import earlier
import jsonfile
import more
import repeat
from grid import ratio_text, rate_text, wrapped

HEAD = """<!-- SPDX-License-Identifier: GPL-2.0-only -->
# Benchmarks

Written by `make bench` from commit `{commit}`, kernel {kernel},
{qemu}.

Time is virtual: one instruction takes one nanosecond, and disks are modelled
([tests/bench](../tests/bench/README.md), [tests/disk](../tests/disk/README.md)). The same commit
therefore gives the same figures on any machine.

"Raw" is the volume without a snapshot. Brackets hold the ratio to raw, or to the stack that the
table names. P is a persistent store, N a transient one. Chunks have 4 KiB unless the table names
another size. [benchmarks.json](benchmarks.json) has the figures in machine-readable form.

Besides raw, dm-snapshot and dm-thin, one case compares with XFS reflink and btrfs. ZFS is left
out: it is in Debian's contrib section, which the tests do not install from.

"""

PARTIAL = """**Incomplete**: cases and jobs that were not run are missing.

"""

# The rows of the first table: case, test, what it is.
GLANCE = (
    ("disk", "random-1", "one disk, random 4K writes"),
    ("disk", "sync", "one disk, sequential 4K O_SYNC writes"),
    ("disk", "large", "one disk, sequential 1M writes"),
    ("disk", "again", "one disk, rewrites of copied chunks"),
    ("battery", "sync", "battery-backed cache, sequential 4K O_SYNC writes"),
    ("battery", "random-1", "battery-backed cache, random 4K writes"),
    ("ssd", "random-1", "solid-state disk, random 4K writes"),
    ("memory", "random", "RAM disk, random 4K writes"),
    ("memory", "large", "RAM disk, 1M writes"),
    ("a-database", "direct", "A. sysbench fileio, O_DIRECT"),
    ("a-database", "settle-3", "A. a small file, third run"),
    ("b-mix", "mix/writes", "B. 100 threads, writes"),
    ("c-dd", "create-fsync-100", "C. dd with fsync, 100 MB"),
    ("d-hardware-raid", "first", "D. sequential O_SYNC writes on a RAID"),
    ("f-files", "files", "F. files created"),
)
GLANCE_STACKS = ("dm-snapshot P", "dm-snapshot N", "dm-thin", "cowsnap P", "cowsnap N")
# Case C names its stacks by the order of kcopyd's requests as well.
OTHER_NAMES = {("c-dd", "cowsnap P"): "cowsnap P, head"}

PICTURES = {"a-database": "settling", "snapshots": "snapshots", "disk": "latency", "head": "head"}
CAPTIONS = {
    "settling": "Rate over time as a fresh snapshot settles (case A).",
    "snapshots": "Cost against the number of snapshots.",
    "latency": "Latency of first writes.",
    "head": "Position of the head while 32 MiB are written and synced.",
}


def draw(cases, jobs, directory):
    """Those charts all of whose stacks were run; others stay as they are."""
    full = {case.name: jobs[case.name] for case in cases
            if case.jobs().keys() == jobs.get(case.name, {}).keys()}
    if "a-database" in full:
        charts.settling(full["a-database"], directory)
    if "snapshots" in full:
        charts.snapshot_counts(full["snapshots"], directory, more.COUNTS)
    if "disk" in full:
        charts.latencies(full["disk"], directory,
                         ["raw", "dm-snapshot P", "dm-snapshot N", "cowsnap P", "cowsnap N"])
    if "head" in full:
        charts.head_positions(full["head"], directory)


def glance_rows(found):
    """(title, raw's cell, {stack: ratio to raw}) of each row."""
    cells = {(case, *repeat.cell_key(cell)): cell
             for case, figures in found["cases"].items() for cell in figures}
    for case, test, title in GLANCE:
        raw = cells.get((case, test, "raw"))
        if not raw:
            continue
        ratios = {}
        for stack in GLANCE_STACKS:
            cell = cells.get((case, test, OTHER_NAMES.get((case, stack), stack)))
            if cell:
                ratios[stack] = cell["value"] / raw["value"]
        yield title, raw, ratios


def glance(rows):
    """What matters of all tables in one."""
    lines = ["## At a glance", "", "Writes after a snapshot was created; ratios to raw.", "",
             "| | raw | " + " | ".join(GLANCE_STACKS) + " |",
             "|---" * (len(GLANCE_STACKS) + 2) + "|"]
    for title, raw, ratios in rows:
        row = [f"{rate_text(raw['value'])} {raw['unit'].split()[-1]}"]
        row += [ratio_text(ratios[stack]) if stack in ratios else "" for stack in GLANCE_STACKS]
        lines.append(f"| {title} | " + " | ".join(row) + " |")
    return "\n".join(lines + ["", "![Ratios to raw](benchmarks/glance.svg)"]) + "\n\n"


def missed(cases, found):
    """How many targets are met, and those that are not."""
    titles = {case.name: case.title for case in cases}
    every = [(name, target) for name, some in found["targets"].items() for target in some]
    lines = [f"{sum(target['met'] for _, target in every)} of {len(every)} targets are met."]
    late = [wrapped(f"- {titles[name]}: {target['title']}: {ratio_text(target['value'])}, wanted "
                    f"{'at most' if target['at_most'] else 'at least'} "
                    f"{ratio_text(target['limit'])}", "  ")
            for name, target in every if not target["met"]]
    if late:
        lines[0] += " These are missed:"
        lines += [""] + late
    return "\n".join(lines) + "\n\n"


def repetition(cases, found):
    """Both runs: how much of each case was compared, and one case in full."""
    if not any(found["repeated"][case.name]["jobs"] for case in cases):
        return ""
    lines = ["## Two runs", "",
             "Each job is booted twice, and all figures of both runs are compared: rates, "
             "percentiles,\ncounters of disks and snapshots.", "",
             "| case | jobs | figures | largest difference |", "|---|---|---|---|"]
    for case in cases:
        difference = found["repeated"][case.name]
        if difference["jobs"]:
            lines.append(f"| {case.title} | {difference['jobs']} | {difference['figures']:,} | "
                         f"{difference['percent']:.3g} % |")
    alone = [case.title for case in cases if not found["repeated"][case.name]["jobs"]]
    if alone:
        lines += ["", f"Not compared: {'; '.join(alone)}."]
    return "\n".join(lines) + "\n\n" + both_runs(found)


def both_runs(found, case="disk"):
    cells = [cell for cell in found["cases"].get(case, []) if "again" in cell]
    if not cells:
        return ""
    lines = ["Both runs of the first table, side by side:", "",
             "| test | stack | first run | second run |", "|---|---|---|---|"]
    lines += [f"| {cell['test']} | {cell['stack']} | {cell['value']:.6g} | {cell['again']:.6g} |"
              for cell in cells]
    return "\n".join(lines) + "\n"


def section(case, found, picture):
    text = f"## {case.title}\n\n{wrapped(case.text)}\n\n{case.markdown(found['cases'][case.name])}\n"
    if picture:
        text += f"![{CAPTIONS[picture]}](benchmarks/{picture}.svg)\n\n{CAPTIONS[picture]}\n\n"
    return text


def markdown(cases, found, pictures):
    """The text of benchmarks.md; a chart that is not in @pictures is not shown."""
    drawn = {case: name for case, name in PICTURES.items() if (pictures / f"{name}.svg").exists()}
    parts = [HEAD.format(**found), PARTIAL if found["partial"] else "",
             glance(list(glance_rows(found))), missed(cases, found)]
    parts += [section(case, found, drawn.get(case.name)) for case in cases]
    parts += [repetition(cases, found), earlier.markdown(found)]
    return "".join(parts).rstrip() + "\n"


def write(directory, cases, jobs, found):
    """benchmarks.md, against-dm-snapshot.md, benchmarks.json, and the pictures in a directory."""
    pictures = directory / "benchmarks"
    pictures.mkdir(parents=True, exist_ok=True)
    draw(cases, jobs, pictures)
    charts.glance([(title, ratios) for title, _, ratios in glance_rows(found)],
                  ["dm-snapshot P", "cowsnap P", "cowsnap N"], pictures)
    (directory / "benchmarks.md").write_text(markdown(cases, found, pictures))
    (directory / "against-dm-snapshot.md").write_text(against.markdown(cases, found))
    jsonfile.write(directory / "benchmarks.json", found)
