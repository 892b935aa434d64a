#!/usr/bin/env python3
"""The cost of parked fetches to a broker while nothing happens: connections with a Fetch each that waits ten
minutes at a partition's end, and then nobody does anything for some seconds.

    bench/parked_cost.py --broker HOST:PORT --pid PID [--count 10000] [--seconds 10]

Prints one line of JSON: what /proc says that the broker did in that time, in CPU milliseconds and in context
switches of all its threads together, and by how much each of them made its memory grow (of a broker that has
just begun: another takes what it has). Then one record is produced, which all of them are to be answered
with: `all_answered_ms` later this process had read the last answer. Broker and script need `ulimit -n` for so
many connections.
"""

import argparse
import json
import pathlib
import re
import resource
import select
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "integration"))
import wire

FETCH_VERSION, MAX_WAIT_MS = 11, 600_000


def consumed(pid):
    """(CPU nanoseconds, context switches) of all threads so far."""
    cpu = switches = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        cpu += int((task / "schedstat").read_text().split()[0])
        switches += sum(map(int, re.findall(r"ctxt_switches:\s+(\d+)", (task / "status").read_text())))
    return cpu, switches


def resident_kib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--broker", required=True, metavar="HOST:PORT")
    parser.add_argument("--pid", required=True, type=int, help="the broker's process id, on this machine")
    parser.add_argument("--count", type=int, default=10_000, help="clients that wait (default: 10000)")
    parser.add_argument("--seconds", type=float, default=10, help="seconds in which nothing happens (default: 10)")
    parser.add_argument("--topic", default="parked", help="the topic; created if it does not exist (default: parked)")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    host, port = options.broker.rsplit(":", 1)
    address = (host, int(port))
    producer = wire.Client(address)
    try:
        producer.create_topic(options.topic)
    except wire.KafkaError as error:
        if error.code != wire.TOPIC_EXISTS:
            raise
    end = producer.end_offset(options.topic)
    before = resident_kib(options.pid)
    poll, waiters = select.epoll(), {}
    for _ in range(options.count):
        client = wire.Client(address)
        client.send(wire.FETCH, FETCH_VERSION,
                    client.fetch_body(options.topic, end, version=FETCH_VERSION, max_wait=MAX_WAIT_MS))
        waiters[client.socket.fileno()] = client
        poll.register(client.socket.fileno(), select.EPOLLIN)
    time.sleep(3)  # Until the last one waits, and what was let go for it is let go.

    parked = resident_kib(options.pid)
    cpu, switches = consumed(options.pid)
    time.sleep(options.seconds)
    cpu_after, switches_after = consumed(options.pid)
    early = len(poll.poll(0, options.count))
    if early:
        raise SystemExit(f"{early} of {options.count} were answered, or closed, while nothing happened")

    began = time.perf_counter()
    producer.produce(options.topic, [wire.record(b"at last")])
    left = options.count
    while left:
        ready = poll.poll(30, left)
        if not ready:
            raise SystemExit(f"{left} of {options.count} were not answered within 30 s")
        for fileno, _ in ready:
            client = waiters[fileno]
            assert client.read_fetched(client.receive(wire.FETCH, FETCH_VERSION), FETCH_VERSION).records
            left -= 1
    took = time.perf_counter() - began
    print(json.dumps({
        "parked": options.count, "seconds": options.seconds, "cpu_ms": round((cpu_after - cpu) / 1e6, 3),
        "context_switches": switches_after - switches,
        "bytes_each": round((parked - before) * 1024 / options.count), "all_answered_ms": round(took * 1000)}))


if __name__ == "__main__":
    main()
