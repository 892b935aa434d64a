#!/usr/bin/env python3
"""Draws how soon the records of a burst can be fetched, and how much memory pending records take.

    bench/delayed_plot.py measure --binary build/release/tarry > OURS
    bench/delayed_plot.py peer --name NAME TOLD... > OTHER
    bench/delayed_plot.py draw --svg docs/delayed_bench.svg OURS [OTHER...]

`measure` starts a broker of its own, gives it `--burst` records that are due in one millisecond and looks
every millisecond how many can be fetched; then another, whose topic it fills with `--fill` records that are due within
30 days while it looks at the broker's memory, and which it kills and starts again. A file has {"name",
"burst": {"records", "points": [[ms, fetchable]...]}, "memory": [[pending, MB]...]}; other systems have files of the same form.
`peer` makes it from what a load driver for another system has told: a line of JSON for a burst, with {"test": "burst", "n",
"points": [[ms, received]...]} or, without points, "first_ms", "half_ms", "p99_ms", "all_ms"; and one for pending
messages, with {"test": "standing", "memory": [[acknowledged, MB]...]} or, without points, "n" and "anon_after_mb".
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


def due_at_once(broker, topic, count, seconds):
    """Gives the topic so many records that are due in one millisecond, and tells which."""
    broker.cli("topic", "create", topic, "--partitions", "1")
    broker.bench("--fill", "--topic", topic, "--burst", count, "--delay", f"{seconds}s")
    # The bench chooses the millisecond: it is the due time of any of them.
    records = broker.get(f"/delayed?topic={topic}&limit=1")["records"]
    if not records:
        sys.exit("the burst was due before all of it was accepted")
    return records[0]["due_ms"]


def fetchable(broker, topic):
    return wire.Client(broker.address).end_offset(topic, 0) - 1  # One is the bench's own, which is not delayed.


def burst(broker, count):
    due = due_at_once(broker, "burst", count, 5 + count // 50_000)
    client, points = wire.Client(broker.address), []
    time.sleep(max(0, due / 1000 - time.time() - 0.005))
    while not points or points[-1][1] < count:
        there = client.end_offset("burst", 0) - 1
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
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as filling:
        while filling.poll() is None:
            points.append([broker.get("/status")["delayed"]["pending"], broker.memory_mb("RssAnon")])
            time.sleep(0.25)
        points.append([broker.get("/status")["delayed"]["pending"], broker.memory_mb("RssAnon")])
        told = json.loads(filling.stdout.read().splitlines()[-1])
    if filling.returncode != 0:
        sys.exit("the topic could not be filled")
    return points, told


def restart(broker, count=1_000):
    """After kill -9, a second before some records are due: until it is ready, and until the first and the last of them can be fetched."""
    due = due_at_once(broker, "probes", count, 4)
    time.sleep(max(0, due / 1000 - time.time() - 1))
    broker.kill()
    began = time.time()
    ready, first, there = broker.start(), None, 0
    while there < count:
        there = fetchable(broker, "probes")
        if there and first is None:
            first = time.time() - began
    return {"ready_s": ready, "first_s": first, "all_s": time.time() - began, "due_s": due / 1000 - began}


def measure(options):
    with own_broker.running(options.binary) as broker:
        measured = {"name": "Tarry", "burst": burst(broker, options.burst)}
    with own_broker.running(options.binary) as broker:
        measured["memory"], measured["fill"] = memory(broker, options.fill)
        measured["fill"]["disk_bytes"] = own_broker.disk_bytes(broker.data)
        measured["restart"] = restart(broker)
    print(json.dumps(measured))


def settled(points):
    """The last value for each number of pending messages."""
    return [list(point) for point in dict(points).items()]


def peer(name, lines):
    """The file of another system, from the lines that its driver has told."""
    made = {"name": name}
    for told in lines:
        if told.get("failed"):
            sys.exit(f"{name}: {told['failed']}")
        if told["test"] == "burst":
            count = told["n"]
            if told["missing"] or told["received"] != count:
                sys.exit(f"{name}: {told['received']} of {count} messages were received")
            shares = ((1, "first_ms"), (count // 2, "half_ms"), (count * 99 // 100, "p99_ms"), (count, "all_ms"))
            made["burst"] = {"records": count, "points": told.get("points") or [[told[key], there] for there, key in shares]}
        elif told["test"] == "standing":
            made["memory"] = settled(told.get("memory") or [[told["n"], told["anon_after_mb"]]])
    return made


def print_peer(options):
    lines = [json.loads(line) for path in options.told for line in pathlib.Path(path).read_text().splitlines() if line.strip()]
    print(json.dumps(peer(options.name, lines)))


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
        self.out, self.top, self.lines = [], top, lines
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
            colour, width, weight = COLOURS[number % len(COLOURS)], 3 if number == 0 else 2, 600 if number == 0 else 400
            drawn = thinned([self.at(x, y) for x, y in points])
            path = " ".join("%.1f,%.1f" % place for place in drawn)
            self.out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
            self.out += ['<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>' % (*place, colour) for place in drawn if len(points) < 20]
            x, y = WIDTH - RIGHT + 14, self.top + 48 + 18 * number
            self.out.append(f'<line x1="{x}" y1="{y}" x2="{x + 16}" y2="{y}" stroke="{colour}" stroke-width="{width}"/>')
            self.text(x + 22, y + 4, name, colour=colour, weight=weight)


def thinned(places, least=2.0):
    """Without those that lie so close to the one before that nobody sees them, but with the last."""
    kept = places[:1]
    for place in places[1:]:
        if math.dist(place, kept[-1]) >= least or place is places[-1]:
            kept.append(place)
    return kept


def draw(options):
    data = [json.loads(pathlib.Path(path).read_text()) for path in options.json]
    bursts = [(each["name"], [point for point in each["burst"]["points"] if min(point) > 0]) for each in data if each.get("burst")]
    memories = [(each["name"], [point for point in each["memory"] if min(point) > 0]) for each in data if each.get("memory")]
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
    command = commands.add_parser("peer")
    command.add_argument("--name", required=True)
    command.add_argument("told", nargs="+")
    command.set_defaults(run=print_peer)
    command = commands.add_parser("draw")
    command.add_argument("--svg", required=True)
    command.add_argument("json", nargs="+")
    command.set_defaults(run=draw)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
