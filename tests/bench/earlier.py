# SPDX-License-Identifier: GPL-2.0-only
"""What an earlier report has of stacks that are not run now, and which commit each stack is from."""

from collections import defaultdict

import jsonfile
from grid import wrapped


class Earlier:
    """The figures of a report."""

    def __init__(self, path):
        found = jsonfile.read(path)
        self.cases = {name: keyed(cells) for name, cells in found["cases"].items()}
        self.measured = found.get("measured") or all_of(found)
        self.repeated = found["repeated"]
        self.partial = found["partial"]

    def add(self, cases, found):
        """Put into what was @found what was not measured now, in the order of the report's rows."""
        found["partial"] = self.partial
        now, measured, repeated = found["cases"], found["measured"], found["repeated"]
        found.update(cases={}, measured={}, targets={}, repeated={})
        for case in cases:
            new = keyed(now.get(case.name, []))
            old = self.cases.get(case.name, {})
            both = {**{key: new.get(key, cell) for key, cell in old.items()}, **new}
            found["cases"][case.name] = list(both.values())
            found["measured"][case.name] = {**self.measured.get(case.name, {}),
                                            **measured.get(case.name, {})}
            found["targets"][case.name] = [target.as_dict() for target in
                                           case.reached(found["cases"][case.name])]
            found["repeated"][case.name] = repeated.get(case.name, self.repeated.get(case.name))


def key_of(cell):
    return cell["test"], cell.get("stack", "")


def keyed(cells):
    return {key_of(cell): with_percents(cell) for cell in cells}


def with_percents(cell):
    """JSON has only text for a key."""
    times = {key: {float(percent): time for percent, time in cell[key].items()}
             for key in ("latency_ms", "paced_ms") if key in cell}
    return {**cell, **times}


def stacks_of(cells):
    return list(dict.fromkeys(cell.get("stack", cell["test"]) for cell in cells))


def all_of(found):
    """{case: {stack: commit}} of a report all of which is of one commit."""
    return {name: {stack: found["commit"] for stack in stacks_of(cells)}
            for name, cells in found["cases"].items()}


def line(commit, cases, measured):
    """Which cases, and which stacks of others, are from a commit."""
    whole = [f"`{case}`" for case, stacks in cases.items() if len(stacks) == len(measured[case])]
    parts = [f"`{case}` ({'; '.join(stacks)})" for case, stacks in cases.items()
             if len(stacks) < len(measured[case])]
    return wrapped(f"- `{commit}`: {', '.join(whole + parts)}", "  ")


def others(found):
    """{commit: {case: [stack]}} of what is not from the report's own commit."""
    by_commit = defaultdict(lambda: defaultdict(list))
    for case, stacks in found["measured"].items():
        for stack, commit in stacks.items():
            if commit != found["commit"]:
                by_commit[commit][case].append(stack)
    return by_commit


def markdown(found):
    """The section that names them."""
    by_commit = others(found)
    if not by_commit:
        return ""
    lines = ["## From earlier commits", "",
             wrapped("Not everything is measured again after each change of the module. These cases, "
                     "or stacks of a case in brackets, were measured at another commit:"), ""]
    lines += [line(commit, cases, found["measured"]) for commit, cases in by_commit.items()]
    return "\n".join(lines) + "\n"
