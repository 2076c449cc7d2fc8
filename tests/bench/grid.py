# SPDX-License-Identifier: GPL-2.0-only
"""A case that is a table: stacks across, tests down, each measured the same way.

Each stack is a job of its own, in a machine of its own, with all the tests one after the
other; so the figures of one stack are not changed by what another does.
"""

import textwrap
from dataclasses import asdict, dataclass, field

import results
from machine import Job


def is_one_of(label, words):
    """A word is part of a name, or, after "=", all of it."""
    return any(label == word[1:] if word.startswith("=") else word in label for word in words)


@dataclass(frozen=True)
class Target:
    """What is to be reached, and what is."""

    title: str
    value: float
    limit: float
    at_most: bool = False

    def met(self):
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def as_dict(self):
        return {**asdict(self), "met": self.met()}

    def text(self):
        sign = "≤" if self.at_most else "≥"
        met = "met" if self.met() else "**missed**"
        return f"{self.title}: {ratio_text(self.value)} of {sign} {ratio_text(self.limit)}, {met}"


@dataclass(frozen=True)
class Test:
    """One run of fio."""

    name: str
    title: str
    words: str              # for fio
    unit: str = "io/s"
    fresh: bool = True      # a new snapshot first
    snap: bool = False      # of the snapshot, not of the origin
    warm: str = ""          # another run before it that is not counted
    base: str = "raw"       # the stack that this is compared with,
    base_test: str = ""     # in that test; the same one, if empty


@dataclass(frozen=True)
class Stack:
    """What lies between fio and the device; `words` are for guest.sh's stack."""

    label: str
    words: str
    place: str = "same"
    tests: tuple = ()       # names of those that make sense here; all, if none
    like: str = ""          # compared with this stack in place of the test's base
    reads_snap: bool = True


@dataclass
class Grid:
    """A case."""

    name: str
    title: str
    text: str
    setup: object           # of a place: the script that makes BASE and STORES
    stacks: list
    tests: list
    # (test, stack): the ratio to be reached
    targets: dict = field(default_factory=dict)
    memory: str = "3G"
    instructions: bool = False  # a request's time is what the processor does for it: show that

    def tests_of(self, stack):
        return [test for test in self.tests
                if (not stack.tests or test.name in stack.tests) and
                (stack.reads_snap or not test.snap)]

    def jobs(self):
        return {stack.label: self.job(stack) for stack in self.stacks}

    def job(self, stack):
        lines = [". /guest.sh", self.setup(stack.place)]
        made = False
        for test in self.tests_of(stack):
            if not made:
                lines.append(f"stack {stack.words}")
            elif test.fresh:
                lines.append("fresh")
            made = True
            target = ' --filename="${SNAPS[0]}"' if test.snap else ""
            if test.warm:
                lines.append(f"measure warm {test.warm}")
            lines.append(f"measure {test.name} {test.words}{target}")
        lines.append("unstack")
        return Job(f"{self.name}: {stack.label}", "\n".join(lines) + "\n",
                   cowsnap=stack.words.startswith("cowsnap"), memory=self.memory)

    def base_label(self, test, stack):
        return stack.like or test.base

    def titles(self):
        return {test.name: test.title for test in self.tests}

    def figures(self, jobs):
        """A list with a dict for each cell, for tables and for JSON."""
        rows = []
        for test in self.tests:
            for stack in self.stacks:
                if test in self.tests_of(stack):
                    rows.append(self.cell(jobs, test, stack))
        return rows

    def select(self, words):
        """Only stacks with one of the words in their name, and what they are compared with."""
        wanted = [stack for stack in self.stacks if is_one_of(stack.label, words)]
        bases = {self.base_label(test, stack) for stack in wanted for test in self.tests}
        self.narrow({stack.label for stack in wanted} | bases)
        return self

    def narrow(self, labels):
        self.stacks = [stack for stack in self.stacks if stack.label in labels]

    def failures(self, _figures):
        """A target that is missed is no failure of the benchmark."""
        return []

    def reached(self, figures):
        titles = self.titles()
        return [Target(f"{titles[cell['test']]}, {cell['stack']}", cell["ratio"], cell["target"])
                for cell in figures if "target" in cell]

    def markdown(self, figures):
        text = grid_markdown(self, figures, cell_text)
        if self.instructions:
            text += ("\nInstructions for one request, from submission to completion:\n\n" +
                     grid_markdown(self, figures, instructions_text))
        targets = targets_markdown(self, figures)
        if targets:
            text += f"\nRatios against their targets; in brackets, what dm-snapshot reaches:\n\n{targets}"
        return text

    def cell(self, jobs, test, stack):
        value = results.rate(jobs[stack.label], test.name, test.unit)
        cell = {"test": test.name, "stack": stack.label, "unit": test.unit, "value": value}
        base = jobs.get(self.base_label(test, stack))
        base_test = test.base_test or test.name
        if base and (base_test, "fio") in base.results:
            cell["base"] = self.base_label(test, stack)
            cell["ratio"] = value / results.rate(base, base_test, test.unit)
        cell["mean_ns"] = results.instructions(jobs[stack.label], test.name)
        cell["latency_ms"] = results.percentiles(jobs[stack.label], test.name)
        cell["status"] = results.status(jobs[stack.label], test.name)
        if "ratio" in cell and (test.name, stack.label) in self.targets:
            cell["target"] = self.targets[test.name, stack.label]
        return cell


def wrapped(text, indent=""):
    """Prose in lines of 100 columns; tables have theirs."""
    if text.startswith("|"):
        return text
    return textwrap.fill(text, 100, subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False)


def ratio_text(ratio):
    text = f"{ratio:.2f}" if ratio >= 0.095 else f"{ratio:.3f}"
    return text[1:] if text.startswith("0") else text


def rate_text(value):
    if value < 10:
        return f"{value:.2f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def cell_text(cell):
    """The rate, and what that is of the base."""
    text = rate_text(cell["value"])
    if "ratio" in cell and cell["stack"] != cell["base"]:
        text += f" ({ratio_text(cell['ratio'])})"
    return text


def by_cell(figures):
    return {(cell["test"], cell["stack"]): cell for cell in figures}


def instructions_text(cell):
    return f"{cell['mean_ns']:,.0f}"


def grid_markdown(grid, figures, text_of):
    """Stacks down, tests across; in brackets the ratio to the base."""
    cells = by_cell(figures)
    unit = ", {}" if text_of is cell_text else ""
    lines = ["| | " + " | ".join(test.title + unit.format(test.unit) for test in grid.tests) + " |",
             "|---" * (len(grid.tests) + 1) + "|"]
    for stack in grid.stacks:
        row = [text_of(cells[test.name, stack.label])
               if (test.name, stack.label) in cells else "" for test in grid.tests]
        lines.append(f"| {stack.label} | " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def stock_label(label):
    return label.replace("cowsnap", "dm-snapshot")


def target_text(cell, stock):
    met = "met" if cell["ratio"] >= cell["target"] else "**missed**"
    text = f"{ratio_text(cell['ratio'])} of ≥ {ratio_text(cell['target'])} {met}"
    return text + (f" ({ratio_text(stock['ratio'])})" if stock and "ratio" in stock else "")


def targets_markdown(grid, figures):
    """cowsnap's ratios beside what they are to reach; in brackets dm-snapshot's own."""
    cells = by_cell(figures)
    labels = list(dict.fromkeys(stack for _, stack in grid.targets))
    labels = [label for label in labels if any(cell["stack"] == label for cell in figures)]
    if not labels:
        return ""
    lines = ["| ratio | " + " | ".join(labels) + " |", "|---" * (len(labels) + 1) + "|"]
    for test in grid.tests:
        row = []
        for label in labels:
            cell = cells.get((test.name, label), {})
            stock = cells.get((test.name, stock_label(label)))
            row.append(target_text(cell, stock) if "target" in cell else "")
        if any(row):
            lines.append(f"| {test.title} | " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"
