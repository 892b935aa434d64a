#!/usr/bin/env python3
"""kcat, Java's client and franz-go produce through `tarry relay` on a real Kafka; Java's client and librdkafka consume.

Usage: clients_with_kafka.py --brokers 127.0.0.1:9092 [--binary build/release/tarry] [--delivery exactly-once]
                             [--control drop|double]
       clients_with_kafka.py --check-checker

Needs kcat, Debian's python3-confluent-kafka, javac, Maven and Go; Kafka's jars are fetched once into build/kafka, and
both clients are built in build/clients.  It makes topics of its own, whose names begin with clients-, and leaves them.
Takes 40 s, and two minutes on a busy machine.

Each producer sends records with every kind of header of ours, with null and empty keys, values and headers, with
unicode, large and binary headers, in batches of each codec, and in transactions (kcat can only commit); then they
replace and cancel each other's records.  The consumers read committed, from the beginning of the test on.  Both have to
see each record once, not before it is due, with key, value and other headers as they were sent, in the partition that
Java's producer chooses for the key; nothing that was cancelled, replaced, expired, or sent in a transaction that aborted;
and each wrong record in NAME.invalid with its reason.

Exit status 1 when something is wrong.  With --control a record is cancelled although the checker expects it, or one is
in the target a second time: the exit status is 0 if that, and nothing else, is noticed.  --check-checker checks, without
Kafka, that each kind of wrong is noticed.
"""

import argparse
import base64
import collections
import copy
import dataclasses
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import confluent_kafka
import confluent_kafka.admin

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "tests/integration/clients"
# Different numbers, so that a record's partition in a target is not by chance the one in the source.
PARTITIONS = {"source": 4, "target": 6, "other": 3}
MAX_WAIT = 60  # Seconds, for all records to come, for kcat, and for a process to end.
QUIET = 3  # Seconds without another record, behind the last due time, until the verdict.
# Seconds until a record is due that others replace or cancel: even a slow machine sends three groups until then.
LONG = 10
CANCEL_MARGIN = 1  # Seconds, from the acknowledgement of a replacement or cancellation to the due time.
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
BATCH = 40  # Records in a batch that is compressed.
SCHEDULING = {"x-deliver-at", "x-delay", "x-schedule-action", "x-expire-at", "x-deliver-to"}


@dataclasses.dataclass
class Record:
    """What is sent, and what shall become of it."""
    label: str  # Unique, and a header of it.
    value: bytes | None
    key: bytes | None
    headers: list
    delay: int | None = None  # Milliseconds from its timestamp.
    at: int | None = None  # Epoch milliseconds.
    fate: str = "delivered"  # Or "never", or "invalid".
    target: str = "target"
    reason: tuple = ()  # What the reason has to mention.
    acknowledged: float = 0
    before: float = 0  # What it replaces or cancels is due then.

    def due(self, timestamp):
        return self.at if self.at is not None else timestamp + (self.delay or 0)

    def all_headers(self):
        return [("label", self.label.encode()), *self.headers]


@dataclasses.dataclass
class Seen:
    """A record as a consumer sees it."""
    consumer: str
    topic: str  # "source", "target", "other" or "invalid".
    partition: int
    offset: int
    timestamp: int
    at: int  # Epoch milliseconds, by the clock of this machine.
    key: bytes | None
    value: bytes | None
    headers: list
    chosen: int = -1  # The partition that Java's producer chooses for the key.

    def label(self):
        return next((value.decode() for name, value in self.headers if name == "label"), f"without a label: {self}")


def now_ms():
    return int(time.time() * 1000)


def encode(data):
    return "-" if data is None else "=" + base64.b64encode(data).decode()


def decode(word):
    return None if word == "-" else base64.b64decode(word[1:])


class Piped:
    """A producer that reads its groups from a pipe: Java's client, and franz-go."""

    can_abort = has_any_bytes = True

    def __init__(self, name, command):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, records, codec="none", outcome="-"):
        lines = [f"{codec} {outcome}"]
        for record in records:
            words = [record.key, record.value]
            for name, value in record.all_headers():
                words += [name.encode(), value]
            lines.append(" ".join(map(encode, words)))
        self.process.stdin.write("\n".join([*lines, "", ""]))
        self.process.stdin.flush()
        if self.process.stdout.readline() != "ok\n":
            raise SystemExit(f"wrong: {self.name} could not produce {records[0].label}")
        acknowledge(records)

    def end(self):
        self.process.stdin.close()
        self.process.wait(MAX_WAIT)


class Kcat:
    """One process for each record, because the headers are those of a process."""

    name, can_abort, has_any_bytes = "kcat", False, False

    def __init__(self, brokers, topic):
        self.brokers, self.topic, self.groups = brokers, topic, 0

    def send(self, records, codec="none", outcome="-"):
        self.groups += 1
        # A transaction is that of one process, so its records have the headers of the first one.
        groups = [[record] for record in records] if outcome == "-" and codec == "none" else [records]
        for group in groups:
            self.run(group, codec, outcome)
        acknowledge(records)

    def run(self, records, codec, outcome):
        command = ["kcat", "-P", "-b", self.brokers, "-t", self.topic, "-X", "topic.partitioner=murmur2_random",
                   "-X", f"compression.codec={codec}", "-X", "linger.ms=100"]
        for name, value in records[0].all_headers():
            command += ["-H", name if value is None else f"{name}={value.decode()}"]
        if outcome == "commit":
            command += ["-X", f"transactional.id={self.topic}-kcat-{self.groups}"]
        lines = [record.value or b"" for record in records]
        if any(record.value is None for record in records):
            command.append("-Z")
        # With -Z an empty key is null too; a line without anything would be no record.
        if records[0].key is not None or records[0].value is None:
            command += ["-K", "|"]
            lines = [(record.key or b"") + b"|" + line for record, line in zip(records, lines)]
        subprocess.run(command, input=b"\n".join([*lines, b""]), check=True, timeout=MAX_WAIT)

    def end(self):
        pass


def acknowledge(records):
    for record in records:
        record.acknowledged = time.time()


def after(seconds):
    return now_ms() + int(seconds * 1000)


def at_text(milliseconds):
    return str(milliseconds).encode()


class Scenario:
    """What one producer sends.  Everything it makes is in `records`."""

    def __init__(self, producer, topics):
        self.producer, self.name, self.topics, self.records = producer, producer.name, topics, []

    def make(self, what, value=b"value", key=b"", headers=(), **how):
        """A record with a key of its own, unless it is given."""
        label = f"{self.name} {what}"
        record = Record(label, value, label.encode() if key == b"" else key, list(headers), **how)
        self.records.append(record)
        return record

    def send(self, *records, **how):
        self.producer.send(records, **how)

    def run(self):
        for step in (self.times, self.contents, self.targets, self.wrong, self.replaced, self.batches, self.transactions):
            step()

    def times(self):
        # The past is near, because Kafka deletes records by their timestamp, which is the due time of those delivered.
        at, past, far = after(2), after(-3600), after(3600)
        rfc = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at // 1000)).encode()
        self.send(self.make("at once"),
                  self.make("delay", headers=[("x-delay", b"1500")], delay=1500),
                  self.make("delay with a unit", headers=[("x-delay", b"2s")], delay=2000),
                  self.make("name in another case", headers=[("X-Delay", b"1s")], delay=1000),
                  self.make("time", headers=[("x-deliver-at", at_text(at))], at=at),
                  self.make("time in words", headers=[("x-deliver-at", rfc)], at=at // 1000 * 1000),
                  self.make("time that has passed", headers=[("x-deliver-at", at_text(past))], at=past),
                  self.make("expires before it is due", fate="never", headers=[
                      ("x-deliver-at", at_text(far)), ("x-expire-at", at_text(far - 1000))]),
                  self.make("due before it expires", delay=1000, headers=[
                      ("x-delay", b"1s"), ("x-expire-at", at_text(far))]))
        if self.producer.has_any_bytes:
            self.send(self.make("time in binary", headers=[("x-deliver-at", struct.pack(">q", at))], at=at))

    def contents(self):
        later = ("x-delay", b"1s")
        unicode = "Überfällig: 期限 ⏰"
        self.send(self.make("null key", key=None, headers=[later], delay=1000),
                  self.make("null value", value=None, headers=[later], delay=1000),
                  self.make("null key and value", key=None, value=None, headers=[later], delay=1000),
                  self.make("null key and value at once", key=None, value=None),
                  self.make("empty value", value=b"", headers=[later], delay=1000),
                  self.make("unicode", unicode.encode(), f"{self.name} {unicode}".encode(), delay=1000, headers=[
                      (unicode, unicode.encode()), later, ("x-schedule-id", f"{self.name} {unicode}".encode())]),
                  self.make("large header", headers=[("large", b"0123456789" * 10000), later], delay=1000),
                  self.make("null and empty header, and a name twice", delay=1000, headers=[
                      ("null", None), ("twice", b"1"), ("empty", b""), later, ("twice", b"2")]))
        if self.producer.has_any_bytes:
            every = bytes(range(256))
            self.send(self.make("empty key", key=bytes(), headers=[later], delay=1000),
                      self.make("every byte", every, self.name.encode() + every, delay=1000, headers=[
                          ("every", every * 2000), later, *((f"header {i}", every) for i in range(100))]),
                      self.make("large value", every * 2000, headers=[later], delay=1000))

    def targets(self):
        for number in range(10):
            self.send(self.make(f"to another target, {number}", delay=1000, target="other", headers=[
                ("x-delay", b"1s"), ("x-deliver-to", self.topics["other"].encode())]))

    def wrong(self):
        id_header, at = ("x-schedule-id", f"{self.name} kept".encode()), after(LONG)
        seconds = str(at // 1000).encode()
        self.send(self.make("kept", headers=[id_header, ("x-deliver-at", at_text(at))], at=at))
        self.send(self.make("no duration", key=f"{self.name} kept".encode(), fate="invalid", reason=("x-delay", "soon"),
                            headers=[id_header, ("x-delay", b"soon")]),
                  self.make("seconds", fate="invalid", reason=("x-deliver-at", seconds.decode()),
                            headers=[("x-deliver-at", seconds)]),
                  self.make("null key and no action", key=None, value=None, fate="invalid",
                            reason=("x-schedule-action", "stop"), headers=[("x-schedule-id", b"some"), ("x-schedule-action", b"stop")]),
                  self.make("forbidden target", fate="invalid", reason=("x-deliver-to", "elsewhere"),
                            headers=[("x-delay", b"1s"), ("x-deliver-to", b"elsewhere")]),
                  self.make("both times", fate="invalid", reason=("x-deliver-at", "x-delay"),
                            headers=[("x-deliver-at", at_text(at)), ("x-delay", b"1s")]))

    def with_id(self, name, at, value, what, fate="delivered", **how):
        """A record with the key and the id `name`."""
        return self.make(what, value, name.encode(), fate=fate, at=at, headers=[
            ("x-schedule-id", name.encode()), ("x-deliver-at", at_text(at))], **how)

    def cancellation(self, name, at, what):
        return self.make(what, b"", name.encode(), fate="never", before=at / 1000, headers=[
            ("x-schedule-id", name.encode()), ("x-schedule-action", b"cancel")])

    def replaced(self):
        at = after(LONG)
        self.send(self.with_id(f"{self.name} 1", at, b"old", "replaced", "never"),
                  self.with_id(f"{self.name} 2", at, b"old", "replaced in its batch", "never"),
                  self.with_id(f"{self.name} 2", at + 100, b"new", "replaces in its batch"),
                  self.with_id(f"{self.name} 3", at, b"old", "cancelled", "never"))
        self.send(self.with_id(f"{self.name} 1", at - 500, b"new", "replaces", before=at / 1000),
                  self.cancellation(f"{self.name} 3", at, "cancels"))

    def batches(self):
        for codec in CODECS:
            what = f"{codec} batch"
            # kcat gives all of them the same headers, so the value tells them apart.
            label = None if self.producer.has_any_bytes else f"{self.name} {what}"
            delays = [1000 + (number % 3 if label is None else 0) for number in range(BATCH)]
            records = [self.make(f"{what}, {number}", b"%d of many; " % number * 20, delay=delay,
                                 headers=[("x-delay", at_text(delay))]) for number, delay in enumerate(delays)]
            for record in records:
                record.label = label or record.label
            self.send(*records, codec=codec)

    def transactions(self):
        at = after(LONG)
        names = [f"{self.name} in transaction {number}" for number in range(4)]
        if not self.producer.can_abort:
            records = [self.make("commits", b"%d" % number, headers=[("x-delay", b"1s")], delay=1000) for number in range(5)]
            return self.send(*records, outcome="commit")
        self.send(*(self.with_id(name, at, b"old", f"before a transaction, {number}", "delivered" if number < 2 else "never")
                    for number, name in enumerate(names)))
        self.send(self.make("aborted delay", headers=[("x-delay", b"1s")], fate="never"),
                  self.make("aborted at once", fate="never"),
                  self.make("aborted wrong header", headers=[("x-delay", b"soon")], fate="never"),
                  self.with_id(names[0], at, b"new", "aborted replacement", "never"),
                  self.cancellation(names[1], at, "aborted cancellation"), outcome="abort")
        self.send(self.make("committed delay", headers=[("x-delay", b"1s")], delay=1000),
                  self.make("committed at once"),
                  self.with_id(names[2], at - 1000, b"new", "committed replacement", before=at / 1000),
                  self.cancellation(names[3], at, "committed cancellation"), outcome="commit", codec="lz4")


def across(scenarios):
    """Each producer replaces a record of the next one, and cancels one of the one behind it."""
    at = after(LONG)
    owners = [scenarios[(number + 1) % len(scenarios)] for number in range(len(scenarios))]
    for owner in scenarios:
        owner.send(*(owner.with_id(f"{owner.name} and others {what}", at, b"old", f"{what} by another", "never")
                     for what in ("replaced", "cancelled")))
    for number, other in enumerate(scenarios):
        owner, third = owners[number], scenarios[(number + 2) % len(scenarios)]
        other.send(other.with_id(f"{owner.name} and others replaced", at + 500, b"new", "replaces another's", before=at / 1000),
                   other.cancellation(f"{third.name} and others cancelled", at, "cancels another's"))


def check_times(records):
    """A replacement or cancellation counts if it was there in time."""
    late = [each.label for each in records if each.before and each.acknowledged > each.before - CANCEL_MARGIN]
    if late:
        raise SystemExit(f"this machine is too slow, nothing is known: {late} came {CANCEL_MARGIN} s before the due time, or later")


class JavaConsumer:
    name = "Java"

    def __init__(self, java, brokers, group, names):
        self.names, self.seen = names, []
        self.process = subprocess.Popen([*java, "consume", brokers, group, *names], stdout=subprocess.PIPE, text=True)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        for line in self.process.stdout:
            words = line.split()
            data = [decode(word) for word in words[6:]]
            self.seen.append(Seen(self.name, self.names[words[0]], int(words[1]), int(words[3]), int(words[4]), int(words[5]),
                                  data[0], data[1], [(data[i].decode(), data[i + 1]) for i in range(2, len(data), 2)],
                                  int(words[2])))

    def end(self):
        self.process.terminate()
        self.process.wait(MAX_WAIT)
        self.thread.join()


def seen_by_librdkafka(message, names):
    return Seen("librdkafka", names[message.topic()], message.partition(), message.offset(), message.timestamp()[1], now_ms(),
                message.key(), message.value(), message.headers() or [])


class RdkafkaConsumer:
    def __init__(self, brokers, group, names):
        self.names, self.seen, self.over = names, [], threading.Event()
        self.consumer = confluent_kafka.Consumer({
            "bootstrap.servers": brokers, "group.id": group, "isolation.level": "read_committed",
            "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 1000})
        self.consumer.subscribe(list(names))
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.over.is_set():
            message = self.consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.seen.append(seen_by_librdkafka(message, self.names))
        self.consumer.close()

    def end(self):
        self.over.set()
        self.thread.join()


def read_source(brokers, group, topic):
    """All that is in the source, also what was aborted."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": brokers, "group.id": group, "isolation.level": "read_uncommitted",
                                         "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in range(PARTITIONS["source"])])
    seen, ended, until = [], set(), time.time() + MAX_WAIT
    while len(ended) < PARTITIONS["source"] and time.time() < until:
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error() is None:
            seen.append(seen_by_librdkafka(message, {topic: "source"}))
        elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        else:
            raise SystemExit(f"wrong: the source cannot be read: {message.error()}")
    consumer.close()
    if len(ended) < PARTITIONS["source"]:
        raise SystemExit("wrong: the source could not be read to its end")
    return seen


def find_wrong(records, source, seen, source_name):
    """What is not as it should be, by kind; `seen` has a list for each consumer."""
    wrong = collections.defaultdict(list)
    sent = collections.defaultdict(list)
    for each in source:
        sent[each.label(), each.value].append(each)
    for consumer in seen:
        came = collections.defaultdict(list)
        for each in consumer:
            came[each.label(), each.value].append(each)
        for record in records:
            places = came.pop((record.label, record.value), [])
            origins = sent.get((record.label, record.value), [])
            if len(origins) != 1:
                wrong["not in the source once"].append((record.label, len(origins)))
            elif record.fate == "never":
                if places:
                    wrong["ended, but delivered"].append(record.label)
            elif not places:
                wrong["lost"].append(record.label)
            elif len(places) > 1:
                wrong["twice"].append(record.label)
            else:
                judge(record, origins[0], places[0], source_name, wrong)
        wrong["strange"] += came.keys()
    first, second = ({(each.topic, each.partition, each.offset) for each in consumer} for consumer in seen)
    wrong["for one consumer only"] += sorted(first ^ second)
    return {kind: what for kind, what in wrong.items() if what}


def judge(record, origin, place, source_name, wrong):
    """One record that came as often as it should have."""
    def check(kind, is_right, *why):
        if not is_right:
            wrong[kind].append((place.consumer, record.label, *why))

    check("key changed", place.key == record.key, place.key)
    if record.fate == "invalid":
        check("in another topic", place.topic == "invalid", place.topic)
        check("headers changed", place.headers[:-1] == record.all_headers(), place.headers[:-1])
        name, reason = place.headers[-1]
        check("without its reason", name == "x-error" and all(word in reason.decode() for word in record.reason), name, reason)
        check("timestamp changed", place.timestamp == origin.timestamp, place.timestamp)
        return
    is_plain = record.delay is None and record.at is None
    due = record.due(origin.timestamp)
    check("in another topic", place.topic == record.target, place.topic)
    check("timestamp changed", place.timestamp == due, place.timestamp - due)
    # What is due at once, or was in the past, has no due time that could be missed.
    check("early", is_plain or place.at >= due, due - place.at)
    if place.chosen >= 0:
        check("in another partition", place.partition == place.chosen, place.partition, place.chosen)
    expected = [header for header in record.all_headers() if header[0].lower() not in SCHEDULING]
    if not is_plain:
        expected += [("x-scheduled-for", at_text(due)),
                     ("x-schedule-handle", f"@{source_name}-{origin.partition}-{origin.offset}".encode())]
    check("headers changed", place.headers == expected, place.headers, expected)


def check_the_checker():
    """Each kind of wrong is found, and nothing else, in a run that is right but for one thing."""
    records = [Record("plain", b"1", b"k", []),
               Record("delayed", b"2", b"k", [("x-delay", b"500")], delay=500),
               Record("cancelled", b"3", b"k", [("x-schedule-id", b"i"), ("x-delay", b"900")], fate="never"),
               Record("wrong", b"4", None, [("x-delay", b"soon")], fate="invalid", reason=("x-delay", "soon"))]
    source = [Seen("librdkafka", "source", 1, offset, 1000, 1001, each.key, each.value, each.all_headers())
              for offset, each in enumerate(records)]

    def consumed(consumer):
        return [Seen(consumer, "target", 5, 0, 1000, 1001, b"k", b"1", [("label", b"plain")], 5),
                Seen(consumer, "target", 5, 1, 1500, 1501, b"k", b"2", [
                    ("label", b"delayed"), ("x-scheduled-for", b"1500"), ("x-schedule-handle", b"@s-1-1")], 5),
                Seen(consumer, "invalid", 1, 0, 1000, 1001, None, b"4", [
                    ("label", b"wrong"), ("x-delay", b"soon"), ("x-error", b"x-delay: \"soon\" is not a duration")])]

    def again(seen, like, **change):
        seen.append(dataclasses.replace(like, **change))

    def replace(seen, number, **change):
        seen[number] = dataclasses.replace(seen[number], **change)

    for kinds, change in [
            (set(), lambda source, seen: None),
            ({"lost"}, lambda source, seen: seen.pop(1)),
            ({"lost"}, lambda source, seen: seen.pop(2)),
            ({"twice"}, lambda source, seen: again(seen, seen[1], offset=2)),
            ({"twice"}, lambda source, seen: again(seen, seen[0], offset=2)),
            ({"ended, but delivered"}, lambda source, seen: again(seen, source[2], topic="target", offset=2)),
            ({"strange"}, lambda source, seen: again(seen, seen[0], offset=2, value=b"other")),
            ({"not in the source once"}, lambda source, seen: source.pop(2)),
            ({"not in the source once"}, lambda source, seen: again(source, source[1], offset=9)),
            ({"early"}, lambda source, seen: replace(seen, 1, at=1499)),
            ({"key changed"}, lambda source, seen: replace(seen, 2, key=b"")),
            ({"lost", "strange"}, lambda source, seen: replace(seen, 1, value=None)),
            ({"headers changed"}, lambda source, seen: replace(seen, 1, headers=seen[1].headers[:-1])),
            ({"headers changed"}, lambda source, seen: replace(seen, 2, headers=[seen[2].headers[0], seen[2].headers[2]])),
            ({"without its reason"}, lambda source, seen: replace(seen, 2, headers=[*seen[2].headers[:-1], ("x-error", b"no")])),
            ({"timestamp changed"}, lambda source, seen: replace(seen, 1, timestamp=1499)),
            ({"in another partition"}, lambda source, seen: replace(seen, 1, chosen=4)),
            ({"in another topic"}, lambda source, seen: replace(seen, 1, topic="other"))]:
        log, first, second = copy.deepcopy(source), consumed("Java"), consumed("librdkafka")
        change(log, first)
        # The other consumer sees the same places, so that only the one thing is wrong.
        second = copy.deepcopy(first)
        found = find_wrong(records, log, [first, second], "s")
        assert set(found) == kinds, (found, kinds)
    found = find_wrong(records, source, [consumed("Java"), consumed("librdkafka")[:-1]], "s")
    assert set(found) == {"lost", "for one consumer only"}, found
    print("the checker finds each kind of wrong")


def build(directory):
    """The words of both clients."""
    jars = ROOT / "build/kafka"
    subprocess.run(["bash", "-c", f'. "$0/scripts/kafka/node.sh" && install_kafka "$1"', ROOT, jars], check=True)
    directory.mkdir(parents=True, exist_ok=True)
    classes = f"{jars}/*"
    subprocess.run(["javac", "-cp", classes, "-d", directory, CLIENTS / "RelayClient.java"], check=True)
    subprocess.run(["go", "build", "-mod=readonly", "-buildvcs=false", "-o", directory / "franz_go_relay", "./relay"],
                   cwd=CLIENTS / "franz_go", check=True)
    # Its output is the protocol, so the log has to be silent.
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-Dlog4j2.level=OFF",
            "-Dlog4j2.statusLoggerLevel=OFF", "-cp", f"{directory}:{classes}", "RelayClient"], [directory / "franz_go_relay"]


def create_topics(options, topics):
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": options.brokers})
    for future in admin.create_topics([confluent_kafka.admin.NewTopic(topics[each], count, 1)
                                       for each, count in PARTITIONS.items()]).values():
        future.result()


def start_relay(options, topics, directory):
    """The relay, and the address of its admin."""
    log = open(directory / "relay.log", "ab")
    relay = subprocess.Popen(
        [options.binary, "relay", "--brokers", options.brokers, "--source", topics["source"], "--group", topics["target"],
         "--data", str(directory / "data"), "--admin", "127.0.0.1:0", "--deliver-to", topics["other"], "--delivery",
         options.delivery], stdout=subprocess.PIPE, stderr=log, text=True)
    ready = dict(word.partition("=")[::2] for word in relay.stdout.readline().split())
    if "admin" not in ready:
        raise SystemExit(f"wrong: the relay has not begun: see {directory}/relay.log")
    return relay, ready["admin"]


def pending(admin):
    with urllib.request.urlopen(f"http://{admin}/status", timeout=15) as answer:
        return json.load(answer)["delayed"]["pending"]


def wait_for_all(records, consumers, admin):
    """Until the consumers have what is expected, nothing is pending, and nothing more comes."""
    expected = sum(record.fate != "never" for record in records)
    until = time.time() + MAX_WAIT
    while time.time() < until and (pending(admin) > 0 or min(len(each.seen) for each in consumers) < expected):
        time.sleep(0.2)
    count, since = 0, time.time()
    while time.time() < since + QUIET and time.time() < until + MAX_WAIT:
        if count != (count := sum(len(each.seen) for each in consumers)):
            since = time.time()
        time.sleep(0.1)


def spoil(options, topics, scenarios, consumers):
    """What --control asks for: a cancellation of which the checker is not told, or a record twice in the target."""
    producer = confluent_kafka.Producer({"bootstrap.servers": options.brokers})
    if options.control == "drop":
        name = b"Java kept"
        producer = confluent_kafka.Producer({"bootstrap.servers": options.brokers, "partitioner": "murmur2_random"})
        producer.produce(topics["source"], b"", name, headers=[
            ("label", b"control"), ("x-schedule-id", name), ("x-schedule-action", b"cancel")])
    else:
        record = next(each for each in scenarios[0].records if each.label.endswith(" delay"))
        until = time.time() + MAX_WAIT
        while not (seen := [each for each in consumers[0].seen if each.label() == record.label]) and time.time() < until:
            time.sleep(0.1)
        producer.produce(topics["target"], seen[0].value, seen[0].key, seen[0].partition, headers=seen[0].headers)
    if producer.flush(MAX_WAIT) != 0:
        raise SystemExit("wrong: Kafka does not take the record of --control")


def produce_all(options, topics, java, franz_go, consumers):
    """Everything that the producers send; returns it."""
    piped = [Piped("Java", [*java, "produce", options.brokers, topics["source"]]),
             Piped("franz-go", [*franz_go, options.brokers, topics["source"]])]
    scenarios = [Scenario(each, topics) for each in (Kcat(options.brokers, topics["source"]), *piped)]
    try:
        for scenario in scenarios:
            scenario.run()
            if options.control == "drop" and scenario.name == "Java":
                spoil(options, topics, scenarios, consumers)
        across(scenarios)
        if options.control == "double":
            spoil(options, topics, scenarios, consumers)
    finally:
        for each in piped:
            each.end()
    return [record for scenario in scenarios for record in scenario.records]


def verdict(options, wrong, counts):
    print(f"{counts[0]} records sent; seen by Java's consumer {counts[1]}, by librdkafka's {counts[2]}")
    for kind, what in sorted(wrong.items()):
        print(f"wrong: {kind}: {len(what)}")
        for each in what[:5]:
            print(f"  {str(each)[:1000]}")
    if not options.control:
        if not wrong:
            print("right: each record came once, in time, unchanged and in its partition, and nothing else came")
        return not wrong
    is_noticed = set(wrong) == {"drop": {"lost"}, "double": {"twice"}}[options.control]
    print(f"the control {options.control} is {'noticed' if is_noticed else 'NOT noticed, or more is wrong'}")
    return is_noticed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--binary", default="build/release/tarry")
    parser.add_argument("--delivery", default="exactly-once")
    parser.add_argument("--control", choices=["drop", "double"])
    parser.add_argument("--check-checker", action="store_true")
    if "--check-checker" in sys.argv[1:]:
        return check_the_checker()
    options = parser.parse_args()
    java, franz_go = build(ROOT / "build/clients")
    name = f"clients-{int(time.time())}"
    topics = {"source": name + ".delayed", "target": name, "other": name + "-other"}
    names = {name: "target", name + "-other": "other", name + ".delayed.invalid": "invalid"}
    directory = pathlib.Path(tempfile.mkdtemp(prefix="relay-clients-"))
    print(f"topics {', '.join(topics.values())}; the relay's log is in {directory}", flush=True)
    create_topics(options, topics)
    relay, admin = start_relay(options, topics, directory)
    consumers = []
    try:
        consumers += [JavaConsumer(java, options.brokers, name + "-java", names),
                      RdkafkaConsumer(options.brokers, name + "-librdkafka", names)]
        records = produce_all(options, topics, java, franz_go, consumers)
        wait_for_all(records, consumers, admin)
    finally:
        for each in consumers:
            each.end()
        relay.terminate()
        relay.wait(MAX_WAIT)
    check_times(records)
    source = [each for each in read_source(options.brokers, name + "-source", topics["source"]) if each.label() != "control"]
    wrong = find_wrong(records, source, [each.seen for each in consumers], topics["source"])
    sys.exit(0 if verdict(options, wrong, [len(records), *(len(each.seen) for each in consumers)]) else 1)


if __name__ == "__main__":
    main()
