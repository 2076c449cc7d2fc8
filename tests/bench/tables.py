# SPDX-License-Identifier: GPL-2.0-only
"""A case whose jobs are scripts of their own: rows of figures, a column for each stack."""

from dataclasses import dataclass, field

import results
from grid import Target, is_one_of, ratio_text, rate_text, wrapped
from machine import BENCH_DIR, Job


@dataclass(frozen=True)
class Row:
    """One figure that each job prints under this name, by fio or by itself."""

    name: str
    title: str
    unit: str = "io/s"
    ratio: bool = True      # beside raw's
    job: int = 0            # which of fio's jobs, where it ran several
    scale: float = 1.0
    times: bool = True      # how long its requests took is worth a comparison


@dataclass(frozen=True)
class Column:
    """One job."""

    label: str
    script: str
    cowsnap: bool = False
    cpus: int = 1


@dataclass(frozen=True)
class Reported:
    """A ratio that users found, and where ours are: in the row, for these stacks."""

    title: str
    row: str
    ratio: float
    stock: str = "dm-snapshot P"
    cowsnap: str = "cowsnap P"


@dataclass(frozen=True)
class Derived:
    """A row that is worked out from the others, for each stack."""

    name: str
    title: str
    unit: str
    work_out: object        # of {(row, column): value} and the column
    beside: str = ""        # the run of whose second job it tells


@dataclass(frozen=True)
class Goal:
    """A target that is no ratio to raw: what it is worked out from, and its limit."""

    title: str
    limit: float
    work_out: object        # of {(row, column): value}
    at_most: bool = False


@dataclass
class Table:
    """A case."""

    name: str
    title: str
    text: str
    rows: list
    columns: list
    base: str = "raw"
    memory: str = "3G"
    reported: str = ""      # what the users found, as Markdown
    reports: list = field(default_factory=list)
    derived: list = field(default_factory=list)
    goals: list = field(default_factory=list)
    note: str = ""          # after the reported figures: why ours differ

    def select(self, words):
        self.columns = [column for column in self.columns if column.label == self.base or
                        is_one_of(column.label, words)]
        return self

    def narrow(self, labels):
        self.columns = [column for column in self.columns if column.label in labels]

    def jobs(self):
        begin = ". /guest.sh\n" + "".join((BENCH_DIR / f"guest-{name}.sh").read_text()
                                          for name in ("stories", "life"))
        return {column.label: Job(f"{self.name}: {column.label}", begin + column.script,
                                  cowsnap=column.cowsnap, memory=self.memory, cpus=column.cpus)
                for column in self.columns}

    def titles(self):
        return {row.name: row.title for row in self.rows + self.derived}

    def figures(self, jobs):
        found = []
        for row in self.rows:
            base = value_of(jobs[self.base], row) if self.base in jobs else None
            for column in self.columns:
                value = value_of(jobs[column.label], row)
                if value is None:
                    continue
                cell = {"test": row.name, "stack": column.label, "unit": row.unit, "value": value}
                if base and row.ratio:
                    cell["ratio"], cell["base"] = value / base, self.base
                cell.update(details(jobs[column.label], row))
                found.append(cell)
        return found + self.derived_figures(found)

    def derived_figures(self, found):
        values = {(cell["test"], cell["stack"]): cell["value"] for cell in found}
        cells = []
        for row in self.derived:
            for column in self.columns:
                try:
                    value = row.work_out(values, column.label)
                except KeyError:
                    continue        # of a stack that was not run
                cells.append({"test": row.name, "stack": column.label, "unit": row.unit,
                              "value": value})
        return cells

    def failures(self, _figures):
        return []

    def reached(self, figures):
        """Those whose figures are there."""
        values = {(cell["test"], cell["stack"]): cell["value"] for cell in figures}
        found = []
        for goal in self.goals:
            try:
                value = goal.work_out(values)
            except KeyError:
                continue
            found.append(Target(goal.title, value, goal.limit, goal.at_most))
        return found

    def markdown(self, figures):
        cells = {(cell["test"], cell["stack"]): cell for cell in figures}
        labels = [column.label for column in self.columns]
        lines = ["| | unit | " + " | ".join(labels) + " |", "|---" * (len(labels) + 2) + "|"]
        for row in self.rows + self.derived:
            texts = [text_of(cells.get((row.name, label))) for label in labels]
            lines.append(f"| {row.title} | {row.unit} | " + " | ".join(texts) + " |")
        if self.reports:
            lines += ["", *self.reports_markdown(cells)]
        if self.reported:
            lines += ["", "Reported in full:", "", wrapped(self.reported)]
        if self.note:
            lines += ["", wrapped(self.note)]
        goals = [f"- {target.text()}" for target in self.reached(figures)]
        if goals:
            lines += ["", "Targets:", "", *goals]
        return "\n".join(lines) + "\n"


    def reports_markdown(self, cells):
        def ratio(row, label):
            return ratio_text(cells[row, label]["ratio"]) if (row, label) in cells else ""

        yield "| ratio | reported | dm-snapshot here | cowsnap here |"
        yield "|---|---|---|---|"
        for one in self.reports:
            yield (f"| {one.title} | {ratio_text(one.ratio)} | {ratio(one.row, one.stock)} | "
                   f"{ratio(one.row, one.cowsnap)} |")


def value_of(job, row):
    """The figure of a row; None where this job has none."""
    if (row.name, "figure") in job.results:
        return results.figure(job, row.name) * row.scale
    name = row.name.split("/")[0]
    if (name, "fio") not in job.results:
        return None
    return results.of_job(job, name, row.job, row.unit) * row.scale


def details(job, row):
    """What fio and the devices said besides; a figure that a job prints by itself has none."""
    name = row.name.split("/")[0]
    found = {}
    if (row.name, "figure") not in job.results and row.times and (name, "fio") in job.results:
        found["latency_ms"] = results.percentiles(job, name, row.job, row.unit)
    if (name, "status") in job.results:
        found["status"] = results.status(job, name)
    return found


def text_of(cell):
    if not cell:
        return ""
    text = rate_text(cell["value"])
    if "ratio" in cell and cell["stack"] != cell["base"]:
        text += f" ({ratio_text(cell['ratio'])})"
    return text
