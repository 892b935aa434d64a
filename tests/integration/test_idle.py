"""An idle broker does nothing but one look at the disk a second: shown by the kernel's own count of context switches."""

import pathlib
import re
import socket
import time

import wire
from harness import case


def switches(pid):
    """Thread id -> (name, times it gave the processor away or lost it)."""
    counts = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            status = (task / "status").read_text()
        except OSError:
            continue  # It has just ended.
        numbers = re.findall(r"voluntary_ctxt_switches:\s+(\d+)", status)
        counts[task.name] = (re.search(r"Name:\s+(.*)", status)[1], sum(map(int, numbers)))
    return counts


def woken(pid, seconds):
    """(name, times) of every thread of Tarry's own that ran within so many seconds."""
    before = switches(pid)
    time.sleep(seconds)
    names = []
    for tid, (name, count) in switches(pid).items():
        times = count - before.get(tid, (name, 0))[1]
        # RocksDB's own threads: those it names, and its timer, which has the process's name and
        # looks after each of the two databases every ten seconds.
        its_timer = name == "tarry" and tid != str(pid) and times <= 2 * (seconds // 10 + 1)
        # Another program may fill the disk at any time: one thread looks, once a second.
        disk_watch = name == "tarry-disk" and times <= 2 * (seconds + 1)
        if times and not name.startswith("rocksdb") and not its_timer and not disk_watch:
            names.append((name, times))
    return names


@case("with 100 idle connections no thread of Tarry's own wakes for 10 s, but for a look at the disk each second", idle=True)
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), partitions=4)
        client.produce(topic, [wire.record("plain")])
        client.produce(topic, [wire.record("soon", x_delay="100ms")])
        client.consume(topic, 2)
        connections = []
        for _ in range(100):
            connection = broker.client()
            connection.api_versions(0)
            connections.append(connection)
        # What was written may be checkpointed in the meantime; then there is nothing left to do.
        deadline = time.monotonic() + 40
        while woken(broker.process.pid, 2) and time.monotonic() < deadline:
            pass
        names = woken(broker.process.pid, 10)
        assert not names, f"woke within 10 s: {names}; threads: {sorted(name for name, _ in switches(broker.process.pid).values())}"
        for connection in connections:
            connection.api_versions(0)
            connection.close()


@case("a Fetch that waits wakes nothing, and pending records far ahead hardly anything", idle=True)
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client, broker.client() as waiting:
        topic = client.create_topic(ctx.topic())
        waiting.send(wire.FETCH, 11, waiting.fetch_body(topic, 0, max_wait=120_000))
        deadline = time.monotonic() + 40
        while woken(broker.process.pid, 2) and time.monotonic() < deadline:
            pass
        names = woken(broker.process.pid, 5)
        assert not names, f"woke within 5 s: {names}"
        client.produce(topic, [wire.record(str(n), x_delay="30d") for n in range(100)])
        deadline = time.monotonic() + 70
        while (names := woken(broker.process.pid, 5)) and time.monotonic() < deadline:
            if all(times <= 15 for _, times in names):
                break  # A look at the clock on the wall, which may be set.
        assert all(times <= 15 for _, times in names), f"woke within 5 s: {names}"


@case("an idle broker is small and starts at once", alone=True)
def _(ctx):
    broker = ctx.broker()
    time.sleep(0.5)
    with socket.create_connection(broker.address):
        print(f"             {broker.rss_mib():.1f} MiB, ready after {broker.start_ms} ms")
        assert broker.rss_mib() < 60, f"{broker.rss_mib():.0f} MiB"
        assert broker.start_ms < 10_000, f"{broker.start_ms} ms"
