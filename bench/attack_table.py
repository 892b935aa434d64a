#!/usr/bin/env python3
"""Makes the table of attacks of docs/benchmarks.md from what tests/hostile/test_attacks.py prints.

    TARRY_P99=judge tests/integration/run.py --filter "ATTACKS" > LOG     # docs/benchmarks.md names them
    bench/attack_table.py LOG... [--docs docs/benchmarks.md]

Without --docs it prints the table; else it takes the place of what is between the two marks in that file. An attack that
was made more than once stands with its last attempt.
"""

import argparse
import pathlib
import re

BEGIN, END = "<!-- attacks: begin -->", "<!-- attacks: end -->"
LINE = re.compile(
    r"^\s+(?P<what>.+): (?P<before>\d+) MiB before, (?P<peak>\d+) at the peak, (?P<after>\d+) after; "
    r"the neighbour's p99 (?P<usual>\d+) ms before, (?P<p99>\d+) ms of \d+ during, slowest (?P<slowest>\d+) ms; "
    r"connections (?P<open_before>\d+) before, (?P<open_peak>\d+) at the peak, (?P<open_after>\d+) after; "
    r"(?P<turns>\d+) long turns, (?P<took>[\d.]+) s$", re.M)


def table(text):
    found = {each["what"]: each for each in LINE.finditer(text)}
    lines = ["| attack | memory before / peak / after, MiB | neighbour's p99 before / during, slowest, ms | connections before / peak / after | turns above 16 ms | seconds |",
             "|---|---|---|---|---|---|"]
    for what, each in sorted(found.items()):
        lines.append(f"| {what} | {each['before']} / {each['peak']} / {each['after']} | {each['usual']} / {each['p99']}, {each['slowest']} "
                     f"| {each['open_before']} / {each['open_peak']} / {each['open_after']} | {each['turns']} | {each['took']} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("log", nargs="+", type=pathlib.Path)
    parser.add_argument("--docs", type=pathlib.Path)
    options = parser.parse_args()
    lines = table("\n".join(log.read_text() for log in options.log))
    if len(lines) == 2:
        parser.error("there is no attack's line in these files")
    text = "\n".join(lines)
    if not options.docs:
        print(text)
        return
    page = options.docs.read_text()
    before, mark, rest = page.partition(BEGIN)
    _, other, after = rest.partition(END)
    if not mark or not other:
        parser.error(f"{options.docs} has not both marks, {BEGIN} and {END}")
    options.docs.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


if __name__ == "__main__":
    main()
