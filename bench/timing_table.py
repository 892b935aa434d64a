#!/usr/bin/env python3
"""The table and the picture of docs/benchmarks.md, from what timing_bench has measured.

    build/release/bench/timing_bench --benchmark_out=timing.json
    bench/timing_table.py timing.json                                     # prints the table
    bench/timing_table.py timing.json --docs docs/benchmarks.md --svg docs/timing_bench.svg

scripts/bench_timers does all of it.  --docs replaces what stands between the two marks.  Of several
repetitions the median counts.
"""

import argparse
import json
import math
import pathlib
import re
import statistics
import xml.sax.saxutils

BEGIN = "<!-- timers: what follows is written by scripts/bench_timers -->"
END = "<!-- timers: end -->"


class Results:
    def __init__(self, path):
        text = json.loads(pathlib.Path(path).read_text())
        self.context = text["context"]
        self.rows = {}  # Row -> (title, unit), in order.
        self.peers = []
        self.runs = {}  # (row, peer) -> runs
        for run in text["benchmarks"]:
            if run.get("run_type") != "iteration" or "value" not in run:
                continue
            row, peer = run["name"].split("/")[:2]
            title, unit = re.fullmatch(r"(.*) \[(.*)\]", run["label"]).groups()
            self.rows.setdefault(row, (title, unit))
            if peer not in self.peers:
                self.peers.append(peer)
            self.runs.setdefault((row, peer), []).append(run)

    def get(self, row, peer, counter="value"):
        values = [run[counter] for run in self.runs.get((row, peer), []) if counter in run]
        return statistics.median(values) if values else None

    @property
    def repetitions(self):
        return max(map(len, self.runs.values()))


def number(value):
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}".replace(",", " ")


def ratio(value):
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}".replace(",", " ")


def machine():
    model = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text())
    return (model[1].strip() if model else "unknown processor"), int(memory[1]) / 2**20 if memory else 0


def table(results):
    ours = results.peers[0]
    lines = ["| | " + " | ".join(results.peers) + " |", "|---" * (len(results.peers) + 1) + "|"]
    for row, (title, unit) in results.rows.items():
        own, cells = results.get(row, ours), []
        for peer in results.peers:
            value = results.get(row, peer)
            if value is None:
                cells.append("-")
            elif peer == ours:
                cells.append(f"**{number(value)}**")
            else:
                cells.append(f"{number(value)} ({ratio(value / own)}x)" if own else number(value))
        lines.append(f"| {title}, {unit} | " + " | ".join(cells) + " |")
        for counters, words in (
            (("p50_us", "p99_us", "p99.99_us"), "its p50 / p99 / p99.99"),
            (("raw_us",), "with what interrupted it, us"),
            (("cpu_ns",), "CPU ns a pair, all threads"),
        ):
            if results.get(row, ours, counters[0]) is None:
                continue
            cells = []
            for peer in results.peers:
                values = [results.get(row, peer, counter) for counter in counters]
                cells.append("-" if None in values else " / ".join(map(number, values)))
            lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return lines


# How many steps were longer than so much, of each.
def histogram(results):
    row, ours = "longest_step", results.peers[0]
    count = results.get(row, ours, "steps")
    if count is None:
        return []
    lines = ["The number of steps that took longer than so many microseconds, with a million timers pending:", ""]
    lines += ["| us | " + " | ".join(results.peers) + " |", "|---" * (len(results.peers) + 1) + "|"]
    for us in (1, 2, 5, 10, 20, 50, 100, 1000, 10000):
        cells = []
        for peer in results.peers:
            up_to, of = results.get(row, peer, f"up_to_{us}_us"), results.get(row, peer, "steps")
            cells.append("-" if up_to is None else f"{of - up_to:.0f}")
        lines.append(f"| {us} | " + " | ".join(cells) + " |")
    lines.append("| of | " + " | ".join("-" if (of := results.get(row, peer, "steps")) is None else f"{of:.0f}" for peer in results.peers) + " |")
    idle = [value for peer in results.peers for which in (row, "longest_burst") if (value := results.get(which, peer, "idle_us")) is not None]
    lines += ["", f"A loop that only reads the clock, as often, has longest steps of {min(idle):.0f} to {max(idle):.0f} us: that is the machine's share."]
    return lines + [""]


def section(results, command):
    model, memory = machine()
    load = results.context.get("load_avg", [])
    alone = results.get("memory", results.peers[0], "wheel_alone")
    lines = [BEGIN, ""]
    lines.append(f"{results.context['date'][:10]}; {results.context['num_cpus']} x {model}, {memory:.0f} GiB; load {', '.join(f'{each:.1f}' for each in load)} "
                 f"when it began; medians of {results.repetitions}; `{command}`.")
    lines += [""] + table(results) + [""]
    if alone is not None:
        lines += [f"The wheel takes {alone:.1f} bytes of our memory for each timer; the rest is the timer itself, a part of its user's object.", ""]
    lines += histogram(results)
    return lines + [END]


# The picture: a panel for each row, a line for each peer, on a scale that is logarithmic, since
# they lie up to a thousandfold apart.
WIDTH, COLUMNS, MARGIN, NAME, VALUE, LINE = 960, 3, 16, 92, 66, 17
OURS, OTHERS, TEXT, FAINT = "#c2410c", "#64748b", "#1e293b", "#e2e8f0"


def picture(results):
    rows = [row for row in results.rows if row != "insert_1k"]
    panel_width = (WIDTH - MARGIN * (COLUMNS + 1)) / COLUMNS
    panel_height = 34 + LINE * len(results.peers)
    lines_of_panels = math.ceil(len(rows) / COLUMNS)
    height = 62 + lines_of_panels * (panel_height + MARGIN)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" font-family="system-ui, sans-serif" font-size="11" fill="{TEXT}">',
           f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>',
           f'<text x="{MARGIN}" y="26" font-size="16" font-weight="600">Timers side by side</text>',
           f'<text x="{MARGIN}" y="44" fill="{OTHERS}">Logarithmic scales. Farther left is better, except for pairs a second. A design without cancel has no figure where one is needed.</text>']

    def text(x, y, words, anchor="start", colour=TEXT, weight=400):
        out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-weight="{weight}">{xml.sax.saxutils.escape(words)}</text>')

    for index, row in enumerate(rows):
        title, unit = results.rows[row]
        left = MARGIN + index % COLUMNS * (panel_width + MARGIN)
        top = 62 + index // COLUMNS * (panel_height + MARGIN)
        values = {peer: value for peer in results.peers if (value := results.get(row, peer)) and value > 0}
        low, high = math.log10(min(values.values())) - 0.1, math.log10(max(values.values())) + 0.1
        begin, end = left + NAME, left + panel_width - VALUE

        def at(value):
            return begin + (math.log10(value) - low) / (high - low) * (end - begin)

        text(left, top + 12, f"{title}, {unit}", weight=600)
        bottom = top + 24 + LINE * len(results.peers)
        for decade in range(math.ceil(low), math.floor(high) + 1):
            x = at(10**decade)
            out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + 20:.1f}" y2="{bottom:.1f}" stroke="{FAINT}"/>')
        for position, peer in enumerate(results.peers):
            y = top + 34 + LINE * position
            is_ours = peer == results.peers[0]
            colour, weight = (OURS, 600) if is_ours else (OTHERS, 400)
            text(left + NAME - 6, y, peer, "end", OURS if is_ours else TEXT, weight)
            if peer not in values:
                text(begin, y, "-", colour=OTHERS)
                continue
            x = at(values[peer])
            out.append(f'<line x1="{begin:.1f}" x2="{x:.1f}" y1="{y - 4:.1f}" y2="{y - 4:.1f}" stroke="{colour}" stroke-opacity="0.35"/>')
            out.append(f'<circle cx="{x:.1f}" cy="{y - 4:.1f}" r="4" fill="{colour}"/>')
            text(x + 7, y, number(values[peer]), colour=colour, weight=weight)
    return "\n".join(out + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("json")
    parser.add_argument("--docs", help="a Markdown file with the two marks")
    parser.add_argument("--svg", help="where the picture is written")
    parser.add_argument("--command", default="scripts/bench_timers", help="what was run, for the docs")
    options = parser.parse_args()
    results = Results(options.json)
    if not results.rows:
        parser.error(f"{options.json}: no result of timing_bench is in it")
    lines = section(results, options.command)
    print("\n".join(lines[1:-1]))
    if options.docs:
        path = pathlib.Path(options.docs)
        old = path.read_text()
        if old.count(BEGIN) != 1 or old.count(END) != 1:
            parser.error(f"{path}: the lines {BEGIN} and {END} are not there")
        path.write_text(old[:old.index(BEGIN)] + "\n".join(lines) + old[old.index(END) + len(END):])
    if options.svg:
        pathlib.Path(options.svg).write_text(picture(results))


if __name__ == "__main__":
    main()
