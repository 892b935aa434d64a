#!/usr/bin/env python3
"""Makes the table of docs/benchmarks.md from what bench/delay_figures.py has measured, a column for each file, and what an owner sees who asks the full broker.

    bench/delay_table.py FILE... [--docs docs/benchmarks.md]

Without --docs it prints the table; else it takes the place of what is between the two marks in that file.
"""

import argparse
import json
import pathlib
import re

BEGIN, END = "<!-- delayed: begin -->", "<!-- delayed: end -->"


def heading(run):
    shards = f", {run['shards']} shards" if run["shards"] else ""
    partitions = f", {run['partitions']} partitions" if run["partitions"] > 1 else ""
    return f"{run['full_millions']} M{shards}{partitions}"


def cell(figure):
    if figure is None:
        return "-"
    return figure["text"] + (" (missed)" if figure["met"] is False else "")


def table(runs):
    """Figures in the order of the first file; those that only later ones have come last."""
    names = {(figure["step"], figure["figure"]): figure["goal"] for run in reversed(runs) for figure in run["figures"]}
    order = list(dict.fromkeys((figure["step"], figure["figure"]) for run in runs for figure in run["figures"]))
    found = [{(figure["step"], figure["figure"]): figure for figure in run["figures"]} for run in runs]
    lines = [f"| step | figure | goal | {' | '.join(heading(run) for run in runs)} |", "|---|---|---|" + "---|" * len(runs)]
    for name in order:
        lines.append(f"| `{name[0]}` | {name[1].strip()} | {names[name] or ''} | {' | '.join(cell(each.get(name)) for each in found)} |")
    return lines


def grouped(number):
    return f"{number:,}".replace(",", " ")


def seen_by_owner(run):
    """What somebody sees who asks the full broker what is pending; nothing if nobody asked."""
    seen = next((figure for figure in run["figures"] if "levels" in figure), None)
    if seen is None:
        return []
    delayed = seen["delayed"]
    lines = ["", f"What the owner sees when it is full ({heading(run)}): in `/status` {grouped(delayed['pending'])} pending, {grouped(delayed['near'])} near and "
             f"{grouped(delayed['overdue'])} overdue records; in `/wheel`", "",
             "| place | level | records | bytes | chunks | moved up | moved down |", "|---|---|---|---|---|---|---|"]
    for level in seen["levels"]:
        figures = (grouped(level[name]) for name in ("records", "bytes", "chunks", "upgrades", "downgrades"))
        lines.append(f"| {level['place']} | {level['level']} | {' | '.join(figures)} |")
    lines += ["", "and `tarry delayed count --by hour` begins with", ""]
    return lines + ["    " + "  ".join(line.split()) for line in seen["hours"]]


def text_of(runs):
    machine = runs[0]["machine"]
    when = " and ".join(f"at {run['machine']['at']} (load {run['machine']['load'][0]:.1f} before)" for run in runs)
    head = f"{machine['cores']} cores ({machine['cpu']}), Linux {machine['kernel']}, {when}:"
    failed = [f"The step `{each['step']}` failed: {each['error']}" for run in runs for each in run["failed"]]
    owners = [line for run in runs for line in seen_by_owner(run)]
    return "\n".join([head, "", *table(runs), *([""] + failed if failed else []), *owners])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("json", nargs="+")
    parser.add_argument("--docs", type=pathlib.Path)
    options = parser.parse_args()
    text = text_of([json.loads(pathlib.Path(path).read_text()) for path in options.json])
    if not options.docs:
        print(text)
        return
    page = options.docs.read_text()
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        parser.error(f"{options.docs} does not have the marks {BEGIN} and {END}")
    options.docs.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{text}\n\n{END}", page, flags=re.S))


if __name__ == "__main__":
    main()
