"""The traps of Kafka's protocol that brokers fell into before us, and what holds for every
connection."""

import time

import compression
import wire
from harness import case, eventually, run
from node_clients import errand
from test_clients import check_delivery, confluent_consume, kafka_python_consume, kcat_produce, kcat_records

FIND_COORDINATOR = 10

SERVED = {  # Key: the versions that are advertised, exactly.
    18: (0, 4), 3: (0, 12), 0: (0, 12), 1: (4, 17), 2: (1, 10), 22: (0, 5), 19: (2, 7), 20: (1, 6), 37: (0, 3),
    21: (0, 2), 32: (1, 4), 33: (0, 2), 44: (0, 1), 60: (0, 2), 75: (0, 0),
    8: (2, 9), 9: (1, 9), 10: (0, 6), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5),
    42: (0, 2), 47: (0, 0), 17: (0, 1), 36: (0, 2), 29: (1, 3), 30: (1, 3), 31: (1, 3), 50: (0, 0), 51: (0, 0),
    48: (0, 1), 49: (0, 1),
}


@case("ApiVersions above ours is answered in version 0 with error 35 and all keys", any_broker=True)
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        for version in (5, 99, 32767):
            error, keys, answer = client.api_versions(version)
            assert error == wire.UNSUPPORTED_VERSION
            assert 18 in keys and keys[18][1] >= 3
            assert answer.at == len(answer.data), "something stands behind the body of version 0"
        # The same connection goes on with what it learned.
        for version in range(0, 5):
            error, keys, _ = client.api_versions(version)
            assert error == 0 and 0 in keys


@case("every key and version that is advertised is one that is served, and no other")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        for version in range(5):
            assert client.api_versions(version)[1] == SERVED, f"in version {version}"


@case("Produce is advertised from version 0, so librdkafka compresses; below 3 the connection ends", any_broker=True)
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        keys = client.api_versions(3)[1]
        assert keys[wire.PRODUCE][0] == 0
        for codec, name in compression.NAMES.items():
            topic = client.create_topic(ctx.topic(name))
            kcat_produce(broker, topic, ["a line that is the same every time"] * 100, "-z", name)
            found = client.everything(topic)
            if codec == compression.LZ4 and FIND_COORDINATOR not in keys:
                continue  # librdkafka takes that for a broker of before lz4, and does not compress.
            # A batch that does not get smaller librdkafka sends as it is: one with a line alone may be such.
            packed = {each.codec for each in found if each.count > 10}
            assert packed == {codec}, f"{name} arrived as {[(each.count, each.codec) for each in found]}"
        old = wire.i16(-1) + wire.i32(1000) + wire.i32(0)
        client.send(wire.PRODUCE, 2, old)
        try:
            client.receive(wire.PRODUCE, 2)
            raise AssertionError("Produce version 2 was answered")
        except wire.ConnectionEnded:
            pass


@case("the records of a Fetch answer are never null, in every version, also with an error", any_broker=True)
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.produce(topic, [wire.record("one")])
        for version in range(4, 18):
            at_end = client.fetch(topic, 1, version=version, max_wait=0)
            assert (at_end.error, at_end.records) == (0, b""), f"version {version}, at the end: {at_end}"
            beyond = client.fetch(topic, 77, version=version, max_wait=0)
            assert (beyond.error, beyond.records) == (wire.OFFSET_OUT_OF_RANGE, b""), f"version {version}: {beyond}"
            nowhere = client.fetch(topic, 0, partition=9, version=version, max_wait=0)
            assert (nowhere.error, nowhere.records) == (wire.UNKNOWN_TOPIC, b""), f"version {version}: {nowhere}"
            there = client.fetch(topic, 0, version=version)
            assert there.batches()[0].records[0].value == b"one"


@case("batches as clients really send them are taken and put right", any_broker=True)
def _(ctx):
    broker = ctx.broker()
    stamp = 1_700_000_000_000
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        records = [wire.record("a", timestamp=stamp), wire.record("b", timestamp=stamp + 7)]
        plain = b"".join(wire.encode_record(rec, i, i * 7) for i, rec in enumerate(records))
        seen = {
            "leader epoch 0": wire.batch(records, leader_epoch=0),
            "leader epoch -1": wire.batch(records, leader_epoch=-1),
            "sequence 0 without a producer id": wire.batch(records, producer=(-1, -1, 0)),
            "maximal timestamp -1": wire.batch(records, max_timestamp=-1),
            "raw snappy": wire.batch(records, compression.SNAPPY),
            "snappy in xerial's frame": wire.batch(records, compression.SNAPPY,
                                                   packed=compression.snappy_in_xerial_frame(plain)),
        }
        for what, sent in seen.items():
            result = client.produce(topic, sent, check=False)
            assert result.error == 0, f"{what}: error {result.error} {result.message}"
        found = client.everything(topic)
        assert [each.base_offset for each in found] == list(range(0, 2 * len(seen), 2))
        for each, what in zip(found, seen):
            assert each.crc_ok and each.max_timestamp == stamp + 7, f"{what}: maximal timestamp {each.max_timestamp}"
            assert [rec.value for rec in each.records] == [b"a", b"b"], what
            assert each.leader_epoch >= 0, f"{what}: leader epoch {each.leader_epoch}"


@case("a batch of n delayed records is answered with base offset -n, also when it is sent again")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.produce(topic, [wire.record("before")])
        producer, epoch = client.init_producer_id()
        for count, sequence in ((1, 0), (3, 1), (5, 4)):
            sent = wire.batch([wire.record(f"{count}.{n}", x_delay="2s") for n in range(count)],
                              producer=(producer, epoch, sequence))
            for _ in range(3):
                result = client.produce(topic, sent)
                assert (result.base_offset, result.record_errors) == (-count, []), result
        assert client.end_offset(topic) == 1, "a pending record took an offset"
        assert len(broker.pending(topic)) == 9
        values = [rec.value.decode() for rec in client.consume(topic, 10)]
        assert values == ["before", "1.0", "3.0", "3.1", "3.2", "5.0", "5.1", "5.2", "5.3", "5.4"], values


def leave_holes(broker, client, topic, codec):
    """Mixed batches whose delayed records leave holes at the head, in the middle and at the tail; the values in order,
    once all was delivered."""
    shapes = ["d0d1d", "0dd1", "d", "0", "ddd01"]
    base, now, late = 0, [], []
    for index, shape in enumerate(shapes):
        records = []
        for at, letter in enumerate(shape):
            text = f"{index}.{at}"
            records.append(wire.record(text, x_delay="1500ms") if letter == "d" else wire.record(text))
            (late if letter == "d" else now).append(text)
        result = client.produce(topic, wire.batch(records, codec))
        if set(shape) == {"d"}:
            assert result.base_offset == -len(shape), f"{topic} {shape}: {result}"
            continue
        assert result.base_offset == base, f"{topic} {shape}: {result.base_offset} is not {base}"
        base += len(shape)
    assert client.end_offset(topic) == base
    found = client.everything(topic)
    assert all(each.count == len(each.records) > 0 for each in found), "an empty batch stalls some clients"
    assert {each.codec for each in found} == {codec}
    assert [rec.value.decode() for each in found for rec in each.records] == now
    client.consume(topic, 1, offset=base)
    eventually(lambda: not broker.pending(topic), "everything was delivered")
    found = [rec for each in client.everything(topic) for rec in each.records]
    assert [rec.value.decode() for rec in found] == now + late
    # Where they stand too: d0d1d, 0dd1, 0, ddd01, and behind them what was delivered.
    assert [rec.offset for rec in found] == [1, 3, 5, 8, 9, 13, 14, *range(15, 24)]
    return now + late


@case("the delayed records of a mixed batch leave holes that kcat, confluent-kafka and kafka-python read over")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        for codec, name in compression.NAMES.items():
            topic = client.create_topic(ctx.topic(name))
            everything = leave_holes(broker, client, topic, codec)
            count = len(everything)
            assert [row["value"] for row in kcat_records(broker, topic, count)] == everything
            assert [m.value().decode() for m in confluent_consume(broker, topic, 1, count)] == everything
            if codec in (compression.NONE, compression.GZIP):  # Others want packages of their own there.
                assert [m.value.decode() for m in kafka_python_consume(broker, topic, count)] == everything


@case("kafkajs and @platformatic/kafka read over these holes, and are at the right offsets")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        # Other codecs want packages of their own there, or a newer Node.js.
        readers = {compression.NONE: ("kafkajs", "platformatic"), compression.GZIP: ("kafkajs", "platformatic"),
                   compression.SNAPPY: ("platformatic",), compression.LZ4: ("platformatic",)}
        for codec, programs in readers.items():
            topic = client.create_topic(ctx.topic(compression.NAMES[codec]))
            everything = leave_holes(broker, client, topic, codec)
            offsets = [rec.offset for each in client.everything(topic) for rec in each.records]
            for program in programs:
                rows = errand(program, "fetch", broker, topic, count=len(everything))["records"]
                what = f"{program}, {compression.NAMES[codec]}: {rows}"
                assert [row["value"] for row in rows] == everything, what
                assert [int(row["offset"]) for row in rows] == offsets, what


@case("answers come in the order of the requests, also when the first of them waits", any_broker=True)
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        waiting = client.send(wire.FETCH, 11, client.fetch_body(topic, 0, max_wait=700))
        produced = [client.send(wire.PRODUCE, 8, client.produce_body(topic, 0, wire.batch([wire.record(str(n))])))
                    for n in range(3)]
        listed = client.send(wire.API_VERSIONS, 0, b"")
        assert client.receive(wire.FETCH, 11).correlation == waiting
        for offset, sent in enumerate(produced):
            answer = client.receive(wire.PRODUCE, 8)
            assert answer.correlation == sent
            assert client.read_produced(answer).base_offset == offset
        assert client.receive(wire.API_VERSIONS, 0).correlation == listed


@case("no request behind a Produce of three thousand batches on its connection overtakes one of them")
def _(ctx):
    broker = ctx.broker()
    topic, many = ctx.topic(), 3000
    with broker.client() as client:
        client.create_topic(topic)
        one = wire.batch([wire.record("v")])
        body = (wire.string(None) + wire.i16(-1) + wire.i32(30_000) + wire.i32(1) + wire.string(topic) + wire.i32(many)
                + (wire.i32(0) + wire.i32(len(one)) + one) * many)
        client.send(wire.PRODUCE, 8, client.produce_body(topic, 0, one))
        client.send(wire.PRODUCE, 8, body)
        for _ in range(3):
            client.send(wire.PRODUCE, 8, client.produce_body(topic, 0, one))
        assert client.read_produced(client.receive(wire.PRODUCE, 8)).base_offset == 0
        assert client.read_produced(client.receive(wire.PRODUCE, 8)).base_offset == 1
        for n in range(3):
            assert client.read_produced(client.receive(wire.PRODUCE, 8)).base_offset == 1 + many + n


@case("acks=0 gets no answer, and its record is stored", any_broker=True)
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        for number in range(5):
            client.send(wire.PRODUCE, 8, client.produce_body(topic, 0, wire.batch([wire.record(str(number))]), acks=0))
        sent = client.send(wire.API_VERSIONS, 0, b"")
        assert client.receive(wire.API_VERSIONS, 0).correlation == sent
        assert [rec.value for rec in client.consume(topic, 5)] == [b"0", b"1", b"2", b"3", b"4"]


@case("a Fetch waits until there are enough bytes, or until its time is over", any_broker=True)
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client, broker.client() as other:
        topic = client.create_topic(ctx.topic())
        started = time.monotonic()
        assert client.fetch(topic, 0, max_wait=400).records == b""
        assert 0.39 <= time.monotonic() - started < 10
        client.send(wire.FETCH, 11, client.fetch_body(topic, 0, max_wait=20000, min_bytes=3000))
        for _ in range(3):
            other.produce(topic, [wire.record("x" * 1000)])
        started = time.monotonic()
        found = client.read_fetched(client.receive(wire.FETCH, 11)).batches()
        assert sum(each.size for each in found) >= 3000
        assert time.monotonic() - started < 15


@case("an idempotent producer's batch that is sent again is stored once and answered the same", any_broker=True)
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        producer, epoch = client.init_producer_id()
        sent = [wire.batch([wire.record(f"{n}a"), wire.record(f"{n}b")], producer=(producer, epoch, 2 * n)) for n in range(5)]
        assert [client.produce(topic, each).base_offset for each in sent] == [0, 2, 4, 6, 8]
        assert [client.produce(topic, each).base_offset for each in sent] == [0, 2, 4, 6, 8]
        assert client.end_offset(topic) == 10
        gap = client.produce(topic, wire.batch([wire.record("gap")], producer=(producer, epoch, 12)), check=False)
        assert gap.error == wire.OUT_OF_ORDER_SEQUENCE


@case("producer states and ids outlive kill -9: duplicates stay duplicates, no id comes twice")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        ids = [client.init_producer_id() for _ in range(3)]
        producer, epoch = ids[0]
        sent = [
            wire.batch([wire.record("now")], producer=(producer, epoch, 0)),
            wire.batch([wire.record("delayed", x_delay="1h")] * 2, producer=(producer, epoch, 1)),
            wire.batch([wire.record("mixed"), wire.record("delayed", x_delay="1h")], producer=(producer, epoch, 3)),
        ]
        before = [client.produce(topic, each).base_offset for each in sent]
    assert before == [0, -2, 1], before
    for shards in (2, 1, 3):
        broker.restart(shards)
        with broker.client() as client:
            assert [client.produce(topic, each).base_offset for each in sent] == before
            assert client.end_offset(topic) == 3
            assert len(broker.pending(topic)) == 3
            ids += [client.init_producer_id() for _ in range(3)]
    assert len({producer for producer, _ in ids}) == len(ids), f"a producer id came twice: {ids}"


@case("the last five batches of a producer get their first answers after restarts too, also with other shards; older ones get 45")
def _(ctx):
    for name, settings in (("from the journal", {"tarry.checkpoint.interval.ms": 3_600_000}),
                           ("from checkpoints", {"tarry.checkpoint.interval.ms": 200})):
        broker = ctx.broker(settings=settings)
        with broker.client() as client:
            topic = client.create_topic(ctx.topic(), partitions=4)
            producer, epoch = client.init_producer_id()
            sent, answers, sequence = [], [], 0

            def send(*records):
                nonlocal sequence
                sent.append(wire.batch(list(records), producer=(producer, epoch, sequence)))
                sequence += len(records)
                given = {client.produce(topic, sent[-1], partition).base_offset for partition in range(4)}
                assert len(given) == 1, f"{name}, batch {len(sent) - 1}: {given}"
                answers.append(given.pop())

            now, delayed = wire.record("now"), wire.record("delayed", x_delay="1h")
            for records in ([now], [now, now], [delayed, delayed], [now], [delayed], [now, delayed, now], [now, now], [delayed] * 3):
                send(*records)
            assert answers == [0, 1, -2, 3, -1, 4, 7, -3], answers
        if "checkpoints" in name:
            time.sleep(1.0)
        # Killed, stopped in order, and with the partitions on other shards than before.
        for shards, kill in ((2, True), (1, True), (3, False), (2, False), (3, True)):
            broker.restart(shards, kill=kill)
            what = f"{name}, {shards} shards, {'killed' if kill else 'stopped'}"
            with broker.client() as client:
                for partition in range(4):
                    for at in range(len(sent)):
                        result = client.produce(topic, sent[at], partition, check=False)
                        if at >= len(sent) - 5:
                            assert (result.error, result.base_offset) == (0, answers[at]), f"{what}, batch {at}: {result}, not {answers[at]}"
                        else:
                            assert result.error == wire.OUT_OF_ORDER_SEQUENCE, f"{what}, batch {at}, which is too old: {result}"
                ends = [client.end_offset(topic, partition) for partition in range(4)]
                assert len(set(ends)) == 1 and len(broker.pending(topic)) == 4 * 7, f"{what}: {ends}, {len(broker.pending(topic))} pending"
                # One more, so that the oldest of the five is too old from now on.
                send(now)
                assert answers[-1] == ends[0], f"{what}: {answers[-1]} is not {ends[0]}"


@case("the segments of a stopped broker are Kafka's own format")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        for number in range(50):
            client.produce(topic, [wire.record(f"{number}")])
    assert broker.stop() == 0
    folder = broker.data / "logs" / f"{topic}-0"
    data = (folder / f"{0:020}.log").read_bytes()
    found = wire.parse_batches(data, check_crc=True)
    assert [each.base_offset for each in found] == list(range(50)) and all(each.crc_ok for each in found)
    assert sum(each.size for each in found) == len(data), "something stands behind the last batch"
    assert {file.name for file in folder.iterdir()} >= {f"{0:020}.index", f"{0:020}.timeindex", "partition.metadata"}
    said = run(broker.binary, "dump", "segment", folder / f"{0:020}.log").stdout
    assert "baseOffset: 49" in said and "isvalid: true" in said, said[-500:]
    broker.start()
    with broker.client() as client:
        assert client.end_offset(topic) == 50 and len(client.consume(topic, 50)) == 50
