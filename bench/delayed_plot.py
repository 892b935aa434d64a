#!/usr/bin/env python3
"""Draws how soon the records of a burst can be fetched, and how much memory pending records take.

    bench/delayed_plot.py measure --binary build/release/tarry > OURS
    bench/delayed_plot.py draw --svg docs/delayed_bench.svg OURS [OTHERS...]

`measure` starts a broker of its own, gives it `--burst` records that are due in one millisecond and looks
every millisecond how many can be fetched; then it fills a topic with `--fill` records that are due within
30 days and looks at the broker's memory. A file has {"name", "burst": {"records", "points": [[ms, fetchable]...]},
"memory": [[pending, MB]...]}; other systems have files of the same form.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import time
import xml.sax.saxutils

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "integration"))
import own_broker
import wire


def burst(broker, count):
    broker.cli("topic", "create", "burst", "--partitions", "1")
    seconds = 5 + count // 50_000
    broker.bench("--fill", "--topic", "burst", "--burst", count, "--delay", f"{seconds}s")
    client, points = wire.Client(broker.address), []
    # The bench chooses the millisecond: it is the due time of any of them.
    records = broker.get("/delayed?topic=burst&limit=1")["records"]
    if not records:
        sys.exit("the burst was due before all of it was accepted")
    due = records[0]["due_ms"]
    time.sleep(max(0, due / 1000 - time.time() - 0.005))
    while not points or points[-1][1] < count:
        there = client.end_offset("burst", 0) - 1  # One is the bench's own, which is not delayed.
        now = time.time() * 1000 - due
        if there > (points[-1][1] if points else 0):
            points.append([round(now, 1), there])
        if now > 60_000:
            sys.exit(f"only {there} of {count} records were delivered within a minute")
        time.sleep(0.001)
    return {"records": count, "points": points}


def memory(broker, count):
    broker.cli("topic", "create", "far", "--partitions", "1")
    words = broker.bench_words("--fill", "--topic", "far", "--rate", 0, "--count", count, "--delay", "2h", "--spread", "30d")
    points = []
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as filling:
        while filling.poll() is None:
            points.append([broker.get("/status")["delayed"]["pending"], broker.memory_mb("RssAnon")])
            time.sleep(0.25)
    if filling.returncode != 0:
        sys.exit("the topic could not be filled")
    return points


def measure(options):
    with own_broker.running(options.binary) as broker:
        print(json.dumps({"name": "Tarry", "burst": burst(broker, options.burst), "memory": memory(broker, options.fill)}))


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 300, 64, 150, 64, 44
COLOURS = ["#c2410c", "#1d4ed8", "#15803d", "#7e22ce", "#64748b", "#0e7490"]
TEXT, FAINT = "#1e293b", "#e2e8f0"


def short(value):
    for size, letter in ((1_000_000, " M"), (1_000, " k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


class Panel:
    """Lines on logarithmic scales."""

    def __init__(self, top, title, x_title, lines):
        self.out, self.top, self.lines, self.named = [], top, lines, []
        xs = [x for _, points in lines for x, _ in points]
        ys = [y for _, points in lines for _, y in points]
        self.x = (math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs))))
        self.y = (math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys))))
        self.text(LEFT, top + 22, title, size=14, weight=600)
        self.text((LEFT + WIDTH - RIGHT) / 2, top + HEIGHT - 8, x_title, "middle")
        for decade in range(self.x[0], self.x[1] + 1):
            at = self.at(10**decade, 10**self.y[0])
            self.line(at[0], top + 40, at[0], at[1])
            self.text(at[0], at[1] + 16, short(10**decade), "middle")
        for decade in range(self.y[0], self.y[1] + 1):
            at = self.at(10**self.x[0], 10**decade)
            self.line(at[0], at[1], WIDTH - RIGHT, at[1])
            self.text(at[0] - 6, at[1] + 4, short(10**decade), "end")
        self.draw()

    def at(self, x, y):
        width, height = WIDTH - RIGHT - LEFT, HEIGHT - TOP - BOTTOM + 24
        return (LEFT + (math.log10(x) - self.x[0]) / (self.x[1] - self.x[0]) * width,
                self.top + 40 + (1 - (math.log10(y) - self.y[0]) / (self.y[1] - self.y[0])) * height)

    def text(self, x, y, words, anchor="start", size=11, weight=400, colour=TEXT):
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" fill="{colour}">'
                        f"{xml.sax.saxutils.escape(words)}</text>")

    def line(self, x1, y1, x2, y2):
        self.out.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{FAINT}"/>')

    def draw(self):
        for number, (name, points) in enumerate(self.lines):
            colour = COLOURS[number % len(COLOURS)]
            path = " ".join("%.1f,%.1f" % self.at(x, y) for x, y in points)
            self.out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            self.out += ['<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>' % (*self.at(x, y), colour) for x, y in points if len(points) < 20]
            end = self.at(*points[-1])
            while any(abs(end[0] - x) < 120 and abs(end[1] - y) < 14 for x, y in self.named):
                end = (end[0], end[1] + 14)
            self.named.append(end)
            self.text(end[0] + 8, end[1] + 4, name, colour=colour, weight=600 if number == 0 else 400)


def thinned(points, count=200):
    """Not more than so many of them, with the first and the last."""
    step = max(1, len(points) // count)
    return [point for index, point in enumerate(points) if index % step == 0 or index == len(points) - 1]


def draw(options):
    data = [json.loads(pathlib.Path(path).read_text()) for path in options.json]
    bursts = [(each["name"], thinned([point for point in each["burst"]["points"] if min(point) > 0])) for each in data if each.get("burst")]
    memories = [(each["name"], thinned([point for point in each["memory"] if min(point) > 0])) for each in data if each.get("memory")]
    counts = sorted({each["burst"]["records"] for each in data if each.get("burst")})
    panels = [Panel(0, f"Records that can be fetched, of a burst of {' or '.join(f'{count:,}' for count in counts)} due in one millisecond",
                    "milliseconds since they were due", bursts),
              Panel(HEIGHT, "Memory of the process (MB, anonymous) over pending records", "pending records", memories)]
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {2 * HEIGHT}" font-family="system-ui, sans-serif">',
           f'<rect width="{WIDTH}" height="{2 * HEIGHT}" fill="white"/>']
    for panel in panels:
        out += panel.out
    pathlib.Path(options.svg).write_text("\n".join(out + ["</svg>", ""]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("measure")
    command.add_argument("--binary", required=True)
    command.add_argument("--burst", type=int, default=1_000_000, help="records of the burst (default: 1000000)")
    command.add_argument("--fill", type=int, default=5_000_000, help="pending records (default: 5000000)")
    command.set_defaults(run=measure)
    command = commands.add_parser("draw")
    command.add_argument("--svg", required=True)
    command.add_argument("json", nargs="+")
    command.set_defaults(run=draw)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
