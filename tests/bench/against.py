# SPDX-License-Identifier: GPL-2.0-only
"""cowsnap against dm-snapshot, cell by cell: the rate, and how long requests took."""

from dataclasses import dataclass

import earlier
from bounds import BOUNDS
from grid import by_cell, rate_text, ratio_text, wrapped

# How far a cell may be off before it counts as behind.
RATE_SLACK = .02
TIME_SLACK = .05
# p95 is for runs of so few requests that their p99 is not known.
PERCENTILES = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9}
OF_FEW = "p95"
WHATS = ("rate", *PERCENTILES)
# Units of which less is better. For all others, more is.
LESS_IS_BETTER = {"ms", "KiB", "bytes", "instructions", "requests", "s", "written", "times"}
# In ordinary time: these figures do not repeat.
NOT_COMPARED = {"processors"}

HEAD = """<!-- SPDX-License-Identifier: GPL-2.0-only -->
# Against dm-snapshot, cell by cell

Written by `make bench` from commit `{commit}`, kernel {kernel}.{mention}

Each row is one case of [benchmarks.md](benchmarks.md) on one stack: cowsnap's figure, a stroke, and
dm-snapshot's in the same place. First the rate (or what the row's unit says), then how long
requests took, in milliseconds: half, 99 % and 99.9 % of them were not slower than this, or 95 % of
a few. A percentile is compared if at least four requests were slower: else it would be one
request's time. **Bold** marks a figure that is behind: by more than 2 % in the rate, or 5 % in a
time. A time that the bare device takes as well is not behind: fio counts from when a request has
been submitted, which takes dm-snapshot longer if it divides the request. Nor is a rate behind that
the bare device has.

A queue that is always full keeps a quick stack as busy as a slow one. So where cowsnap does more in
a second, and its slowest requests take longer or leave less to a neighbour, it is measured once
more, with fio held to dm-snapshot's rate, or a merge to that of dm-snapshot's. What comes out then
stands in brackets. *Slanted figures* are behind only where more is asked than dm-snapshot can do.

"""


MENTION = """ Figures that are
[from earlier commits](benchmarks.md#from-earlier-commits) are named there."""


@dataclass(frozen=True)
class Figure:
    """One figure of ours, and dm-snapshot's."""

    case: str
    test: str
    stack: str
    what: str               # of WHATS
    unit: str
    ours: float
    theirs: float
    bare: float = 0         # the bare device's
    stock: str = ""         # the stack that theirs is of
    paced: float = 0        # ours at dm-snapshot's rate, where that was measured

    @property
    def key(self):
        return self.case, self.test, self.stack, self.what

    def name(self):
        return ": ".join(self.key)

    def less_is_better(self):
        return self.what != "rate" or self.unit in LESS_IS_BETTER

    def ratio(self):
        return self.ours / self.theirs if self.theirs else 1.0

    def is_time(self):
        return self.what != "rate" or self.unit == "ms"

    def is_late(self, value):
        if self.is_time():
            return value > max(self.theirs, self.bare) * (1 + TIME_SLACK)
        if self.less_is_better():
            return value > self.theirs * (1 + RATE_SLACK)
        return value < min(self.theirs, self.bare or self.theirs) * (1 - RATE_SLACK)

    def late(self):
        return self.is_late(self.ours)

    def by_pace(self):
        """Late, but not at dm-snapshot's rate."""
        return self.late() and bool(self.paced) and not self.is_late(self.paced)

    def behind(self):
        return self.late() and not self.by_pace()

    def badness(self):
        """How far behind, as a factor."""
        return self.ratio() if self.less_is_better() else 1 / self.ratio()

    def text(self):
        pair = f"{rate_text(self.ours)} / {rate_text(self.theirs)}"
        if not self.late():
            return pair
        mark = "**" if self.behind() else "*"
        return f"{mark}{pair}{mark}" + (f" ({rate_text(self.paced)})" if self.paced else "")


def stock_cell(cells, cell):
    """The cell that compares: stacks are named alike. Of the orders of kcopyd's requests, the
    one that users get compares; the other is there to show what it costs."""
    label = cell["stack"].replace("cowsnap", "dm-snapshot")
    return (cells.get((cell["test"], label)) or
            cells.get((cell["test"], label.replace(", head", ""))))


def figures_of_cell(case, cell, stock, bare):
    common = case, cell["test"], cell["stack"]
    if cell["unit"].startswith("p9"):
        return []           # one of the percentiles of another row
    found = [Figure(*common, "rate", cell["unit"].split()[-1], cell["value"], stock["value"],
                    bare.get("value", 0), stock["stack"], cell.get("paced_value", 0))]
    for what, percent in PERCENTILES.items():
        if what == OF_FEW and PERCENTILES["p99"] in cell.get("latency_ms", {}):
            continue
        ours, theirs, raw, paced = (one.get(times, {}).get(percent) for one, times in (
            (cell, "latency_ms"), (stock, "latency_ms"), (bare, "latency_ms"), (cell, "paced_ms")))
        if ours is not None and theirs is not None:
            found.append(Figure(*common, what, "ms", ours, theirs, raw or 0, stock["stack"],
                                paced or 0))
    return found


def figures_of(case, cells):
    """Of the cells of one case."""
    if case in NOT_COMPARED:
        return []
    known = by_cell(cells) if cells and "stack" in cells[0] else {}
    found = []
    for (_, stack), cell in known.items():
        stock = stock_cell(known, cell) if stack.startswith("cowsnap") else None
        if stock:
            bare = known.get((cell["test"], cell.get("base")), {})
            found += figures_of_cell(case, cell, stock, bare)
    return found


def behind(figures):
    """Worst first; what has a reason is left out."""
    return sorted((one for one in figures if one.behind() and one.key not in BOUNDS),
                  key=Figure.badness, reverse=True)


def rows_of(figures):
    rows = {}
    for one in figures:
        rows.setdefault((one.test, one.stack), {})[one.what] = one
    return rows


def case_markdown(case, figures):
    titles = case.titles()
    lines = [f"## {case.title}", "", "| | | unit | rate | " + " | ".join(PERCENTILES) + " |",
             "|---" * (3 + len(WHATS)) + "|"]
    for (test, stack), row in rows_of(figures).items():
        texts = [row[what].text() if what in row else "" for what in WHATS]
        lines.append(f"| {titles.get(test, test)} | {stack} | {row['rate'].unit} | " +
                     " | ".join(texts) + " |")
    return "\n".join(lines) + "\n\n"


def summary(figures):
    late = behind(figures)
    bounded = [one for one in figures if one.behind() and one.key in BOUNDS]
    paced = sum(one.by_pace() for one in figures)
    lines = wrapped(f"{len(figures)} figures are compared; {len(late) + len(bounded)} are behind, "
                    f"{len(bounded)} of these for a reason that is given below. {paced} are behind "
                    "only where more is done.").splitlines()
    if late:
        lines += ["", "Behind, the furthest first (ours as a part of dm-snapshot's):", ""]
        lines += [f"- {one.name()}: {ratio_text(one.ratio())}" for one in late]
    if bounded:
        lines += ["", "Behind for a reason:", ""]
        lines += [wrapped(f"- {one.name()}: {ratio_text(one.ratio())}. {BOUNDS[one.key]}", "  ")
                  for one in bounded]
    return "\n".join(lines) + "\n\n"


def markdown(cases, found):
    by_case = {case.name: figures_of(case.name, found["cases"][case.name]) for case in cases}
    mention = MENTION if earlier.others(found) else ""
    parts = [HEAD.format(mention=mention, **found),
             summary([one for some in by_case.values() for one in some])]
    parts += [case_markdown(case, by_case[case.name]) for case in cases if by_case[case.name]]
    return "".join(parts).rstrip() + "\n"
