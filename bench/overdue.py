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
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "integration"))
import own_broker
import wire
from own_broker import percentile

LATEST = -1


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
    try:
        while True:
            # In each partition one is the filling bench's own, which was not delayed.
            there = sum(client.end_offset("overdue", partition, LATEST) - 1 for partition in range(options.partitions))
            now = time.monotonic() - began
            first = first if first is not None or there == 0 else (now, there)
            if there >= options.records:
                break
            if now > options.within:
                raise TimeoutError(f"only {there} of {options.records} overdue records were delivered within {options.within} s")
            memory = max(memory, broker.memory_mb("RssAnon"))
            time.sleep(0.005)
    finally:
        producer.ended.set()
        producer.join()
    return first, now, sorted(producer.took), memory


def measure(broker, options):
    for topic, partitions in (("overdue", options.partitions), ("far", 1), ("plain", 1)):
        broker.cli("topic", "create", topic, "--partitions", str(partitions))
    if options.far:
        broker.fill("far", options.far, "2h", "30d")
    seconds = 5 + options.records // 100_000
    filled = broker.fill("overdue", options.records, f"{seconds}s", f"{options.spread}s")
    broker.kill()
    time.sleep(seconds + options.spread + 1)  # From now on: longer than needed.
    began = time.monotonic()
    ready = broker.start()
    first, end, took, memory = deliver(broker, options, began)
    return {
        "overdue": options.records, "far": options.far, "partitions": options.partitions, "accepted": filled["accepted"],
        "delivered_before": filled["delivered"], "ready_s": round(ready, 3), "first_s": round(first[0], 3), "all_s": round(end, 3),
        "per_second": round((options.records - first[1]) / (end - first[0])) if end > first[0] else None,
        "produce_ms": {"p50": percentile(took, 0.5), "p99": percentile(took, 0.99), "max": percentile(took, 1), "count": len(took)},
        "cpu_s": round(broker.cpu_seconds(), 2), "memory_mb": memory, "memory_max_mb": broker.memory_mb("VmHWM")}


def parser():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--records", type=int, default=2_000_000, help="overdue records (default: 2000000)")
    parser.add_argument("--far", type=int, default=0, help="records that are due later (default: 0)")
    parser.add_argument("--partitions", type=int, default=1, help="partitions of the overdue records' topic (default: 1)")
    parser.add_argument("--spread", type=int, default=10, help="seconds over which their due times are spread (default: 10)")
    parser.add_argument("--within", type=int, default=120, help="seconds until it gives up (default: 120)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the broker")
    parser.add_argument("--dir", default=None, help="the broker's data directory (default: the directory for temporary files)")
    return parser


def main():
    options = parser().parse_args()
    with own_broker.running(options.binary, settings=options.set, parent=options.dir) as broker:
        print(json.dumps(measure(broker, options)))


if __name__ == "__main__":
    main()
