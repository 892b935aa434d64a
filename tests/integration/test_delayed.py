"""What Tarry is for: records that wait. Never early, nothing lost, nothing twice, in order."""

import base64
import datetime
import http.client
import json
import pathlib
import urllib.parse

import compression
import wire
from harness import case, eventually, now_ms

HOUR = 3_600_000


def check_never_early(records, latest_ms):
    """Each came at or after its due time, and at most latest_ms after it."""
    for rec in records:
        late = rec.arrived - int(rec.header("x-scheduled-for"))
        assert late >= 0, f"{rec.value} came {-late:.1f} ms early"
        assert late <= latest_ms, f"{rec.value} came {late:.0f} ms late"


def values(records):
    return [rec.value.decode() for rec in records]


def text_time(ms, minutes_east=0):
    zone = datetime.timezone(datetime.timedelta(minutes=minutes_east))
    return datetime.datetime.fromtimestamp(ms / 1000, zone).isoformat(timespec="milliseconds")


# --- time ------------------------------------------------------------------------------------------


@case("no record is visible before its due millisecond, and each in its order after it", alone=True)
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        start = int(now_ms()) + 1500
        due = [start + step * 7 for step in range(300)]
        for first in range(10):
            client.produce(topic, [wire.record(str(stamp), x_deliver_at=stamp) for stamp in due[first::10]])
        assert now_ms() < start, "this machine is too slow for this test"
        waited = client.consume(topic, len(due))
    assert [int(rec.value) for rec in waited] == due
    for rec in waited:
        assert int(rec.header("x-scheduled-for")) == int(rec.value) == rec.timestamp
    check_never_early(waited, 5000)  # How late is measured by `tarry bench delayed`; a machine may pause.
    delayed = broker.get("/status")["delayed"]
    assert delayed["early_total"] == 0 and delayed["pending"] == 0


@case("every way to write a time or a delay means the same moment")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        at = int(now_ms()) + 2 * HOUR
        exact = {
            "epoch ms": str(at), "8 bytes": at.to_bytes(8, "big"), "UTC": text_time(at)[:-6] + "Z",
            "an offset": text_time(at, 330), "an offset in the west": text_time(at, -8 * 60),
        }
        for name, text in exact.items():
            client.produce(topic, [wire.record(name, x_deliver_at=text, x_schedule_id=name)])
        by_id = {row["id"]: row for row in broker.pending(topic)}
        for name in exact:
            assert by_id[name]["due_ms"] == at, f"{name}: {by_id[name]['due_ms']} is not {at}"
        delays = {
            "7200000": 2 * HOUR, "7200s": 2 * HOUR, "120m": 2 * HOUR, "2h": 2 * HOUR, "1h60m": 2 * HOUR, "1d": 24 * HOUR,
            "PT2H": 2 * HOUR, "PT1H30M": HOUR * 3 // 2, "P1DT1H": 25 * HOUR, "90000ms": 90_000,
        }
        for text, span in delays.items():
            sent = now_ms()
            client.produce(topic, [wire.record("v", x_delay=text, x_schedule_id=text)])
            took = now_ms()
            due = broker.get(f"/delayed/{topic}/{urllib.parse.quote(text)}")["due_ms"]
            assert sent + span - 1 <= due <= took + span + 1, f"{text}: due in {due - sent} ms"
        sent = now_ms()
        client.produce(topic, [wire.record("v", x_delay=(2 * HOUR).to_bytes(8, "big"), x_schedule_id="binary")])
        assert abs(broker.get(f"/delayed/{topic}/binary")["due_ms"] - sent - 2 * HOUR) < 2000


@case("a record that is due in the past or has no delay gets its offset at once")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        for codec in compression.NAMES:
            records = [wire.record("past", x_deliver_at="1700000000000"), wire.record("none", x_delay="0"),
                       wire.record("0s", x_delay="0s", other="kept"), wire.record("plain")]
            result = client.produce(topic, wire.batch(records, codec))
            assert result.base_offset == codec * 4
        got = client.consume(topic, 20)
    for codec in compression.NAMES:
        four = got[codec * 4 : codec * 4 + 4]
        assert values(four) == ["past", "none", "0s", "plain"]
        assert four[2].header("other") == "kept"
        assert all(rec.header("x-delay") is None and rec.header("x-deliver-at") is None for rec in four)


@case("an x-schedule-id alone schedules nothing and stays in the record")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        sent = wire.record("sent on", x_schedule_id="a", x_scheduled_for="1", x_schedule_handle="@old")
        assert client.produce(topic, [sent]).base_offset == 0
        got = client.consume(topic, 1)[0]
        assert got.headers == sent.headers
        assert broker.pending(topic) == []


@case("a topic's own delay applies to records without a header, and tarry.delay.enable=false ignores headers")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        slow = client.create_topic(ctx.topic("slow"), tarry_delay_ms=700)
        sent = now_ms()
        assert client.produce(slow, [wire.record("a"), wire.record("b")]).base_offset == -2
        got = client.consume(slow, 2)
        assert values(got) == ["a", "b"] and got[0].arrived - sent >= 700
        check_never_early(got, 5000)
        off = client.create_topic(ctx.topic("off"), tarry_delay_enable="false")
        record = wire.record("v", x_delay="nonsense", x_deliver_at="too")
        assert client.produce(off, [record]).base_offset == 0
        assert client.consume(off, 1)[0].headers == record.headers
        limited = client.create_topic(ctx.topic("limited"), tarry_delay_max_ms=60_000)
        assert client.produce(limited, [wire.record("v", x_delay="59s")]).base_offset == -1
        refused = client.produce(limited, [wire.record("v", x_delay="61s")], check=False)
        assert refused.error == wire.INVALID_RECORD and "61s" in refused.record_errors[0][1], refused


@case("the timestamp of a delivery is what tarry.delay.timestamp says")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        stamp = 1_700_000_000_000
        topics = {name: client.create_topic(ctx.topic(name), tarry_delay_timestamp=name)
                  for name in ("due", "original", "delivery")}
        for topic in topics.values():
            client.produce(topic, [wire.record("v", timestamp=stamp, x_delay="500ms")])
        got = {name: client.consume(topic, 1)[0] for name, topic in topics.items()}
        assert got["due"].timestamp == int(got["due"].header("x-scheduled-for"))
        assert got["original"].timestamp == stamp
        assert int(got["delivery"].header("x-scheduled-for")) <= got["delivery"].timestamp <= now_ms()


@case("a record that could not be delivered before x-expire-at is dropped")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        at = int(now_ms()) + 1500
        client.produce(topic, [wire.record("expired", x_deliver_at=at, x_expire_at=at + 200),
                               wire.record("kept", x_deliver_at=at, x_expire_at=at + HOUR)])
        broker.kill()
        eventually(lambda: now_ms() > at + 300, "it is past", pause=0.1)
        broker.start()
    with broker.client() as client:
        assert values(client.consume(topic, 1)) == ["kept"]
        eventually(lambda: not broker.pending(topic), "nothing is pending")
        assert client.end_offset(topic) == 1


# --- order -------------------------------------------------------------------------------------------


@case("equal due times leave in the order in which they arrived, in all codecs and mixed batches")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client, broker.client() as other:
        topic = client.create_topic(ctx.topic())
        at = int(now_ms()) + 2500
        expected, plain = [], 0
        for number in range(100):
            codec = number % 5
            names = [f"{number}.{n}" for n in range(3)]
            records = [wire.record(name, x_deliver_at=at) for name in names]
            if number % 4 == 0:
                records.insert(1, wire.record("plain"))
                plain += 1
            (client if number % 2 else other).produce(topic, wire.batch(records, codec))
            expected += names
        assert now_ms() < at, "this machine is too slow for this test"
        got = [rec for rec in client.consume(topic, 300 + plain) if rec.value != b"plain"]
    assert values(got) == expected
    offsets = [rec.offset for rec in got]
    assert offsets == sorted(set(offsets))
    check_never_early(got, 5000)


@case("records leave by due time, whatever order they arrived in")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        at = int(now_ms()) + 1500
        order = [7, 3, 9, 1, 8, 2, 6, 0, 5, 4]
        for n in order:
            client.produce(topic, [wire.record(str(n), x_deliver_at=at + n)])
        assert now_ms() < at
        assert values(client.consume(topic, 10)) == [str(n) for n in range(10)]


@case("delivery keeps key, value, other headers and partition, also null and empty ones")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), partitions=3)
        made = []
        for codec in compression.NAMES:
            for partition in range(3):
                rec = wire.Record(b"", None, [(b"a", b"1"), (b"x-delay", b"600ms"), (b"a", None), (b"", b"")])
                if partition == 1:
                    rec = wire.Record(None, b"", [(b"x-delay", b"600ms"), (b"z", bytes(range(256)))])
                if partition == 2:
                    rec = wire.Record(b"v" * 5000, b"k" * 300, [(b"before", b"1"), (b"x-delay", b"600ms"), (b"after", b"2")])
                client.produce(topic, wire.batch([rec], codec), partition)
                made.append((partition, rec))
        for partition in range(3):
            got = client.consume(topic, 5, partition)
            for rec, (_, sent) in zip(got, [each for each in made if each[0] == partition]):
                assert (rec.key, rec.value) == (sent.key, sent.value)
                theirs = [pair for pair in rec.headers if not pair[0].startswith(b"x-schedule")]
                assert theirs == [pair for pair in sent.headers if pair[0] != b"x-delay"]
                assert rec.header("x-scheduled-for") and rec.header("x-schedule-handle").startswith("@")


@case("a flood that is due in one millisecond is delivered completely, in batches that the topic allows", alone=True)
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), max_message_bytes=20000)
        at = int(now_ms()) + 4000
        for number in range(60):
            client.produce(topic, [wire.record(f"{number * 100 + n:05}" + "." * 90, x_deliver_at=at) for n in range(100)])
        assert now_ms() < at, "this machine is too slow for this test"
        got = client.consume(topic, 6000)
        assert [int(rec.value[:5]) for rec in got] == list(range(6000))
        check_never_early(got, 3000)
        assert max(each.size for each in client.everything(topic)) <= 20000
        assert all(each.producer[0] == -1 for each in client.everything(topic))


# --- cancel and replace -----------------------------------------------------------------------------


@case("the same x-schedule-id in a partition replaces the pending record; another partition has its own")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), partitions=2)
        client.produce(topic, [wire.record("first", x_delay="1h", x_schedule_id="id")])
        client.produce(topic, [wire.record("elsewhere", x_delay="1h", x_schedule_id="id")], 1)
        client.produce(topic, [wire.record("second", x_delay="800ms", x_schedule_id="id")])
        assert [(row["partition"], row["id"]) for row in broker.pending(topic)] == [(0, "id"), (1, "id")]
        got = client.consume(topic, 1)
        assert values(got) == ["second"] and got[0].header("x-schedule-id") == "id"
        assert [row["partition"] for row in broker.pending(topic)] == [1]
        # The last of several in one batch wins.
        batch = [wire.record(str(n), x_delay="800ms", x_schedule_id="same") for n in range(4)]
        client.produce(topic, batch)
        assert values(client.consume(topic, 1, offset=1)) == ["3"]
        assert client.end_offset(topic) == 2


@case("x-schedule-action: cancel drops the pending record, is never visible, and may name an unknown id")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        for codec in compression.NAMES:
            name = f"id{codec}"
            client.produce(topic, wire.batch([wire.record("dropped", x_delay="700ms", x_schedule_id=name)], codec))
            cancel = wire.record(None, x_schedule_action="cancel", x_schedule_id=name)
            assert client.produce(topic, wire.batch([cancel], codec)).base_offset == -1
            assert client.produce(topic, wire.batch([cancel], codec)).base_offset == -1
        # Within one batch: what stands before is cancelled, what stands behind is not.
        both = [wire.record("before", x_delay="700ms", x_schedule_id="x"),
                wire.record(None, x_schedule_action="cancel", x_schedule_id="x"), wire.record("at once"),
                wire.record("behind", x_delay="700ms", x_schedule_id="x")]
        assert client.produce(topic, both).base_offset == 0
        got = client.consume(topic, 2)
        assert values(got) == ["at once", "behind"]
        eventually(lambda: not broker.pending(topic), "nothing is pending")
        assert client.fetch(topic, got[-1].offset + 1, max_wait=300).records == b""
        assert broker.get("/status")["delayed"]["cancelled_total"] >= 6


@case("a cancelled record and a replaced record stay cancelled and replaced over kill -9")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        at = int(now_ms()) + 2500
        client.produce(topic, [wire.record(f"old {n}", x_deliver_at=at, x_schedule_id=f"id{n}") for n in range(20)])
        client.produce(topic, [wire.record(None, x_schedule_action="cancel", x_schedule_id=f"id{n}") for n in range(10)])
        client.produce(topic, [wire.record(f"new {n}", x_deliver_at=at, x_schedule_id=f"id{n}") for n in range(5, 15)])
    broker.restart()
    with broker.client() as client:
        assert len(broker.pending(topic)) == 15
        got = values(client.consume(topic, 15))
        assert got == [f"old {n}" for n in range(15, 20)] + [f"new {n}" for n in range(5, 15)], got
        assert client.end_offset(topic) == 15


# --- restarts -----------------------------------------------------------------------------------------


@case("pending records survive kill -9 and every other --shards, and come when they are due")
def _(ctx):
    broker = ctx.broker(shards=1)
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), partitions=7)
        at = int(now_ms()) + 6000
        for partition in range(7):
            client.produce(topic, [wire.record(f"{partition}.{n}", x_deliver_at=at + n, x_schedule_id=f"{n}") for n in range(5)], partition)
            client.produce(topic, [wire.record("plain")], partition)
        # The same ids and handles after every restart.
        listed = sorted((row["partition"], row["id"], row["handle"], row["due_ms"]) for row in broker.pending(topic))
    assert len(listed) == 35
    for shards in (3, 2, 5, 1):
        broker.restart(shards, kill=shards != 5)
        again = sorted((row["partition"], row["id"], row["handle"], row["due_ms"]) for row in broker.pending(topic))
        assert again == listed, f"with {shards} shards"
    with broker.client() as client:
        for partition in range(7):
            got = client.consume(topic, 6, partition)
            assert values(got) == ["plain"] + [f"{partition}.{n}" for n in range(5)]
            check_never_early(got[1:], 5000)


@case("records that became due while the broker was down come at once after the start, in order, and only once")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        at = int(now_ms()) + 1200
        for n in (5, 3, 1, 4, 2, 0):
            client.produce(topic, [wire.record(f"{n}{letter}", x_deliver_at=at + n * 10) for letter in "ab"])
        assert now_ms() < at
        broker.kill()
    eventually(lambda: now_ms() > at + 400, "all are overdue", pause=0.05)
    broker.start()
    ready = now_ms()
    with broker.client() as client:
        got = client.consume(topic, 12)
        assert values(got) == [f"{n}{letter}" for n in range(6) for letter in "ab"]
        assert got[-1].arrived - ready < 2000
    for shards in (1, 3):
        broker.restart(shards)
        with broker.client() as client:
            assert client.end_offset(topic) == 12, "something came twice"
            assert values(client.consume(topic, 12)) == values(got)
            assert broker.pending(topic) == []


@case("pending, delivered and plain records survive checkpoints and kill -9 in turn")
def _(ctx):
    broker = ctx.broker(settings={"tarry.checkpoint.interval.ms": 200})
    expected = []
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        at = int(now_ms()) + 12_000
        client.produce(topic, [wire.record(f"far {n}", x_deliver_at=at + n) for n in range(50)])
    for turn in range(6):
        with broker.client() as client:
            base = client.end_offset(topic)
            client.produce(topic, [wire.record(f"soon {turn}.{n}", x_delay="300ms") for n in range(20)])
            client.produce(topic, [wire.record(f"plain {turn}")])
            got = client.consume(topic, 21, offset=base)
            expected += [f"plain {turn}"] + [f"soon {turn}.{n}" for n in range(20)]
            assert values(got) == expected[-21:]
        broker.restart(1 + turn % 3)
    with broker.client() as client:
        got = client.consume(topic, len(expected) + 50, within=30)
        assert values(got) == expected + [f"far {n}" for n in range(50)]


@case("acknowledged records that are only in the journal survive kill -9, however many they are")
def _(ctx):
    broker = ctx.broker(shards=1, settings={"tarry.checkpoint.interval.ms": 3_600_000, "tarry.log.tail.bytes": 65536})
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        bodies = [wire.batch([wire.record(f"{n:03}" + "x" * 100_000)]) for n in range(40)]
        for body in bodies:
            client.send(wire.PRODUCE, 8, client.produce_body(topic, 0, body))
        for _ in bodies:
            assert client.read_produced(client.receive(wire.PRODUCE, 8)).error == 0
    broker.restart()
    with broker.client() as client:
        got = client.consume(topic, 40)
        assert [rec.value[:3] for rec in got] == [b"%03d" % n for n in range(40)]


# --- what is wrong with a header ------------------------------------------------------------------------

BAD = [  # What is named in the message: the header and its value.
    ({"x_delay": "soon"}, ("x-delay", "soon")), ({"x_delay": ""}, ("x-delay",)), ({"x_delay": "-5"}, ("x-delay", "-5")),
    ({"x_delay": "3 fortnights"}, ("x-delay", "3 fortnights")), ({"x_delay": "99999999999999999999"}, ("x-delay", "99999999999999999999")),
    ({"x_delay": "1.5.2s"}, ("x-delay", "1.5.2s")), ({"x_delay": "PT"}, ("x-delay", "PT")),
    ({"x_deliver_at": "tomorrow"}, ("x-deliver-at", "tomorrow")), ({"x_deliver_at": "2026-13-01T00:00:00Z"}, ("x-deliver-at", "2026-13-01")),
    ({"x_deliver_at": "2026-11-21T10:00:00"}, ("x-deliver-at", "2026-11-21T10:00:00")), ({"x_deliver_at": "-1"}, ("x-deliver-at", "-1")),
    ({"x_deliver_at": b"\x00\x01\x02"}, ("x-deliver-at",)), ({"x_deliver_at": None}, ("x-deliver-at",)),
    ({"x_delay": "5s", "x_deliver_at": "4102444800000"}, ("x-deliver-at", "x-delay")),
    ({"x_schedule_action": "explode", "x_schedule_id": "a"}, ("x-schedule-action", "explode")),
    ({"x_schedule_action": "cancel"}, ("x-schedule-id",)),
    ({"x_delay": "5s", "x_schedule_id": "@handle"}, ("x-schedule-id", "@handle")), ({"x_delay": "5s", "x_schedule_id": ""}, ("x-schedule-id",)),
    ({"x_delay": "5s", "x_schedule_id": "i" * 250}, ("x-schedule-id",)), ({"x_delay": "5s", "x_schedule_id": b"\xff\xfe"}, ("x-schedule-id",)),
    ({"x_delay": "5s", "x_expire_at": "never"}, ("x-expire-at", "never")),
    ({"x_delay": "5s", "x_every": "1ms"}, ("x-every", "1ms")), ({"x_cron": "61 * * * *"}, ("x-cron", "61")),
    ({"x_cron": "@daily", "x_cron_tz": "Europe/Berln"}, ("x-cron-tz", "Europe/Berlin")), ({"x_count": "3"}, ("x-count",)),
    ({"x_deliver_at": "1795000000"}, ("x-deliver-at", "1795000000", "seconds", "2026-11-18T11:06:40.000Z")),
    ({"x_deliver_at": "1795000000000000"}, ("x-deliver-at", "microseconds", "2026-11-18T11:06:40.000Z")),
    ({"X_Delay": "soon"}, ("x-delay", "soon")), ({"x_delay": "5s", "x_expire_at": "60000"}, ("x-expire-at", "60000", "not a duration")),
]


@case("every bad scheduling header is refused with INVALID_RECORD that names header, value and record, in every codec")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        twice = wire.Record(b"twice", None, [(b"x-delay", b"5s"), (b"x-delay", b"6s")])
        bad = [(wire.record("bad", **headers), words) for headers, words in BAD] + [(twice, ("x-delay",))]
        for codec, name in compression.NAMES.items():
            for rec, words in bad:
                good = wire.record("good", x_delay="5s")
                result = client.produce(topic, wire.batch([good, rec, wire.record("plain")], codec), check=False)
                what = f"{name} {rec.headers}: {result}"
                assert result.error == wire.INVALID_RECORD, what
                assert [index for index, _ in result.record_errors] == [1], what
                for word in words:
                    assert word in result.record_errors[0][1], f"no {word!r} in {what}"
            result = client.produce(topic, wire.batch([bad[0][0], wire.record("plain"), bad[7][0]], codec), check=False)
            assert [index for index, _ in result.record_errors] == [0, 2], result
        assert client.end_offset(topic) == 0 and broker.pending(topic) == [], "something of a refused batch was kept"


@case("with tarry.delay.invalid=dead-letter every bad record is in NAME.invalid, once, and the rest is delivered, over kill -9")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), partitions=3, tarry_delay_invalid="dead-letter")
        producer, epoch = client.init_producer_id()
        batches = []
        for partition in range(3):
            sequence = 0
            for headers, words in BAD:
                for codec in compression.NAMES:
                    three = [wire.record("good", x_delay="1ms"), wire.record("bad", mine=words[0], **headers), wire.record("plain")]
                    batches.append((partition, wire.batch(three, codec, producer=(producer, epoch, sequence))))
                    sequence += 3
        answers = [client.produce(topic, data, partition).base_offset for partition, data in batches]
    broker.kill()
    broker.start()
    with broker.client() as client:
        for (partition, data), answer in list(zip(batches, answers))[-3:]:  # A producer's last batches are remembered.
            again = client.produce(topic, data, partition).base_offset
            assert again == answer, (again, answer)
        count = len(BAD) * len(compression.NAMES)
        for partition in range(3):
            got = client.consume(topic, 2 * count, partition)
            assert sorted(values(got)) == ["good"] * count + ["plain"] * count
            dead = client.consume(topic + ".invalid", count, partition)
            assert client.end_offset(topic + ".invalid", partition) == count
            for rec in dead:
                assert rec.value == b"bad" and rec.headers[-1][0] == b"x-error", rec.headers
                assert rec.header("mine") in rec.header("x-error"), rec.headers


@case("a transactional batch with a delay is refused")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        producer, epoch = client.init_producer_id()
        sent = wire.batch([wire.record("v", x_delay="5s")], attributes=0x10, producer=(producer, epoch, 0))
        assert client.produce(topic, sent, check=False).error != 0
        assert broker.pending(topic) == []


# --- what an operator sees and does ------------------------------------------------------------------------


@case("GET /delayed lists pending records in due order, by topic, time and id, page by page")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic, other = client.create_topic(ctx.topic(), partitions=2), client.create_topic(ctx.topic())
        base = int(now_ms()) + HOUR
        for n in range(10):
            client.produce(topic, [wire.record(f"v{n}", key=f"k{n}", x_deliver_at=base + n * 1000, x_schedule_id=f"id-{n}", mine="h")], n % 2)
        client.produce(other, [wire.record("other", x_deliver_at=base)])
        rows = broker.pending(topic)
        assert [row["due_ms"] for row in rows] == [base + n * 1000 for n in range(10)]
        assert [row["id"] for row in rows] == [f"id-{n}" for n in range(10)]
        first = rows[0]
        assert first["topic"] == topic and first["partition"] == 0 and first["handle"].startswith("@") and first["value_bytes"] == 2
        assert abs(first["accepted_ms"] - now_ms()) < 60_000
        assert len({row["handle"] for row in rows}) == 10
        assert len(broker.get("/delayed?limit=1000")["records"]) == 11
        some = broker.get(f"/delayed?topic={topic}&from={base + 2000}&to={base + 5000}")["records"]
        assert [row["id"] for row in some][:3] == ["id-2", "id-3", "id-4"] and len(some) in (3, 4)
        assert [row["id"] for row in broker.get(f"/delayed?topic={topic}&id=id-7")["records"]] == ["id-7"]
        pages, after = [], ""
        while True:
            page = broker.get(f"/delayed?topic={topic}&limit=3{after}")
            pages.append([row["id"] for row in page["records"]])
            if not page.get("next"):
                break
            after = "&after=" + urllib.parse.quote(str(page["next"]))
        assert sum(pages, []) == [f"id-{n}" for n in range(10)] and max(map(len, pages)) == 3, pages
        one = broker.get(f"/delayed/{topic}/id-3")
        assert base64.b64decode(one["value"]) == b"v3" and one["due_ms"] == base + 3000
        assert broker.get(f"/delayed/{topic}/{first['handle']}")["id"] == "id-0"
        assert broker.http("GET", f"/delayed/{topic}/nobody", token=False)[0] == 404


@case("DELETE /delayed cancels definitively: cancelled, then unknown; already_delivered for a delivered record")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), partitions=2)
        client.produce(topic, [wire.record("a", x_delay="1h", x_schedule_id="a b/ü")])
        client.produce(topic, [wire.record("a", x_delay="1h", x_schedule_id="both")], 0)
        client.produce(topic, [wire.record("a", x_delay="1h", x_schedule_id="both")], 1)
        client.produce(topic, [wire.record("b", x_delay="300ms", x_schedule_id="came")])
        client.consume(topic, 1)

        def cancel(name, **how):
            return broker.http("DELETE", f"/delayed/{topic}/{urllib.parse.quote(name, safe='')}", **how)

        assert cancel("a b/ü", token=False)[0] == 401 and cancel("a b/ü", token="wrong")[0] in (401, 403)
        assert cancel("a b/ü", headers={"Origin": "http://elsewhere.example"})[0] == 403
        assert len(broker.pending(topic)) == 3
        assert cancel("a b/ü")[1]["result"] == "cancelled"
        assert cancel("a b/ü")[1]["result"] == "unknown"
        both = cancel("both")[1]
        assert both["result"] == "cancelled" and sorted(each["partition"] for each in both["partitions"]) == [0, 1]
        assert cancel("came")[1]["result"] == "already_delivered"
        assert cancel("nobody")[1]["result"] == "unknown"
        assert broker.pending(topic) == []


@case("tarry delayed list, get and cancel print what HTTP answers")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        for n in range(3):
            client.produce(topic, [wire.record(f"v{n}", x_delay=f"{n + 1}h", x_schedule_id=f"id{n}")])
        client.produce(topic, [wire.record("no id", x_delay="9h")])
    listed = broker.cli("delayed", "list", topic).stdout
    assert all(f"id{n}" in listed for n in range(3)) and topic in listed
    handle = [row["handle"] for row in broker.pending(topic) if not row.get("id")][0]
    assert handle in listed
    as_json = [json.loads(line) for line in broker.cli("delayed", "list", topic, "--json").stdout.splitlines()]
    rows = as_json[0].get("records", as_json) if as_json and isinstance(as_json[0], dict) else as_json[0]
    assert len(rows) == 4
    assert "v1" in broker.cli("delayed", "get", topic, "id1").stdout
    broker.cli("delayed", "cancel", topic, "id0", handle)
    assert sorted(row["id"] for row in broker.pending(topic)) == ["id1", "id2"]
    again = broker.cli("delayed", "cancel", topic, "id0", check=False)
    assert again.returncode == 1 and len(again.stderr.strip().splitlines()) == 1 and "id0" in again.stderr
    unknown = broker.cli("delayed", "get", topic, "nobody", check=False)
    assert unknown.returncode == 1 and "nobody" in unknown.stderr


@case("tarry topic, produce and consume do the whole way from the command line")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic, "--partitions", "2", "--config", "retention.ms=123456")
    assert topic in broker.cli("topic", "list").stdout
    assert "123456" in broker.cli("topic", "describe", topic).stdout
    broker.cli("topic", "alter", topic, "--config", "retention.ms=654321")
    assert "654321" in broker.cli("topic", "describe", topic).stdout
    broker.cli("produce", topic, "-v", "at once", "-k", "key", "-H", "a=b", "-p", "0")
    broker.cli("produce", topic, "-v", "late", "--delay", "1s", "--id", "mine", "-p", "0")
    broker.cli("produce", topic, "-p", "1", stdin="one\ntwo\n")
    rows = [json.loads(line) for line in broker.cli("consume", topic, "-p", "0", "-n", "2", "--from", "start", "--json").stdout.splitlines()]
    assert [row["value"] for row in rows] == ["at once", "late"] and rows[0]["key"] == "key"
    assert broker.cli("consume", topic, "-p", "1", "--from", "start", "--until-end", "--format", "%o %s\n").stdout == "0 one\n1 two\n"
    for words in (["produce", topic, "-v", "x", "--delay", "soon"], ["topic", "frobnicate"], ["--no-such-flag"]):
        wrong = broker.cli(*words, check=False)
        assert wrong.returncode == 2 and len(wrong.stderr.strip().splitlines()) == 1, (words, wrong)
    there = broker.cli("topic", "create", topic, check=False)
    assert there.returncode == 1 and topic in there.stderr
    broker.cli("topic", "delete", topic)
    assert topic not in broker.cli("topic", "list").stdout


@case("a topic with pending records is not deleted and the error has their number; with force they are deleted with it")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic, empty = client.create_topic(ctx.topic()), client.create_topic(ctx.topic())
        client.produce(topic, [wire.record(str(n), x_delay="1h") for n in range(17)])
        client.produce(topic, [wire.record("plain")])
        error, message = client.delete_topic(topic)
        assert error == wire.POLICY_VIOLATION and "17" in message, (error, message)
        status, body = broker.http("DELETE", f"/topics/{topic}")
        assert status == 409 and "17" in body["error"], (status, body)
        assert broker.http("DELETE", f"/topics/{topic}?force=true", token=False)[0] == 401
        refused = broker.cli("topic", "delete", topic, check=False)
        assert refused.returncode == 1 and "17" in refused.stderr
        assert len(broker.pending(topic)) == 17 and client.end_offset(topic) == 1
        status, body = broker.http("DELETE", f"/topics/{topic}?force=true")
        assert status == 200, (status, body)
        assert client.delete_topic(empty)[0] == 0
        assert broker.get("/delayed?limit=10")["records"] == []
        # A topic of the same name is another topic.
        client.topic_ids.clear()
        client.create_topic(topic)
        assert client.end_offset(topic) == 0 and broker.pending(topic) == []
    broker.restart()
    with broker.client() as client:
        assert client.end_offset(topic) == 0 and broker.pending(topic) == []
        assert empty not in client.metadata()


@case("/status, /topics, /wheel, /purgatory, /metrics, /healthz and /readyz answer with the fields that docs/http.md names")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.produce(topic, [wire.record("v", x_delay="1h")])
        client.produce(topic, [wire.record("v", x_delay="200ms")])
        client.consume(topic, 1)
        client.send(wire.FETCH, 11, client.fetch_body(topic, 1, max_wait=20_000))
        waiting = eventually(lambda: broker.get("/status")["purgatory"]["fetch"]["waiting"], "a fetch waits")
        assert waiting == 1
    status = broker.get("/status")
    for name in ("version cluster_id node_id state uptime_ms data listeners shards topics partitions connections "
                 "delayed purgatory wheel storage process").split():
        assert name in status, f"/status has no {name}"
    delayed = status["delayed"]
    assert delayed["pending"] == 1 and delayed["delivered_total"] == 1 and delayed["early_total"] == 0
    assert set("pending next_due overdue delivered_total early_total cancelled_total lag_ms".split()) <= set(delayed)
    assert set("p50 p99 max".split()) <= set(delayed["lag_ms"]) and delayed["lag_ms"]["count"] == 1
    assert status["storage"]["fsyncs_total"] > 0 and status["process"]["rss_bytes"] > 0
    assert len(status["shards"]) == 2 and "levels" in status["wheel"]
    assert broker.get("/healthz") is not None and broker.get("/readyz") is not None
    assert topic in json.dumps(broker.get("/topics")) and topic in json.dumps(broker.get(f"/topics/{topic}"))
    assert broker.get("/wheel") and broker.get("/purgatory")
    metrics = broker.get("/metrics")
    assert "# TYPE tarry_delay_lag_seconds histogram\n" in metrics and "\ntarry_delay_lag_seconds_count 1\n" in metrics
    code, body = broker.http("GET", "/nowhere", token=False)
    assert code == 404 and "error" in body
    assert broker.http("GET", "/topics/nobody", token=False)[0] == 404


# --- again and again -------------------------------------------------------------------------------


@case("a recurring record is delivered at each of its times with one handle, over kill -9, until its count is met")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        start = int(now_ms()) + 400
        client.produce(topic, [wire.record("tick", key="k", x_deliver_at=start, x_every="300ms", x_count=6, x_schedule_id="id", mine="h")])
        first = client.consume(topic, 2)
    broker.restart()
    with broker.client() as client:
        records = first + client.consume(topic, 4, offset=2)
        eventually(lambda: broker.get("/status")["delayed"]["pending"] == 0, "its end")
        assert client.end_offset(topic, 0) == 6
    due = [int(rec.header("x-scheduled-for")) for rec in records]
    assert due == sorted(set(due)) and all((each - start) % 300 == 0 for each in due) and due[:2] == [start, start + 300], (start, due)
    assert all(rec.arrived >= each and rec.value == b"tick" and rec.key == b"k" for rec, each in zip(records, due))
    assert len({rec.header("x-schedule-handle") for rec in records}) == 1
    assert all(sorted(name for name, _ in rec.headers) == [b"mine", b"x-schedule-handle", b"x-schedule-id", b"x-scheduled-for"] for rec in records)


@case("a cron record is pending with its next time in its zone, can be cancelled, and comes back from an export")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
    broker.cli("produce", topic, "-v", "standup", "--cron", "0 9 * * MON-FRI", "--tz", "Europe/Berlin", "--times", "10", "--id", "standup")
    row = broker.pending(topic)[0]
    due = datetime.datetime.fromtimestamp(row["due_ms"] / 1000, datetime.timezone.utc)
    assert row["recurring"] is True and due.minute == 0 and due.hour in (7, 8) and due.weekday() < 5, row
    assert row["recurrence"]["cron"] == "0 9 * * MON-FRI" and row["recurrence"]["tz"] == "Europe/Berlin" and row["recurrence"]["left"] == 10
    explained = broker.cli("explain", "x-cron=0 9 * * MON-FRI", "x-cron-tz=Europe/Berlin", "--json").stdout
    assert json.loads(explained)["runs_ms"][0] == row["due_ms"] and len(json.loads(explained)["runs_ms"]) == 5
    exported = broker.cli("delayed", "export", topic).stdout
    broker.cli("delayed", "cancel", topic, "standup")
    assert broker.pending(topic) == []
    broker.cli("delayed", "import", stdin=exported)
    again = broker.pending(topic)[0]
    assert (again["due_ms"], again["recurrence"]) == (row["due_ms"], row["recurrence"])
    assert "0 9 * * MON-FRI" in broker.cli("delayed", "get", topic, "standup").stdout


@case("above tarry.delay.max.pending a producer is refused and tries again until there is room, and nothing is lost")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), tarry_delay_max_pending="10")
        client.produce(topic, [wire.record(str(i), x_delay="1500ms") for i in range(10)])
        answer = client.produce(topic, [wire.record("more", x_delay="1s")], check=False)
        assert answer.error == 6 and "has 10 pending records, the batch would add 1, and the limit is 10" in answer.message, vars(answer)
        answer = client.produce(topic, [wire.record("too many", x_delay="1s")] * 11, check=False)
        assert answer.error == wire.MESSAGE_TOO_LARGE and "has 11 delayed records, but the topic may have only 10 pending (" in answer.message, vars(answer)
        client.produce(topic, [wire.record("plain")])
    ran = broker.cli("produce", topic, "-v", "tried again", "--delay", "100ms", "-X", "message.timeout.ms=20000")
    assert ran.returncode == 0, ran.stderr
    with broker.client() as client:
        assert sorted(values(client.consume(topic, 12))) == sorted(["plain", "tried again"] + [str(i) for i in range(10)])
    told = broker.get(f"/topics/{topic}")["refused_batches"]
    assert told["total"] >= 2 and told["last"]["reason"] == "delay_max_pending", told
    with broker.client() as client:
        small = client.create_topic(ctx.topic(), tarry_delay_max_pending="2")
    ran = broker.cli("produce", small, "-v", "a", "-v", "b", "-v", "c", "--delay", "1h", "--timeout", "2s", check=False)
    assert ran.returncode == 1 and "no answer" not in ran.stderr and "2 pending" in ran.stderr and "tarry.delay.max.pending" in ran.stderr, ran.stderr


@case("over HTTP a damaged blob is an error that names the database, counts are told, and a look-up that needs it ends the broker with the reason")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        due = int(now_ms()) + 5 * HOUR
        for n in range(50):
            client.produce(topic, [wire.record(f"{n:05}" * 200, x_deliver_at=due + n, x_schedule_id=f"id-{n}")])
    broker.stop()
    blob, = pathlib.Path(broker.data).glob("db/pending/*.blob")
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 0xFF
    blob.write_bytes(data)
    broker.start()
    status, said = broker.http("GET", f"/delayed?topic={topic}")
    assert status == 500 and "db/pending is damaged" in said["error"] and "restore" in said["error"], (status, said)
    assert broker.get(f"/delayed/count?by=hour&topic={topic}")["total"] == 50
    with broker.client() as client:
        client.produce(topic, [wire.record("sooner", x_delay="100ms")])
        assert client.consume(topic, 1)[0].value == b"sooner"
    try:
        status, said = broker.http("GET", f"/delayed/{topic}/id-7")
    except (http.client.HTTPException, OSError):
        pass  # It ended before it answered.
    else:
        assert status >= 500, (status, said)
    assert broker.process.wait(10) != 0
    assert "db/pending is damaged" in broker.log() and "the broker ends at once" in broker.log(), broker.log()[-1000:]
    broker.kill()
