"""Faults of the machine and of peers under load: a slow and a hung disk, reads that fail, a clock that is set, peers that
stall or end their streams. The disk's and the clock's are made by faults.c, which the broker is started with.

Beside each fault go a producer of unique values, a producer of delayed ones, and neighbours on a topic of their own.
When it is over, no acknowledged value is lost or there twice, no delayed one was early, and descriptors, memory and the
log are as they should be. Part of run.py."""

import collections
import contextlib
import ctypes
import mmap
import os
import socket
import threading
import time

import wire
from harness import case, eventually, run
from test_attacks import JOIN_GROUP, MAX_LATER, open_connections, percentile

SYNC_GROUP, HEARTBEAT = 14, 12

# One machine runs all, so a window that was worse than that is measured again, so many times in all.
WINDOWS = 4


class Faults(ctypes.Structure):
    """As in faults.c."""
    _fields_ = [("clock_shift_ns", ctypes.c_int64), ("delay_us", ctypes.c_uint32), ("hang", ctypes.c_uint32),
                ("fail_every", ctypes.c_uint32), ("reads", ctypes.c_uint32), ("failed", ctypes.c_uint32),
                ("journal", ctypes.c_uint32), ("segments", ctypes.c_uint32), ("databases", ctypes.c_uint32),
                ("part", ctypes.c_char * 128)]


def broker_with_faults(ctx, **how):
    """The broker, started, and its faults: none yet."""
    library, control = ctx.directory / "faults.so", ctx.directory / "faults"
    run("cc", "-O1", "-shared", "-fPIC", "-o", library, os.path.join(os.path.dirname(__file__), "faults.c"), "-ldl")
    control.write_bytes(bytes(ctypes.sizeof(Faults)))
    broker = ctx.broker(start=False, **how)
    broker.environment = {"LD_PRELOAD": str(library), "TARRY_FAULTS": str(control),
                          "TARRY_FAULTS_BELOW": str(broker.data.parent.resolve() / broker.data.name)}
    broker.start()
    with open(control, "r+b") as file:
        return broker, Faults.from_buffer(mmap.mmap(file.fileno(), ctypes.sizeof(Faults)))


class Wall:
    """The broker's wall clock: ours, and what the case has shifted it by."""

    def __init__(self, faults=None):
        self.faults, self.steps = faults, [(0.0, 0)]

    def shift(self, hours):
        self.faults.clock_shift_ns = hours * 3600 * 10**9
        self.steps.append((time.monotonic(), hours * 3_600_000))

    def now_ms(self):
        return int(time.time() * 1000) + self.steps[-1][1]

    def latest_ms(self):
        """The latest that the broker's clock can have shown when it delivered what has come now: a second ago, or since."""
        ago = time.monotonic() - 1
        shifts = [shift for (_, shift), (end, _) in zip(self.steps, self.steps[1:] + [(float("inf"), 0)]) if end > ago]
        return time.time() * 1000 + max(shifts)


class Load:
    """Two producers, their consumers, and neighbours that measure their requests."""

    def __init__(self, broker, what, wall=None, topic="values"):
        self.broker, self.what, self.wall, self.topic = broker, what, wall or Wall(), topic
        self.going, self.errors = True, []
        self.acknowledged, self.unanswered, self.due = [], [], {}
        self.seen, self.early = collections.Counter(), []
        self.times = {name: [] for name in ("produce", "fetch", "metadata", "heartbeat")}
        self.delay_ms = lambda n: 200 + n * 37 % 1500

    def __enter__(self):
        with self.broker.client() as client:
            for name in (self.topic, "delayed", "neighbour"):
                client.create_topic(name)
            client.produce("neighbour", [wire.record("first")])
            self.member = self.join(client)
        self.open_before, self.rss_before = open_connections(self.broker), self.broker.rss_mib()
        self.log_before = len(self.broker.log())
        work = [(self.produce, "values"), (self.produce, "delayed"), (self.consume, "delayed"),
                *((self.neighbour, name) for name in self.times)]
        self.threads = [threading.Thread(target=self.guarded, args=each, daemon=True) for each in work]
        for thread in self.threads:
            thread.start()
        self.before = self.window(1.5)
        return self

    def guarded(self, function, argument):
        try:
            function(argument)
        except Exception as error:  # Told by the thread that waits for us.
            self.errors.append(f"{function.__name__} {argument}: {type(error).__name__}: {error}")

    def join(self, client):
        """A group with one member, which needs no journal for its heartbeats."""
        head = wire.string("neighbours") + wire.i32(300_000) + wire.i32(300_000)
        answer = client.request(JOIN_GROUP, 3, head + wire.string("") + wire.string("consumer") + wire.i32(1) + wire.string("range") + wire.i32(0))
        answer.i32()
        error, generation = answer.i16(), answer.i32()
        assert error == 0, error
        answer.string()
        member = answer.string()
        assert member == answer.string()
        answer = client.request(SYNC_GROUP, 1, wire.string("neighbours") + wire.i32(generation) + wire.string(member) + wire.i32(1)
                                + wire.string(member) + wire.i32(4) + b"mine")
        answer.i32()
        assert answer.i16() == 0
        return generation, member

    def produce(self, kind):
        topic, number = self.topic if kind == "values" else "delayed", 0
        client = self.broker.client()
        while self.going:
            value, headers = f"{kind}-{number}", {}
            if kind == "delayed":
                self.due[value.encode()] = self.wall.now_ms() + self.delay_ms(number)
                headers = {"x_deliver_at": self.due[value.encode()]}
            # Large ones, so that a topic has more than the broker keeps in memory.
            data = value + " " * 8000 if kind == "values" else value
            number += 1
            try:
                produced = client.produce(topic, [wire.record(data, **headers)], check=False)
                (self.unanswered if produced.error else self.acknowledged).append(value.encode())
            except (wire.ConnectionEnded, OSError):
                self.unanswered.append(value.encode())
                client.close()
                client = self.broker.client()
            time.sleep(0.004)
        client.close()

    def consume(self, topic):
        with self.broker.client() as client:
            offset = 0
            while self.going:
                fetched = client.fetch(topic, offset, max_wait=100)
                latest = self.wall.latest_ms()
                for each in fetched.batches():
                    for record in each.records:
                        if latest < self.due[record.value]:
                            self.early.append((record.value, self.due[record.value] - latest))
                        offset = record.offset + 1

    def neighbour(self, name):
        generation, member = self.member
        beat = wire.string("neighbours") + wire.i32(generation) + wire.string(member)
        with self.broker.client() as client:
            client.topic_id("neighbour")
            while self.going:
                started = time.monotonic()
                if name == "produce":
                    client.produce("neighbour", [wire.record("v")])
                elif name == "fetch":
                    assert client.fetch("neighbour", 0, partition_bytes=1000).batches()
                elif name == "metadata":
                    assert client.metadata("neighbour")
                else:
                    answer = client.request(HEARTBEAT, 1, beat)
                    answer.i32()
                    assert answer.i16() == 0
                self.times[name].append((started, time.monotonic() - started))
                time.sleep(0.008)

    def window(self, seconds):
        """The neighbours' p99s of the requests that they send within this time."""
        started = time.monotonic()
        time.sleep(seconds)
        return {name: percentile([took for at, took in times if at >= started]) for name, times in self.times.items()}

    def check_neighbours(self, seconds, names):
        """While the fault is there. The first window begins now."""
        for turn in range(WINDOWS):
            during = self.window(seconds)
            print(f"             {self.what}: the neighbours' p99 in ms, before and during: " + ", ".join(
                f"{name} {self.before[name] * 1000:.0f} {during[name] * 1000:.0f}" for name in self.times))
            late = [name for name in names if during[name] > self.before[name] + MAX_LATER]
            if not late:
                return
        raise AssertionError(f"{self.what}: {', '.join(late)} of the neighbours took more than {MAX_LATER * 1000:.0f} ms longer")

    def everything(self, client, topic, check_crc=True):
        """All values of a topic, as often as they are there; reads that fail are made again. How many did."""
        values, offset, failed = collections.Counter(), 0, 0
        end = client.end_offset(topic)
        while offset < end:
            fetched = client.fetch(topic, offset, max_wait=100, partition_bytes=256 << 10)
            if fetched.error == wire.KAFKA_STORAGE_ERROR:
                failed += 1
                assert failed < 1000, f"{topic} cannot be read at {offset}"
                continue
            assert not fetched.error, f"error {fetched.error} of {topic} at {offset}"
            for each in fetched.batches(check_crc):
                assert each.crc_ok, f"a wrong CRC at {each.base_offset}"
                values.update(record.value.rstrip() for record in each.records)
                offset = each.last_offset + 1
        return values, failed

    def end(self):
        """No more is sent; waits until all that is pending is delivered. Called by the case while all is well again."""
        self.going = False
        for thread in self.threads:
            thread.join(40)
            assert not thread.is_alive(), f"{self.what}: a client did not end"
        assert not self.errors, self.errors
        with self.broker.client() as client:
            eventually(lambda: not self.broker.pending("delayed"), "everything pending is delivered", within=20)
            values = self.everything(client, self.topic)[0] + self.everything(client, "delayed")[0]
        lost = [value for value in self.acknowledged if not values[value]]
        twice = [value for value, count in values.items() if count > 1]
        strange = set(values) - set(self.acknowledged) - set(self.unanswered)
        assert not lost, f"{self.what}: {len(lost)} of {len(self.acknowledged)} acknowledged values are lost: {lost[:5]}"
        assert not twice and not strange, f"{self.what}: there twice: {twice[:5]}, never sent: {list(strange)[:5]}"
        assert not self.early, f"{self.what}: early, by ms: {self.early[:5]}"
        assert len(self.acknowledged) > 100, f"{self.what}: only {len(self.acknowledged)} values"
        eventually(lambda: open_connections(self.broker) <= self.open_before + 8,
                   f"{self.what}: {open_connections(self.broker)} connections are open, before {self.open_before}", within=20)
        more = self.broker.rss_mib() - self.rss_before
        log = self.broker.log()[self.log_before:]
        print(f"             {self.what}: {len(self.acknowledged)} values, {len(self.unanswered)} refused or unanswered, "
              f"{more:.0f} MiB more, {log.count(chr(10))} lines in the log")
        assert more < 100, f"{self.what}: {more:.0f} MiB more"
        assert log.count("\n") <= 60 and len(log) < 32 << 10, f"{self.what}: the log has grown by {len(log)} bytes:\n{log[-2000:]}"

    def __exit__(self, kind, *_):
        if kind is None:
            self.end()
        self.going = False


@case("a disk that takes 50 ms for every call delays who waits for it, and nobody else", alone=True)
def _(ctx):
    # Checkpoints all the time, so that the databases are slow too.
    broker, faults = broker_with_faults(ctx, settings={"tarry.checkpoint.interval.ms": 300, "group.initial.rebalance.delay.ms": 0})
    with Load(broker, "a slow disk") as load:
        faults.delay_us = 50_000
        # An acknowledgement waits for the disk, so it cannot be as fast as before.
        load.check_neighbours(2, ("fetch", "metadata", "heartbeat"))
        # A write and a sync: of the round that runs when the request comes, and of its own.
        produce = load.window(2)["produce"]
        assert produce < 4 * 0.050 + 3, f"an acknowledgement took {produce * 1000:.0f} ms"
        faults.delay_us = 0
    assert faults.journal > 20 and faults.databases > 20, (faults.journal, faults.databases)


@case("a disk that hangs for five seconds delays acknowledgements for as long; Fetch, Metadata and Heartbeat go on", alone=True)
def _(ctx):
    broker, faults = broker_with_faults(ctx, settings={"tarry.checkpoint.interval.ms": 300, "group.initial.rebalance.delay.ms": 0})
    with Load(broker, "a hung disk") as load:
        acknowledged = len(load.acknowledged)
        faults.hang = 1
        try:
            # With a hung journal nothing can be acknowledged: acks=all is left out.
            load.check_neighbours(5, ("fetch", "metadata", "heartbeat"))
            assert len(load.acknowledged) <= acknowledged + 4, "something was acknowledged that no disk has"
        finally:
            faults.hang = 0
        eventually(lambda: len(load.acknowledged) > acknowledged + 50, "it goes on")


@case("when every 50th read of a topic's segments fails, its readers get an error that they retry, and nothing is lost", alone=True)
def _(ctx):
    broker, faults = broker_with_faults(ctx, settings={"tarry.log.tail.bytes": 65536, "group.initial.rebalance.delay.ms": 0,
                                                       "log.segment.bytes": 1 << 20})
    with Load(broker, "failing reads") as load:
        eventually(lambda: len(load.acknowledged) > 300, "some megabytes of values")
        faults.part = b"/logs/values-0/"
        faults.fail_every = 50
        reads = []

        def read_again_and_again():
            with broker.client() as client:
                while faults.fail_every:
                    # Our own work would delay the neighbours.
                    reads.append(load.everything(client, "values", check_crc=False))
                    time.sleep(0.05)

        reader = threading.Thread(target=read_again_and_again)
        reader.start()
        try:
            load.check_neighbours(2, ("produce", "fetch", "metadata", "heartbeat"))
            eventually(lambda: faults.failed >= 3, "reads that fail", within=20)
        finally:
            faults.fail_every = 0
            reader.join(40)
        print(f"             failing reads: {faults.failed} of {faults.reads}, which clients have met {sum(failed for _, failed in reads)} times")
        assert all(max(values.values()) == 1 for values, _ in reads)


@case("a clock that is set an hour ahead or back makes no delayed record early, loses none and delivers none twice", alone=True)
def _(ctx):
    broker, faults = broker_with_faults(ctx, settings={"group.initial.rebalance.delay.ms": 0})
    wall = Wall(faults)
    everybody = ("produce", "fetch", "metadata", "heartbeat")
    with Load(broker, "a clock that is set", wall) as load:
        wall.shift(-1)
        load.check_neighbours(1.5, everybody)
        assert broker.pending("delayed"), "nothing waits that was due by the clock before"
        wall.shift(0)
        load.check_neighbours(1.5, everybody)
        wall.shift(1)
        load.check_neighbours(1.5, everybody)
        # What was accepted by the clock that was ahead is due in an hour.
        wall.shift(0)
        time.sleep(1)
        assert broker.pending("delayed"), "nothing waits that is due in an hour"
        wall.shift(1)
    assert "clock" in broker.log(), "the log does not say that the clock was set"


PEERS = 200


def big_fetch(client, topic):
    return client.header(wire.FETCH, 11) + client.fetch_body(topic, 0, max_wait=100)


@case("two hundred peers that stall in the middle of a request or an answer disturb nobody, and are closed", alone=True)
def _(ctx):
    broker = ctx.broker(settings={"tarry.connection.write.stall.ms": 2000, "connections.max.idle.ms": 3000, "group.initial.rebalance.delay.ms": 0})
    with broker.client() as client:
        client.create_topic("big")
        for _ in range(16):
            client.produce("big", [wire.record("x" * 500_000)])
        fetch = big_fetch(client, "big")
    with Load(broker, "stalled peers") as load, contextlib.ExitStack() as held:
        for number in range(PEERS):
            peer = held.enter_context(socket.socket())
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.connect(broker.address)
            # Each second one stops in the middle of a request, the others do not read.
            peer.sendall(wire.i32(len(fetch)) + (fetch if number % 2 else fetch[:-5]))
        load.check_neighbours(1.5, ("produce", "fetch", "metadata", "heartbeat"))
        # While the peers hold their ends open.
        eventually(lambda: open_connections(broker) <= load.open_before + 8, "the stalled connections are closed", within=15)


@case("two hundred peers that end their streams with requests in flight get their answers, disturb nobody, and are closed", alone=True)
def _(ctx):
    broker = ctx.broker(settings={"group.initial.rebalance.delay.ms": 0})
    with broker.client() as client:
        client.create_topic("big")
        for _ in range(4):
            client.produce("big", [wire.record("x" * 100_000)])
        fetch, wait = big_fetch(client, "big"), client.header(wire.FETCH, 11) + client.fetch_body("big", 4, max_wait=1000)
    with Load(broker, "half-closed peers") as load, contextlib.ExitStack() as held:
        peers = [held.enter_context(socket.create_connection(broker.address, timeout=20)) for _ in range(PEERS)]
        for peer in peers:
            # The second of them is parked when the stream ends.
            peer.sendall(wire.i32(len(fetch)) + fetch + wire.i32(len(wait)) + wait)
            peer.shutdown(socket.SHUT_WR)
        load.check_neighbours(1.5, ("produce", "fetch", "metadata", "heartbeat"))
        for peer in peers:
            got = 0
            while piece := peer.recv(1 << 20):
                got += len(piece)
            assert got > 400_000, f"{got} bytes of two answers"
