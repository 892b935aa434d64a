#!/usr/bin/python3
"""The page with millions of pending records: each view, the search and each action within seconds.

    tests/integration/page_at_scale.py                                      # 10 million, some minutes
    tests/integration/page_at_scale.py --count 2000000 --pictures docs/page # the pictures of docs/page.md

Not among the cases of run.py, because it takes minutes and gigabytes.  With --pictures it needs pngquant and optipng.
"""

import argparse
import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import harness
import test_page
import wire

# A topic, its share of the records, from when on they are due, and over what time. Their names have colours that are far apart.
TOPICS = [("payments", 0.35, "3m", "30d"), ("orders", 0.3, "2m", "7d"), ("invoices", 0.2, "1h", "700d"), ("mails", 0.1, "20s", "1d"), ("orders.retry", 0.05, "30s", "1h")]
VIEW_MS = 2000
FIRST_MS = 1500  # Of a search among all: a second while the broker looks, and the way.
PICTURES = [
    ("pending", "light"), ("pending", "dark"), ("overdue", "light"), ("topics", "light"), ("groups", "light"), ("wheel", "light"), ("wheel", "dark"),
    ("purgatory", "light"), ("shards", "light"), ("clients", "light"),
]


def fill(broker, count):
    for name, share, delay, spread in TOPICS:
        broker.cli("topic", "create", name, "--partitions", 4)
        started = time.monotonic()
        broker.cli("bench", "delayed", "--fill", "--topic", name, "--count", int(count * share), "--rate", 0, "--floor", 0,
                   "--delay", delay, "--spread", spread, "--size", 120, *(["--id"] if name == "orders" else []), within=900)
        print(f"{name}: {int(count * share)} records in {time.monotonic() - started:.0f} s", flush=True)


# What somebody would look for.
def schedule_some(broker):
    with broker.client() as client:
        for number in range(4700, 4720):
            value = json.dumps({"order": f"order-{number}", "amount": "49.90", "currency": "EUR", "reason": "unpaid", "attempt": number % 3})
            client.produce("orders", [wire.record(value, key=f"customer-{number % 7}", x_schedule_id=f"order-{number}", x_delay=f"{number - 4690}m", trace=f"a1b2-{number}")], number % 4)
            if number % 5 == 0:
                client.produce("orders", [wire.record(value, key=f"customer-{number % 7}", x_schedule_id=f"order-{number}", x_delay=f"{number - 4680}m", trace=f"a1b2-{number}")], number % 4)


@contextlib.contextmanager
def clients_of(broker):
    """Consumers that follow, and a producer of what is due soon."""
    command = [str(broker.binary)]
    running = [subprocess.Popen([*command, "consume", topic, "-g", group, "-b", broker.brokers, "-X", f"client.id={group}-{number}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
               for topic, group, number in (("mails", "mailer", 1), ("mails", "mailer", 2), ("orders.retry", "retry-worker", 1), ("payments", "billing", 1))]
    running.append(subprocess.Popen([*command, "bench", "delayed", "-b", broker.brokers, "--admin", "%s:%d" % broker.admin, "--fill", "--topic", "orders.retry", "--id", "--rate", "40", "--duration", "10m",
                                     "--floor", "0", "--delay", "2s", "--spread", "20s", "-X", "client.id=shop-frontend"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    try:
        yield
    finally:
        for each in running:
            each.terminate()
        for each in running:
            each.wait(20)


class Measure:
    def __init__(self, page):
        self.page, self.wrong = page, []

    def take(self, what, condition, limit_ms, within=120):
        started = time.monotonic()
        value = self.page.wait(condition, what, within=within)
        took = (time.monotonic() - started) * 1000
        self.tell(what, took, limit_ms)
        return value

    def tell(self, what, took, limit_ms):
        print(f"{what:58} {took:8.0f} ms{'' if took <= limit_ms else f'   above {limit_ms} ms'}", flush=True)
        if took > limit_ms:
            self.wrong.append(what)


def measure(page, count):
    of = Measure(page)
    page.load()
    of.take("the first figures", page.has_figures, VIEW_MS)
    page.js("""window.events = []; window.tasks = [0];
               import('/page/live.js').then(({ live }) => live.addEventListener('status', () => events.push(performance.now())));
               new PerformanceObserver((list) => tasks.push(...list.getEntries().map((each) => each.duration))).observe({ type: 'longtask', buffered: true });""")
    assert int("".join(filter(str.isdigit, page.text('[data-figure="pending"]')))) >= count
    of.take("the records that are due next", lambda: len(page.handles()) >= 50, VIEW_MS)
    of.take("the pictures of minute, hour, day and month", lambda: page.js("return [...document.querySelectorAll('[data-span] .card-figure')].every((each) => /\\d/.test(each.textContent))"), 60_000)
    for view in test_page.VIEWS:
        page.go(view)
        of.take(f"the view {view}", lambda: len(page.one(f'[data-view="{view}"]').text) > 60, VIEW_MS)
    page.go("pending")
    for text, wanted in (("order-4711", 1), ("id:order-47*", 20), ("topic:orders due:<30m order-47", 10), ("customer-5", 2), ("topic:mails", 50), ("due:tomorrow", 50)):
        page.search("nothing-of-this-name")
        page.wait(lambda: page.handles() == [], "an empty list")
        page.search(text)
        of.take(f"the search {text!r}", lambda: len(page.handles()) >= wanted, FIRST_MS if text != "customer-5" else 20_000)
    page.search("nowhere-to-be-found")
    of.take("a search that finds nothing says that it looks", lambda: page.handles() == [] and page.text(".summary"), FIRST_MS)
    page.search("order-4711")
    page.wait(lambda: len(page.handles()) == 1, "one")
    handle = page.handles()[0]
    page.click(f'[data-handle="{handle}"]')
    of.take("a record opens", lambda: page.js("return document.querySelector('#panel [data-field=\"history\"]')?.textContent.includes('scheduled')"), VIEW_MS)
    token = test_page.token_of(page.broker)
    page.act("move")
    page.type("input[name=due]", "+2h")
    page.confirm(token)
    of.take("it is moved", lambda: page.js("return document.querySelector('#panel')?.textContent.includes('moved')"), VIEW_MS)
    page.act("cancel")
    page.confirm()
    of.take("it is cancelled", lambda: "never be delivered" in page.text("#panel"), VIEW_MS)
    page.search("id:order-4712")
    # The cancelled one may be shown until the new search has its answer.
    page.wait(lambda: len(page.handles()) == 1 and "order-4712" in page.text("[data-view=pending] [data-handle]"), "one")
    page.click("[data-handle]")
    page.act("deliver")
    page.confirm()
    of.take("it is delivered now", lambda: "offset" in page.text("#panel .outcome"), VIEW_MS)
    change_many(page, of)
    events, tasks = page.js("return [events, Math.max(...tasks)]")
    of.tell("the longest time between two updates", max(b - a for a, b in zip(events, events[1:])), 5000)
    of.tell("the longest that the page's thread worked on one thing", tasks, 500)
    shards = page.broker.get("/status")["shards"]
    for what, field in (("by the clock", "longest_turn_seconds"), ("of CPU time", "longest_turn_cpu_seconds")):
        print(f"{f'the longest turn of a shard, {what}':58} {max(shard[field] for shard in shards) * 1000:8.1f} ms", flush=True)
    return of.wrong


def preview_many(page, action, pattern, matched):
    page.go("pending")
    page.search("")
    page.click('[data-action="many"]')
    page.type("#panel input[name=topic]", "orders")
    page.type("#panel input[name=id]", pattern)
    page.click(f"#panel input[value={action}]")
    if action == "move":
        page.type("#panel input[name=due]", "+1h")
    page.click('#panel [data-action="preview"]')
    return lambda: page.text('[data-figure="matched"]') == str(matched)


# A few records among the millions of one topic: found by the beginning of their ids, or by looking at all.
def change_many(page, of):
    for action, done, pattern, limit_ms in (("move", "moved", "order-470*", VIEW_MS), ("cancel", "cancelled", "*er-470*", 20_000)):
        of.take(f"the preview of many to be {done}, {pattern}", preview_many(page, action, pattern, 10), limit_ms)
        page.confirm()
        of.take(f"they are {done}", lambda: f"10 records {done}" in page.text("#panel .outcome"), 20_000)
    # By topics and times alone none is looked at but those that are shown, so millions are counted at once.
    page.click('[data-action="many"]')
    page.type("#panel input[name=topic]", "*")
    page.type("#panel input[name=from]", "+10m")
    page.click("#panel input[value=cancel]")
    page.click('#panel [data-action="preview"]')
    of.take("the preview of all that is due from ten minutes on", lambda: page.all('#panel [data-figure="matched"]'), 3000)


def take_pictures(page, directory):
    directory.mkdir(parents=True, exist_ok=True)
    page.expected.append("404")  # A record that was delivered while it was open.

    def scheme(name):
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]})

    def shoot(name, width=1280, height=800, mobile=False):
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1.5 if mobile else 1, "mobile": mobile})
        page.js("document.activeElement.blur()")
        time.sleep(1.2)
        path = directory / f"{name}.png"
        page.driver.save_screenshot(str(path))
        subprocess.run(["pngquant", "--force", "--strip", "--quality", "90-100", "--output", path, path], check=True)
        subprocess.run(["optipng", "-quiet", "-o2", path], check=True)
        print(f"{path}: {path.stat().st_size // 1024} KiB", flush=True)

    scheme("light")
    page.open()
    time.sleep(40)  # The charts over time need some of it.
    for view, colours in PICTURES:
        scheme(colours)
        page.search("")
        page.go(view)
        time.sleep(3)
        # What takes memory and disk is below the charts.
        shoot(f"{view}-{colours}", height=1600 if view == "shards" else 900)

    def open_order():
        page.go("pending")
        page.search("id:order-47*")
        page.wait(lambda: "order-47" in page.text("[data-handle]"), "some orders")
        page.click("[data-handle]")
        page.wait(lambda: page.js("return document.querySelector('#panel [data-field=\"history\"]')?.textContent.includes('scheduled')"), "its history")

    def close_order():
        page.keys(test_page.keyboard().ESCAPE)
        page.search("")

    for colours in ("light", "dark"):
        scheme(colours)
        open_order()
        shoot(f"record-{colours}", height=900)
        if colours == "dark":
            shoot("phone-dark", 390, 780, True)
        close_order()
    scheme("light")
    shoot("phone-light", 390, 780, True)
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    found = preview_many(page, "cancel", "order-47*", 20)
    page.wait(found, "the preview")
    shoot("many-light", height=900)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--binary", default=harness.ROOT / "build/release/tarry")
    parser.add_argument("--count", type=int, default=10_000_000)
    parser.add_argument("--pictures", type=pathlib.Path, metavar="DIR", help="takes the pictures of the page instead, and writes them to this directory")
    parser.add_argument("--directory", type=pathlib.Path, help="the data directory, which is kept and used by the next run (default: a temporary one)")
    options = parser.parse_args()
    directory = options.directory or pathlib.Path(tempfile.mkdtemp(prefix="tarry-page."))
    directory.mkdir(exist_ok=True)
    filled = directory / "filled"
    test_page.ZONE = "Europe/Berlin"
    broker = harness.Broker(pathlib.Path(options.binary).resolve(), directory).start()
    try:
        if not filled.exists():
            fill(broker, options.count)
            filled.touch()
        schedule_some(broker)
        with clients_of(broker), test_page.page_of(broker) as page:
            time.sleep(3)
            wrong = []
            if options.pictures:
                take_pictures(page, options.pictures)
            else:
                wrong = measure(page, int(options.count * 0.9))
    finally:
        code = broker.stop(within=120)
        if not options.directory:
            shutil.rmtree(directory)
    for what in wrong:
        print(f"too slow: {what}")
    return 1 if wrong or code else 0


if __name__ == "__main__":
    sys.exit(main())
