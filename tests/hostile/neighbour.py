"""neighbour.py HOST PORT TOPIC: the neighbour of an attack, in a process of its own, so that what the attack makes the tests'
process do is not measured. It produces a record every 5 ms, and prints for each how many seconds its request took, until its
standard input ends."""

import pathlib
import select
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import wire  # noqa: E402


def main():
    host, port, topic = sys.argv[1:]
    with wire.Client((host, int(port))) as client:
        while not select.select([sys.stdin], [], [], 0.005)[0]:
            started = time.monotonic()
            client.produce(topic, [wire.record("v")])
            print(time.monotonic() - started, flush=True)


if __name__ == "__main__":
    main()
