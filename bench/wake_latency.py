#!/usr/bin/env python3
"""How soon a produce wakes those who wait for it: clients with a Fetch that waits at a partition's
end, and one that produces a record a few hundred times a second.

    bench/wake_latency.py --broker HOST:PORT [--waiters 100] [--rounds 1000] [--pause-ms 5]

Prints, in milliseconds: `acknowledged`, from sending a Produce to its answer, which waits for the
disk; `woken`, from that answer to a waiter's, negative when it was first; and `in all`, from sending to
a waiter's answer. Of every waiter in every round. This process has to read all of the answers, one after
the other: what is slow in it counts.
"""

import argparse
import pathlib
import select
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "integration"))
import wire


def percentile(values, share):
    return values[min(len(values) - 1, int(len(values) * share))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--broker", required=True, metavar="HOST:PORT")
    parser.add_argument("--waiters", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--pause-ms", type=float, default=5, help="pause between two rounds (default: 5)")
    parser.add_argument("--topic", default="wake-latency", help="the topic; created if it does not exist (default: wake-latency)")
    options = parser.parse_args()

    fetch_version, produce_version = 11, 8
    host, port = options.broker.rsplit(":", 1)
    address = (host, int(port))
    producer = wire.Client(address)
    try:
        producer.create_topic(options.topic)
    except wire.KafkaError as error:  # From a run before: this one goes on at its end.
        if error.code != wire.TOPIC_EXISTS:
            raise
    waiters = [wire.Client(address) for _ in range(options.waiters)]
    poll = select.epoll()
    for client in [*waiters, producer]:
        poll.register(client.socket.fileno(), select.EPOLLIN)
    by_socket = {client.socket.fileno(): client for client in waiters}
    data = wire.batch([wire.record(b"x" * 100)])
    produce = producer.produce_body(options.topic, 0, data)
    offset = producer.end_offset(options.topic)

    acknowledged, woken, in_all = [], [], []
    warm_up = 20
    for number in range(warm_up + options.rounds):
        for client in waiters:
            client.send(wire.FETCH, fetch_version,
                        client.fetch_body(options.topic, offset, version=fetch_version, max_wait=60_000))
        time.sleep(options.pause_ms / 1000)
        sent = time.perf_counter()
        producer.send(wire.PRODUCE, produce_version, produce)
        answered, at = None, []
        while answered is None or len(at) < len(waiters):
            for fileno, _ in poll.poll(10):
                now = time.perf_counter()
                if fileno == producer.socket.fileno():
                    producer.receive(wire.PRODUCE, produce_version)
                    answered = now
                else:
                    by_socket[fileno].receive(wire.FETCH, fetch_version)
                    at.append(now)
        offset += 1
        if number < warm_up:
            continue
        acknowledged.append(answered - sent)
        woken += [each - answered for each in at]
        in_all += [each - sent for each in at]

    print(f"{options.waiters} waiters, {options.rounds} rounds")
    for name, values in [("acknowledged", acknowledged), ("woken", woken), ("in all", in_all)]:
        values.sort()
        shown = ", ".join(f"{label} {percentile(values, share) * 1000:.2f}"
                          for label, share in [("p50", 0.5), ("p99", 0.99), ("max", 1)])
        print(f"{name:>12}: {shown} ms")


if __name__ == "__main__":
    main()
