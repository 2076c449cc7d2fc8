# SPDX-License-Identifier: GPL-2.0-only
"""Every job once more, and how far the figures of both runs are apart."""

from dataclasses import dataclass, replace


@dataclass
class Difference:
    """What came out for one case."""

    jobs: int = 0           # that were run twice
    figures: int = 0        # that were compared
    percent: float = 0.0    # the largest difference

    def add(self, here, there):
        for path in {**here, **there}:
            self.figures += 1
            self.percent = max(self.percent, apart(here.get(path, 0), there.get(path, 0)))

    def text(self):
        if not self.jobs:
            return "Not run twice."
        return (f"Run twice: {self.jobs} jobs, {self.figures:,} figures, the largest difference "
                f"{self.percent:.3g} %.")


def second(job):
    return replace(job, name=f"{job.name}, again", turn=2, results={}, seconds=0, kept=False)


def second_jobs(machine, jobs, everything):
    """Of each case {label: job}: what is to be run again, or has been. Ordinary time does not repeat."""
    found = {}
    for case, some in jobs.items():
        again = {label: second(job) for label, job in some.items() if job.cpus == 1}
        found[case] = {label: job for label, job in again.items()
                       if everything or machine.kept(job)}
    return found


def measured(cell):
    """Its figures without what was worked out from them, or given."""
    return ((path, number) for path, number in numbers(cell)
            if path[0] not in ("ratio", "target", "low", "high", "again"))


def numbers(value, path=()):
    """All numbers in dicts within dicts, with the way to them."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers(inner, path + (key,))
    elif isinstance(value, (int, float)):
        yield path, value


def apart(one, two):
    """In percent of the larger one."""
    largest = max(abs(one), abs(two))
    return abs(one - two) / largest * 100 if largest else 0.0


def cell_key(cell):
    return cell["test"], cell.get("stack", cell["test"])


def compare(case, jobs, again, figures):
    """Both runs of a case; the second run's value goes beside the first one's."""
    difference = Difference(len(again))
    twice = {cell_key(cell): cell for cell in case.figures({**jobs, **again})}
    for cell in figures:
        test, label = cell_key(cell)
        if label not in again:
            continue
        other = twice[test, label]
        difference.add(dict(measured(cell)), dict(measured(other)))
        cell["again"] = other["value"]
    return difference
