#!/usr/bin/env python3
"""How soon a broker is there again after kill -9 with many pending records, and how fast it delivers
those that fell due meanwhile.

    bench/overdue.py --binary build/release/tarry [--records 2000000] [--far 0] [--partitions 1]

Starts a broker of its own, gives it `--far` records that are due within 30 days and `--records` that
are due soon, ends it with kill -9, waits until all of the latter are overdue, and starts it again.
While it delivers them a producer sends a record without a delay to another topic every 10 ms. Prints
one line of JSON: `ready_s`, from the start to the ready line; `first_s` and `all_s`, to the first and
the last overdue record that can be fetched; `per_second`, between these; `produce_ms`, until such a
produce was acknowledged; the broker's CPU seconds and memory.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "integration"))
import wire

LATEST = -1


def percentile(values, share):
    return values[min(len(values) - 1, int(len(values) * share))] if values else None


class Broker:
    def __init__(self, binary, directory, settings):
        self.binary, self.directory, self.settings = binary, directory, settings

    def start(self):
        """Returns when it is ready, and the seconds that this took."""
        began = time.monotonic()
        words = [word for setting in self.settings for word in ("--set", setting)]
        with open(self.directory / "stderr", "ab") as log:
            self.process = subprocess.Popen([self.binary, "serve", "--data", self.directory / "data", "--listen", "127.0.0.1:0",
                                             "--admin", "127.0.0.1:0", *words], stdout=subprocess.PIPE, stderr=log, text=True)
        words = dict(word.split("=", 1) for word in self.process.stdout.readline().split() if "=" in word)
        host, port = words["kafka"].rsplit(":", 1)
        self.address, self.admin = (host, int(port)), words["admin"]
        return time.monotonic() - began

    def kill(self):
        self.process.kill()
        self.process.wait()

    def cli(self, *words):
        return subprocess.run([self.binary, *words, "-b", "%s:%d" % self.address], check=True, capture_output=True, text=True).stdout

    def cpu_seconds(self):
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9

    def memory_mb(self, field):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) // 1024


def fill(broker, topic, count, delay, spread):
    return json.loads(broker.cli("bench", "delayed", "--fill", "--json", "--topic", topic, "--rate", "0", "--count", str(count),
                                 "--delay", delay, "--spread", spread))


class Producer(threading.Thread):
    """Sends a record every 10 ms, and notes how long each took."""

    def __init__(self, address):
        super().__init__()
        self.client, self.took, self.ended = wire.Client(address), [], threading.Event()

    def run(self):
        data = wire.batch([wire.record(b"x" * 100)])
        while not self.ended.wait(0.01):
            began = time.monotonic()
            self.client.produce("plain", data)
            self.took.append((time.monotonic() - began) * 1000)


def deliver(broker, options, began):
    """The times at which the first and the last overdue record could be fetched."""
    client, producer = wire.Client(broker.address), Producer(broker.address)
    producer.start()
    first = None
    memory = 0
    while True:
        # In each partition one is the filling bench's own, which was not delayed.
        there = sum(client.end_offset("overdue", partition, LATEST) - 1 for partition in range(options.partitions))
        now = time.monotonic() - began
        first = first if first is not None or there == 0 else (now, there)
        if there >= options.records:
            break
        if now > options.within:
            sys.exit(f"only {there} of {options.records} overdue records were delivered within {options.within} s")
        memory = max(memory, broker.memory_mb("RssAnon"))
        time.sleep(0.005)
    producer.ended.set()
    producer.join()
    return first, now, sorted(producer.took), memory


def measure(broker, options):
    broker.start()
    for topic, partitions in (("overdue", options.partitions), ("far", 1), ("plain", 1)):
        broker.cli("topic", "create", topic, "--partitions", str(partitions))
    if options.far:
        fill(broker, "far", options.far, "2h", "30d")
    seconds = 5 + options.records // 100_000
    filled = fill(broker, "overdue", options.records, f"{seconds}s", f"{options.spread}s")
    broker.kill()
    time.sleep(seconds + options.spread + 1)  # From now on: longer than needed.
    began = time.monotonic()
    ready = broker.start()
    first, end, took, memory = deliver(broker, options, began)
    print(json.dumps({
        "overdue": options.records, "far": options.far, "partitions": options.partitions, "accepted": filled["accepted"],
        "delivered_before": filled["delivered"], "ready_s": round(ready, 3), "first_s": round(first[0], 3), "all_s": round(end, 3),
        "per_second": round((options.records - first[1]) / (end - first[0])) if end > first[0] else None,
        "produce_ms": {"p50": percentile(took, 0.5), "p99": percentile(took, 0.99), "max": percentile(took, 1), "count": len(took)},
        "cpu_s": round(broker.cpu_seconds(), 2), "memory_mb": memory, "memory_max_mb": broker.memory_mb("VmHWM")}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--records", type=int, default=2_000_000, help="overdue records (default: 2000000)")
    parser.add_argument("--far", type=int, default=0, help="records that are due later (default: 0)")
    parser.add_argument("--partitions", type=int, default=1, help="partitions of the overdue records' topic (default: 1)")
    parser.add_argument("--spread", type=int, default=10, help="seconds over which their due times are spread (default: 10)")
    parser.add_argument("--within", type=int, default=120, help="seconds until it gives up (default: 120)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the broker")
    parser.add_argument("--dir", default=None, help="the broker's data directory (default: the directory for temporary files)")
    options = parser.parse_args()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="tarry-overdue-", dir=options.dir))
    broker = Broker(os.path.abspath(options.binary), directory, options.set)
    try:
        measure(broker, options)
    finally:
        broker.kill()
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
