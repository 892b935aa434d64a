"""Bytes that no well-meaning client sends. Each ends its own connection or gets its error code,
while a healthy client goes on beside it and notices nothing."""

import os
import socket
import struct
import threading
import time

import compression
import wire
from harness import HealthyClient, case, eventually


def raw(broker, timeout=20):
    connection = socket.create_connection(broker.address, timeout=timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def check_ended(connection, within=10):
    """The broker closes: we read its end of file, or a reset."""
    connection.settimeout(within)
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    except socket.timeout:
        raise AssertionError(f"the connection is open {within} s later") from None


def frame(message):
    return wire.i32(len(message)) + message


def header(key, version, correlation=1, client=b"hostile"):
    return wire.i16(key) + wire.i16(version) + wire.i32(correlation) + wire.i16(len(client)) + client


def metadata_array(count):
    return frame(header(wire.METADATA, 1) + wire.i32(count))


def check_told(broker, connection, before, words="", after="it"):
    """What the log says since its line `before` is one line with these words and that peer's address."""
    peer = "%s:%d" % connection.getsockname()[:2]
    eventually(lambda: broker.log().count("\n") > before, f"a log line about {peer}, after {after}", within=5)
    lines = broker.log().splitlines()[before:]
    assert len(lines) == 1 and f"connection from {peer} ended: " in lines[0] and words in lines[0], \
        f"after {after}: not one line about {peer} with {words!r}: {lines}"


ENDING = {  # What is sent: nothing of it is a frame or a request that a broker knows.
    "2 GiB claimed": wire.i32(0x7FFFFFFF) + b"x" * 100,
    "a size just above socket.request.max.bytes": wire.i32(104857601) + b"x",
    "a negative length": wire.i32(-1) + b"x" * 20,
    "the least length": wire.i32(-(1 << 31)),
    "a length of zero": wire.i32(0),
    "a truncated header": frame(wire.i16(3) + wire.i16(1) + b"\0\0"),
    "a client id longer than the frame": frame(wire.i16(3) + wire.i16(1) + wire.i32(1) + wire.i16(30000) + b"x"),
    "an array of 10^9 topics": metadata_array(10**9),
    "a compact array of 10^9 topics": frame(header(wire.METADATA, 12) + b"\0" + wire.uvarint(10**9)),
    "a varint that never ends": frame(header(wire.METADATA, 12) + b"\xff" * 30),
    "a produce request that is cut": frame(header(wire.PRODUCE, 8) + wire.string(None) + wire.i16(-1)),
    "records longer than the frame": frame(header(wire.PRODUCE, 8) + wire.string(None) + wire.i16(-1) + wire.i32(1000)
                                           + wire.i32(1) + wire.string("t") + wire.i32(1) + wire.i32(0) + wire.i32(10**9)),
    "an unknown key": frame(header(999, 0)),
    "a negative key": frame(header(-1, 0)),
    "a version above ours": frame(header(wire.METADATA, 99) + wire.i32(0)),
    "a negative version": frame(header(wire.METADATA, -1) + wire.i32(0)),
    "HTTP": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "a TLS hello": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "an old record format": frame(header(wire.PRODUCE, 2) + bytes(40)),
}


@case("bytes that are not a frame, or not a known request, end only that connection", any_broker=True)
def _(ctx):
    broker = ctx.broker()
    with HealthyClient(broker, ctx.topic("healthy")):
        for what, data in ENDING.items():
            with raw(broker) as connection:
                connection.sendall(data)
                try:
                    check_ended(connection)
                except AssertionError as still:
                    raise AssertionError(f"{what}: {still}") from None


@case("each connection that is ended in this way is one line in the log")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        client.create_topic(ctx.topic())
    first = broker.log().count("\n")
    for what, data in ENDING.items():
        before = broker.log().count("\n")
        with raw(broker) as connection:
            connection.sendall(data)
            check_ended(connection)
            check_told(broker, connection, before, after=what)
    # None of them was told once more a little later.
    assert broker.log().count("\n") == first + len(ENDING), broker.log().splitlines()[first:]


@case("ten thousand bytes of garbage, fifty times, end only their own connections, with at most one log line each", any_broker=True)
def _(ctx):
    import random
    broker, seed = ctx.broker(), int.from_bytes(os.urandom(4), "big")
    print(f"             garbage of seed {seed}")
    chance = random.Random(seed)
    with HealthyClient(broker, ctx.topic("healthy")):
        first = broker.log().count("\n")
        for _ in range(50):
            with raw(broker) as connection:
                try:
                    # The size is believable, so that what stands in the frame is looked at.
                    body = chance.randbytes(10_000)
                    connection.sendall(frame(wire.i16(chance.choice([0, 1, 2, 3, 18, 19, 20, 22, 32])) + wire.i16(chance.randrange(14)) + body))
                    connection.sendall(chance.randbytes(10_000))
                    connection.shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # Ended already.
                check_ended(connection, 20)
        # Of each kind of mistake there are 20 lines in ten seconds, from each shard.
        # What a client sent may be a line end to Python.
        told = [line for line in broker.log().split("\n")[first:] if line]
        peers = [line.split("connection from ")[1].split(" ended: ")[0] for line in told]
        assert ctx.options.against or 20 <= len(told) <= 50 and len(set(peers)) == len(peers), told


@case("half a frame and then silence ends by connections.max.idle.ms with a line in the log; a silent connection ends without one")
def _(ctx):
    broker = ctx.broker(settings={"connections.max.idle.ms": 1500})
    with HealthyClient(broker, ctx.topic("healthy")), raw(broker) as half, raw(broker) as silent, raw(broker) as dripping:
        half.sendall(wire.i32(1000) + header(wire.METADATA, 1)[:9])
        started, before = time.monotonic(), broker.log().count("\n")
        check_ended(half)
        check_ended(silent)
        assert time.monotonic() - started >= 1.0, "it was not idle for that long"
        check_told(broker, half, before, "in the middle of a request")
        dripping.close()


@case("a client that never reads its answers is disconnected with a line in the log, and the memory stays bounded")
def _(ctx):
    broker = ctx.broker(settings={"tarry.connection.write.stall.ms": 2000})
    topic = ctx.topic("big")
    with HealthyClient(broker, ctx.topic("healthy")):
        with broker.client() as client:
            client.create_topic(topic)
            for _ in range(20):
                client.produce(topic, [wire.record(os.urandom(50_000).hex()) for _ in range(5)])
            before, lines = broker.rss_mib(), broker.log().count("\n")
            one = client.header(wire.FETCH, 11) + client.fetch_body(topic, 0)
        with raw(broker) as greedy:
            greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            greedy.settimeout(1)
            sent, end = 0, time.monotonic() + 15
            closed = False
            while time.monotonic() < end and not closed:
                try:
                    greedy.sendall(frame(one) * 20)
                    sent += 20
                except socket.timeout:
                    pass
                except ConnectionError:
                    closed = True
            grown = broker.rss_mib() - before
            assert closed, f"open after 15 s and {sent} requests"
            assert grown < 200, f"{grown:.0f} MiB more after {sent} unread answers of 10 MB"
            check_told(broker, greedy, lines, "did not read its responses")


@case("connections that come and go at once leave nothing behind")
def _(ctx):
    broker = ctx.broker()
    with HealthyClient(broker, ctx.topic("healthy")):
        files = lambda: len(os.listdir(f"/proc/{broker.process.pid}/fd"))
        before = files()
        for turn in range(300):
            connection = raw(broker)
            if turn % 3 == 1:
                connection.sendall(b"\0\0")
            if turn % 3 == 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # A reset.
            connection.close()
        eventually(lambda: files() <= before + 2, "the sockets are closed")


def refusal(client, version, topic, data):
    """(error, error_message) of a Produce in one of the versions that carry a message: 8 to 12."""
    if version < 9:
        result = client.produce(topic, data, check=False)
        return result.error, result.message
    one, tags = wire.uvarint(2), b"\0"
    answer = client.request(wire.PRODUCE, version, wire.compact(None) + wire.i16(-1) + wire.i32(30000) + one + wire.compact(topic)
                            + one + wire.i32(0) + wire.compact(data) + tags + tags + tags)
    answer.uvarint(), answer.compact_string(), answer.uvarint(), answer.i32()
    error, _, _, _ = answer.i16(), answer.i64(), answer.i64(), answer.i64()
    answer.compact_array(lambda: (answer.i32(), answer.compact_string(), answer.tags()))
    return error, answer.compact_string()


@case("an invalid batch gets Kafka's error code and a message, and its connection stays usable", any_broker=True)
def _(ctx):
    broker = ctx.broker()
    records = [wire.record("a"), wire.record("b")]
    invalid = (wire.CORRUPT_MESSAGE, wire.INVALID_RECORD)
    tolerated = invalid
    if ctx.options.against:
        invalid += (-1,)  # Kafka has no code of its own for some of it,
        tolerated = (*invalid, 0)  # and passes over what is no whole batch.
    with HealthyClient(broker, ctx.topic("healthy")), broker.client() as client:
        topic = client.create_topic(ctx.topic(), max_message_bytes=100_000)
        good = wire.batch(records)
        wrong = {
            "a wrong CRC": (wire.batch(records, crc=12345), invalid),
            "a count that is too high": (wire.batch(records, count=3, last_delta=2), invalid),
            "a count that is too low": (wire.batch(records, count=1, last_delta=0), invalid),
            "a count of 10^9": (wire.batch(records, count=10**9, last_delta=10**9 - 1), invalid),
            "a negative count": (wire.batch(records, count=-2), invalid),
            "no record at all": (wire.batch([]), invalid),
            "a last offset that is not the count's": (wire.batch(records, last_delta=7), invalid),
            "a codec that nobody has": (wire.batch(records, attributes=6), (*invalid, wire.UNSUPPORTED_COMPRESSION)),
            "two batches where one is allowed": (good + wire.batch(records), invalid),
            "bytes behind the batch": (good + b"x" * 7, tolerated),
            "half a batch": (good[:-5], tolerated),
            "a batch's length that is negative": (good[:8] + wire.i32(-1) + good[12:], (*invalid, wire.MESSAGE_TOO_LARGE)),
            "nothing": (b"", tolerated),
            "a control batch": (wire.batch(records, attributes=0x20), invalid),
            "larger than max.message.bytes": (wire.batch([wire.record("x" * 120_000)]), (wire.MESSAGE_TOO_LARGE,)),
        }
        for codec, name in list(compression.NAMES.items())[1:]:
            wrong[f"{name} that is none"] = (wire.batch(records, codec, packed=b"this was never compressed" * 3), invalid)
            wrong[f"{name} that is cut"] = (
                wire.batch(records, codec, packed=compression.compress(codec, b"x" * 500 + os.urandom(500))[:-9]), invalid)
            wrong[f"{name} of garbage records"] = (wire.batch(records, codec, packed=compression.compress(codec, os.urandom(500))), invalid)
        if not ctx.options.against:  # Others know nothing of these headers.
            for headers in ({"x_delay": "soon"}, {"x_deliver_at": "tomorrow"}, {"x_schedule_action": "cancel"}):
                wrong[f"the headers {headers}"] = (wire.batch([wire.record("a"), wire.record("b", **headers)]), invalid)
        end = client.end_offset(topic)
        for what, (data, codes) in wrong.items():
            # Kafka leaves the message out where it has nothing to say but the code.
            for version in (8,) if ctx.options.against else range(8, 13):
                error, message = refusal(client, version, topic, data)
                assert error in codes, f"{what}, version {version}: error {error} ({message}) is none of {codes}"
                assert message or ctx.options.against, f"{what}, version {version}: error {error} without a message"
        end = client.end_offset(topic) if ctx.options.against else end
        assert client.produce(topic, good).base_offset == end, "something wrong was stored"


@case("a small batch that decompresses to gigabytes is refused, in every codec, with bounded memory")
def _(ctx):
    broker = ctx.broker()
    with HealthyClient(broker, ctx.topic("healthy"), longest=10), broker.client(timeout=60) as client:
        topic = client.create_topic(ctx.topic(), max_message_bytes=64 << 20)
        sizes = {compression.GZIP: 1 << 30, compression.SNAPPY: 1 << 26, compression.LZ4: 1 << 28, compression.ZSTD: 2 << 30}
        before = broker.rss_mib()
        for codec, size in sizes.items():
            packed = compression.bomb(codec, size)
            for headers in ({}, {"x_delay": "1s"}):
                started = time.monotonic()
                result = client.produce(topic, wire.batch([wire.record("v", **headers)], codec, packed=packed), check=False)
                what = f"{compression.NAMES[codec]}, {len(packed)} bytes for {size}"
                assert result.error != 0 and result.message, f"{what}: error {result.error}, message {result.message!r}"
                assert time.monotonic() - started < 20, what
        # It may keep a pool, but not what was unpacked.
        assert broker.rss_mib() - before < 400, f"{broker.rss_mib() - before:.0f} MiB more"
        assert client.end_offset(topic) == 0


@case("while one client sends bombs, its neighbours on the shard are answered as before", alone=True)
def _(ctx):
    broker = ctx.broker(shards=1)
    packed = compression.bomb(compression.ZSTD, 100 << 20)  # Within the limit, so all of it is unpacked.
    batch = wire.batch([wire.record("v")], compression.ZSTD, packed=packed)
    going = True

    def bombard():
        with broker.client() as hostile:
            while going:
                hostile.produce("bombs", batch, check=False)

    with broker.client() as client:
        client.create_topic("bombs", partitions=1)
        client.create_topic("neighbour", partitions=1)

        def median():
            times = []
            for _ in range(40):
                started = time.monotonic()
                client.produce("neighbour", [wire.record("v")])
                times.append(time.monotonic() - started)
                time.sleep(0.01)
            return sorted(times)[20]

        alone = median()
        threads = [threading.Thread(target=bombard, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        beside = median()
        going = False
        for thread in threads:
            thread.join(60)
        # A bomb takes 30 ms and more to unpack, one after the other all the time; on a busy machine
        # everything takes longer.
        assert beside < max(0.02, 15 * alone), f"median {beside * 1000:.1f} ms, alone {alone * 1000:.1f} ms"


@case("an invalid topic name is INVALID_TOPIC_EXCEPTION for clients that create or ask, and an unknown topic for producers", any_broker=True)
def _(ctx):
    broker = ctx.broker()
    with HealthyClient(broker, ctx.topic("healthy")), broker.client() as client:
        for name in ("", ".", "..", "a b", "a/b", "../../etc/passwd", "ü", "x" * 250, "nul\0"):
            try:
                client.create_topic(name)
                raise AssertionError(f"{name!r} was created")
            except wire.KafkaError as error:
                assert error.code == wire.INVALID_TOPIC, f"{name!r}: {error}"
            if name:  # By auto-creation too.
                for create in (True, False):
                    found = client.metadata(name, create=create)
                    others = (wire.UNKNOWN_TOPIC,) if ctx.options.against else ()  # Some do not look at the name.
                    assert found[name][0] in (wire.INVALID_TOPIC, *others), f"{name!r}: {found}"
            # As Kafka answers it: a topic of such a name is not there.
            result = client.produce(name, [wire.record("v")], check=False)
            assert result.error == wire.UNKNOWN_TOPIC, f"{name!r}: {result}"


@case("partitions and topics that are not there get their error codes", any_broker=True)
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        good = wire.batch([wire.record("a")])
        assert client.produce(topic, good, partition=1, check=False).error == wire.UNKNOWN_TOPIC
        assert client.produce(topic, good, partition=-1, check=False).error == wire.UNKNOWN_TOPIC
        assert client.produce(ctx.topic("nobody"), good, check=False).error == wire.UNKNOWN_TOPIC
        assert client.fetch(ctx.topic("nobody"), 0, max_wait=0).error == wire.UNKNOWN_TOPIC
        assert client.delete_topic(ctx.topic("nobody"))[0] == wire.UNKNOWN_TOPIC
        assert client.metadata(ctx.topic("nobody")).popitem()[1][0] == wire.UNKNOWN_TOPIC
        for count in (0, -5, 10**9):
            try:
                client.create_topic(ctx.topic("many"), partitions=count)
                raise AssertionError(f"a topic with {count} partitions was created")
            except wire.KafkaError:
                pass


@case("bytes that are not HTTP, or too many of them, end only that connection to the admin port")
def _(ctx):
    broker = ctx.broker()
    for data in (b"\x16\x03\x01garbage\r\n\r\n", b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
                 b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
                 b"DELETE /delayed/a/b HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"POST /status HTTP/1.1\r\nHost: x\r\n\r\n"):
        with socket.create_connection(broker.admin, timeout=20) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # Ended already.
            check_ended(connection, 40)
        assert broker.get("/status")["state"]
