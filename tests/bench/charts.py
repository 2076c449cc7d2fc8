# SPDX-License-Identifier: GPL-2.0-only
"""Pictures of what tables do not show."""

import re

import matplotlib
import results

matplotlib.use("Agg")
matplotlib.rcParams.update({
    "svg.hashsalt": "dm-cowsnap", "font.size": 11, "axes.grid": True, "grid.alpha": 0.3,
    "axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True})
from matplotlib import pyplot, ticker  # noqa: E402  pylint: disable=wrong-import-position

COLOURS = {"raw": "#444444", "dm-linear": "#999999", "dm-snapshot P": "#d62728",
           "dm-snapshot N": "#ff9896", "dm-thin": "#9467bd", "cowsnap P": "#1f77b4",
           "cowsnap N": "#17becf", "cowsnap R": "#2ca02c"}


def save(figure, directory, name):
    figure.savefig(directory / f"{name}.svg", dpi=110, metadata={"Date": None})
    pyplot.close(figure)
    return name


def settling(jobs, directory):
    """Case A: six runs over one small file, one after the other."""
    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    for label, colour in COLOURS.items():
        if label not in jobs or label == "dm-linear":
            continue
        rates = []
        for run in range(1, 7):
            text = jobs[label].results[(f"settle-{run}", "text")]
            rates += [float(rate) for rate in
                      re.findall(r"writes: ([0-9.]+) MiB/s", text.replace("\n", " "))][:6]
        times = [5 * (i + 1) for i in range(len(rates))]
        axes.plot(times, [rate * 64 for rate in rates], label=label, color=colour,
                  lw=2 if "cowsnap" in label or label == "raw" else 1.5)
    axes.set(xlabel="seconds since the snapshot was made", ylabel="16 KiB writes a second",
             title="A fresh snapshot settles: random writes to a file of 32 MB, RAID10 of six disks")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower right")
    return save(figure, directory, "settling")


def snapshot_counts(jobs, directory, counts):
    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    raw = results.rate(jobs["raw"], "random-1", "io/s")
    for kind in ("dm-snapshot P", "cowsnap P"):
        measured = [n for n in counts if f"{kind} ×{n}" in jobs]
        rates = [results.rate(jobs[f"{kind} ×{n}"], "random-1", "io/s") for n in measured]
        axes.plot(measured, rates, "o-", label=kind, color=COLOURS[kind], lw=2)
        for count, rate in zip(measured, rates):
            axes.annotate(f"{rate:.1f}", (count, rate), textcoords="offset points",
                          xytext=(0, 8 if kind.startswith("cowsnap") else -16), ha="center",
                          fontsize=9)
    axes.axhline(raw, color=COLOURS["raw"], ls="--", label=f"raw: {raw:.0f}")
    axes.margins(y=.1)
    axes.set(xscale="log", yscale="log", xlabel="snapshots of the same origin",
             ylabel="first writes a second", title="Random 4 KiB first writes, one 7200 rpm disk")
    axes.yaxis.set_major_formatter(ticker.ScalarFormatter())
    axes.set_xticks(counts, [str(n) for n in counts])
    axes.minorticks_off()
    axes.legend()
    return save(figure, directory, "snapshots")


def latencies(jobs, directory, stacks):
    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4.5), sharey=True)
    for axes, (test, title) in zip(panels, (("random-1", "queue depth 1"),
                                            ("random-32", "queue depth 32"))):
        for label in (label for label in stacks if label in jobs):
            found = results.percentiles(jobs[label], test)
            wanted = [key for key in sorted(found) if 1 <= key <= 99.9]
            axes.plot([found[key] for key in wanted], wanted, label=label,
                      color=COLOURS[label], lw=2)
        axes.set(xscale="log", xlabel="milliseconds", title=f"random 4 KiB first writes, {title}")
        axes.xaxis.set_major_formatter(ticker.ScalarFormatter())
        axes.xaxis.set_minor_formatter(ticker.NullFormatter())
        axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.legend()
    panels[0].set_ylabel("% of writes done within that time")
    return save(figure, directory, "latency")


def glance(rows, stacks, directory):
    """Ratios to raw, a group of bars for each of (title, {stack: ratio})."""
    figure, axes = pyplot.subplots(figsize=(9, 0.62 * len(rows) + 1.4))
    high = 0.8 / len(stacks)
    for i, stack in enumerate(stacks):
        places = [place + i * high for place in range(len(rows))]
        ratios = [ratios.get(stack) for _, ratios in rows]
        axes.barh(places, [ratio or 0 for ratio in ratios], high, label=stack, color=COLOURS[stack])
        for place, ratio in zip(places, ratios):
            if ratio is None:
                continue
            axes.annotate(f"{ratio:.2g}", (ratio, place), textcoords="offset points",
                          xytext=(3, 0), va="center", fontsize=8)
    axes.axvline(1, color=COLOURS["raw"], ls="--", label="raw")
    axes.set_yticks([place + 0.4 - high / 2 for place in range(len(rows))],
                    [title for title, _ in rows])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set(xlabel="rate, as a ratio to the same without a snapshot",
             title="Writes to a volume with a snapshot")
    axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.06), ncol=4)
    return save(figure, directory, "glance")


def head_events(job):
    """(second, MiB, R or W) of each movement, from the first one on."""
    events = [line.split() for line in job.results[("trace", "text")].splitlines()]
    events = [event for event in events if len(event) == 4]
    start = int(events[0][0])
    return [((int(ns) - start) / 1e9, int(sector) / 2048, kind) for ns, sector, _, kind in events]


def head_positions(jobs, directory, store=1024):
    """Each dot is one movement of the head; the store above, the origin below."""
    figure, panels = pyplot.subplots(2, len(jobs), figsize=(3.2 * len(jobs) + 1, 6), sharex=True,
                                     sharey="row", squeeze=False)
    for column, (label, job) in zip(panels.T, jobs.items()):
        for axes in column:
            for what, word, colour in (("R", "read", "#2ca02c"), ("W", "written", "#d62728")):
                dots = [event for event in head_events(job) if event[2] == what]
                axes.plot([dot[0] for dot in dots], [dot[1] for dot in dots], ".", ms=3,
                          color=colour, label=word, rasterized=True)
        rate = results.of_job(job, "stream", 0, "MB/s")
        column[0].set(title=f"{label}: {rate:.1f} MB/s", ylim=(store - 4, store + 48))
        column[1].set(ylim=(-4, 48), xlabel="seconds")
    panels[0, 0].set_ylabel("the store, MiB on the disk")
    panels[1, 0].set_ylabel("the origin, MiB on the disk")
    panels[0, 0].legend(markerscale=4, loc="upper right")
    return save(figure, directory, "head")
