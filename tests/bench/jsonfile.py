# SPDX-License-Identifier: GPL-2.0-only
"""
The figures as JSON, written so that a run that measures the same changes no line.

One cell, target or comparison is one line. Keys are sorted, after those that name the cell.
Numbers have six significant digits, which is what benchmarks.md shows.
"""

import json

FIRST = ("title", "test", "stack", "value", "unit")
DIGITS = 6


def rounded(value):
    """A number, or all numbers within dicts and lists."""
    if isinstance(value, dict):
        return {key: rounded(value[key]) for key in sorted(value, key=place)}
    if isinstance(value, list):
        return [rounded(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, int) and not isinstance(value, bool):
        return int(float(f"{value:.{DIGITS - 1}e}"))
    return value


def place(key):
    """Where a key stands among others."""
    return (FIRST.index(key) if key in FIRST else len(FIRST), natural(key))


def natural(key):
    """snap2 before snap10."""
    if not isinstance(key, str):
        return ("", key)
    digits = key.lstrip("abcdefghijklmnopqrstuvwxyz_-")
    return (key[:len(key) - len(digits)], float(digits)) if is_number(digits) else (key, 0.0)


def is_number(text):
    return text.replace(".", "", 1).isdigit()


def as_lines(value, indent, depth):
    """JSON with a line for each item down to that depth, and the rest of an item in its line."""
    if depth and isinstance(value, (dict, list)) and value:
        pad = " " * (indent + 1)
        if isinstance(value, dict):
            items = [f"{json.dumps(key)}: {as_lines(value[key], indent + 1, depth - 1)}"
                     for key in value]
            opening, closing = "{", "}"
        else:
            items = [as_lines(inner, indent + 1, depth - 1) for inner in value]
            opening, closing = "[", "]"
        inside = ",\n".join(pad + item for item in items)
        return f"{opening}\n{inside}\n{' ' * indent}{closing}"
    return json.dumps(value, ensure_ascii=False)


def text(found):
    """What was found, in the order in which the cases were given."""
    ordered = {key: {name: rounded(some) for name, some in value.items()}
               if isinstance(value, dict) else value for key, value in found.items()}
    return as_lines(ordered, 0, 3) + "\n"


def write(path, found):
    path.write_text(text(found), encoding="utf-8")


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))
