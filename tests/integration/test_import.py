"""`tarry import-log`: log directories as an Apache Kafka broker leaves them, and what a broker and its consumers have of them."""

import base64
import json
import os
import signal
import struct
import subprocess

import compression
import wire
from harness import case
from test_repair import tree

OFFSET_FETCH = 9
TRANSACTIONAL, CONTROL = 0x10, 0x20


class KafkaDirectory:
    """A log directory in Kafka's layout."""

    def __init__(self, path):
        self.path = path
        path.mkdir()
        (path / "meta.properties").write_text("cluster.id=abc\nversion=1\nnode.id=1\n")
        self.starts = {}

    def partition(self, topic, number, segments, start=None, topic_id=None):
        """segments: base -> batches."""
        folder = self.path / f"{topic}-{number}"
        folder.mkdir()
        topic_id = topic_id or base64.urlsafe_b64encode(topic.encode().ljust(16, b"."))[:22].decode()
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
        (folder / "leader-epoch-checkpoint").write_text("0\n1\n3 0\n")
        for base, batches in segments.items():
            (folder / f"{base:020}.log").write_bytes(b"".join(batches))
            (folder / f"{base:020}.index").write_bytes(b"")
            (folder / f"{base:020}.timeindex").write_bytes(b"")
        if start is not None:
            self.starts[topic, number] = start
            lines = [f"{name} {index} {offset}\n" for (name, index), offset in self.starts.items()]
            (self.path / "log-start-offset-checkpoint").write_text(f"0\n{len(lines)}\n{''.join(lines)}")
        return folder

    def cleaned(self, topic, number, offset):
        (self.path / "cleaner-offset-checkpoint").write_text(f"0\n1\n{topic} {number} {offset}\n")


def batch(base, *values, codec=0, producer=None, **how):
    if producer is not None:
        how.update(producer=(producer, 0, 0), attributes=codec | TRANSACTIONAL)
    records = [wire.record(value, key=f"k-{value}", timestamp=1_700_000_000_000 + base + i) for i, value in enumerate(values)]
    return wire.batch(records, codec, base_offset=base, leader_epoch=3, **how)


def marker(base, producer, commits):
    record = wire.record(b"\0\0\0\0\0\3", key=b"\0\0" + struct.pack(">h", int(commits)), timestamp=1_700_000_000_000 + base)
    return wire.batch([record], base_offset=base, leader_epoch=3, producer=(producer, 0, -1), attributes=TRANSACTIONAL | CONTROL)


def committed_record(group, topic, partition, offset):
    key = wire.i16(1) + wire.string(group) + wire.string(topic) + wire.i32(partition)
    value = None if offset is None else wire.i16(3) + wire.i64(offset) + wire.i32(3) + wire.string("note") + wire.i64(1_700_000_000_000)
    return wire.Record(value, key, [], 1_700_000_000_000)


def kafka_logs(ctx):
    """Transactions, compression, a start behind the first segment, holes, groups, and Kafka's own topics."""
    kafka = KafkaDirectory(ctx.directory / "kafka")
    kafka.partition("orders", 0, {
        0: [batch(0, "deleted")], 10: [batch(10, "a", "b"), batch(12, "c", codec=compression.GZIP), batch(13, "d", codec=compression.LZ4)],
        20: [batch(20, "committed", producer=7), batch(21, "aborted", producer=8), marker(22, 8, False), marker(23, 7, True),
             batch(24, "open", producer=9)]}, start=11)
    kafka.partition("orders", 1, {0: [batch(0, "x"), batch(5, "behind a hole")]})
    kafka.partition("orders", 2, {7: []})
    kafka.partition("state", 0, {0: [batch(3, "kept by compaction")]})
    kafka.cleaned("state", 0, 4)
    offsets = [committed_record("billing", "orders", 0, 13), committed_record("gone", "orders", 0, 12), committed_record("gone", "orders", 0, None),
               committed_record("billing", "orders", 1, 6), committed_record("billing", "unknown", 0, 6)]
    kafka.partition("__consumer_offsets", 0, {0: [wire.batch(offsets, base_offset=0, leader_epoch=3)]})
    for number in range(1, 50):
        kafka.partition("__consumer_offsets", number, {0: []})
    kafka.partition("__transaction_state", 0, {0: []})
    return kafka


def import_log(ctx, broker, *words):
    """(exit code, {topic: line}, summary, stderr)."""
    ran = subprocess.run([broker.binary, "import-log", *map(str, words), "--data", str(broker.data), "--json"], capture_output=True, text=True, timeout=120)
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    return ran.returncode, {line["topic"]: line for line in lines if "topic" in line}, (lines or [None])[-1], ran.stderr


def records_of(client, topic, partition=0, start=0):
    """(offset, value) of all that a consumer gets from `start` on."""
    out, offset, end = [], start, client.end_offset(topic, partition)
    while offset < end:
        found = client.fetch(topic, offset, partition, max_wait=100).batches(check_crc=True)
        assert found and all(each.crc_ok for each in found), f"nothing at {offset} of {end}"
        out += [(rec.offset, rec.value.decode()) for each in found if not each.attributes & CONTROL for rec in each.records if rec.offset >= offset]
        offset = found[-1].last_offset + 1
    return out


def committed(client, group, topic, partition):
    answer = client.request(OFFSET_FETCH, 1, wire.string(group) + wire.i32(1) + wire.string(topic) + wire.i32(1) + wire.i32(partition))
    answer.i32(), answer.string(), answer.i32(), answer.i32()
    return answer.i64()


@case("topics of Kafka's log directories are served with their offsets, timestamps and compression, and go on at their end")
def _(ctx):
    kafka = kafka_logs(ctx)
    source = tree(kafka.path)
    broker = ctx.broker(start=False)
    code, topics, summary, said = import_log(ctx, broker, kafka.path, "--dry-run")
    assert code == 0 and topics["orders"]["state"] == "would be imported" and not broker.data.exists(), said
    code, topics, summary, said = import_log(ctx, broker, kafka.path)
    assert code == 0, said
    orders = topics["orders"]
    assert (orders["partitions"], orders["records"], orders["aborted_records"], orders["unfinished_records"], orders["control_batches"]) == (3, 7, 1, 1, 2), orders
    assert orders["committed_offsets"] == 2 and summary["internal"] == ["__consumer_offsets", "__transaction_state"], summary
    assert "compacted" in topics["state"]["notes"][0], topics["state"]
    assert tree(kafka.path) == source, "the source was changed"

    broker.start()
    assert "the journal is missing" not in broker.log(), broker.log()
    with broker.client() as client:
        assert client.end_offset("orders", 0, timestamp=-2) == 11 and client.end_offset("orders", 0) == 25
        assert records_of(client, "orders", 0, 11) == [(11, "b"), (12, "c"), (13, "d"), (20, "committed")]
        assert records_of(client, "orders", 1) == [(0, "x"), (5, "behind a hole")]
        assert client.end_offset("orders", 2, timestamp=-2) == client.end_offset("orders", 2) == 7
        assert records_of(client, "state") == [(3, "kept by compaction")]
        batches = client.fetch("orders", 12).batches()
        assert batches[0].codec == compression.GZIP and batches[0].records[0].timestamp == 1_700_000_000_012, batches[0]
        assert {each.leader_epoch for each in batches} == {0}
        assert client.end_offset("orders", 1, timestamp=1_700_000_000_005) == 5, "found by its timestamp"
        assert committed(client, "billing", "orders", 0) == 13 and committed(client, "billing", "orders", 1) == 6
        assert committed(client, "gone", "orders", 0) == -1
        for partition, end in ((0, 25), (1, 6), (2, 7)):
            assert client.produce("orders", [wire.record("more")], partition).base_offset == end
    assert broker.cli("consume", "orders", "-p", "0", "--until-end", "--format", "%o %s\\n").stdout.splitlines() == [
        "11 b", "12 c", "13 d", "20 committed", "25 more"]
    configs = broker.cli("topic", "describe", "state", "--json").stdout
    assert json.loads(configs)["configs"]["retention.ms"]["value"] == "-1", configs
    broker.restart()
    with broker.client() as client:
        assert records_of(client, "orders", 0, 11)[-1] == (25, "more") and len(records_of(client, "orders", 0, 11)) == 5
        assert records_of(client, "orders", 2, 7) == [(7, "more")]
    assert "out of service" not in broker.log()
    assert broker.stop() == 0
    checked = broker.cli("repair", broker.data, "--dry-run")
    assert "0 places damaged" in checked.stdout, checked.stdout


@case("committed offsets that cannot be read whole stop an import before anything is written, and can be left out")
def _(ctx):
    kafka = KafkaDirectory(ctx.directory / "kafka")
    kafka.partition("orders", 0, {0: [batch(0, "a", "b")]})
    newer = wire.Record(b"\0\0", wire.i16(3) + wire.string("new"), [], 1_700_000_000_000)  # A group of Kafka's newer protocol.
    first = kafka.partition("__consumer_offsets", 0, {0: [wire.batch([committed_record("billing", "orders", 0, 1), newer], base_offset=0, leader_epoch=3)]})
    broker = ctx.broker(start=False)
    code, _, _, said = import_log(ctx, broker, kafka.path)
    assert code == 1 and "partitions 1, 2, 3" in said and "--offsets-partitions" in said and "--no-offsets" in said, said
    assert not broker.data.exists()
    code, topics, summary, said = import_log(ctx, broker, kafka.path, "--dry-run")
    assert code == 1 and "partitions 1, 2, 3" in summary["committed_offsets_error"] and topics["orders"]["state"] == "would be imported", summary
    log = first / f"{0:020}.log"
    right = log.read_bytes()
    log.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    code, _, _, said = import_log(ctx, broker, kafka.path, "--offsets-partitions", "1")
    assert code == 1 and str(log) in said and not broker.data.exists(), said
    log.write_bytes(right)
    code, topics, summary, said = import_log(ctx, broker, kafka.path, "--offsets-partitions", "1", "--dry-run")
    assert code == 0 and topics["orders"]["committed_offsets"] == 1 and summary["group_records_skipped"] == 1, said
    log.write_bytes(right[:-1])
    code, topics, summary, said = import_log(ctx, broker, kafka.path, "--no-offsets")
    assert code == 0 and topics["orders"]["state"] == "imported" and topics["orders"]["committed_offsets"] == 0, said
    (kafka.partition("orders", 1, {0: [batch(0, "x")]}) / f"{0:020}.log.swap").write_bytes(b"")
    other = ctx.broker(start=False)
    code, topics, _, said = import_log(ctx, other, kafka.path, "--no-offsets")
    assert code == 1 and ".log.swap" in topics["orders"]["error"] and "start it, stop it cleanly" in topics["orders"]["error"], topics


@case("an import into a directory with topics adds to them, is repeated without harm, and overwrites nothing")
def _(ctx):
    kafka = kafka_logs(ctx)
    broker = ctx.broker()
    with broker.client() as client:
        client.create_topic("own")
        client.create_topic("state")
        client.produce("state", [wire.record("mine")])
    for words in ((), ("--dry-run",)):
        code, _, _, said = import_log(ctx, broker, kafka.path, *words)
        assert code == 1 and f"pid {broker.process.pid}" in said, said
    broker.kill()
    for words in ((), ("--dry-run",)):
        code, _, _, said = import_log(ctx, broker, kafka.path, *words)
        assert code == 1 and "did not stop cleanly" in said, said
    broker.start()
    assert broker.stop() == 0
    before = tree(broker.data)
    code, topics, _, said = import_log(ctx, broker, kafka.path, "--dry-run")
    assert code == 1 and "state: a topic of this name exists" in said and tree(broker.data) == before, said
    assert topics["orders"]["state"] == "would be imported" and topics["state"]["state"] == "exists", topics
    code, topics, _, said = import_log(ctx, broker, kafka.path, "--config", "retention.ms=30d", "--topic", "orders", "--topic", "st*")
    assert code == 1 and "state: a topic of this name exists" in said, said
    assert topics["orders"]["state"] == "imported" and topics["state"]["state"] == "exists", topics
    code, topics, _, said = import_log(ctx, broker, kafka.path, "--topic", "orders")
    assert code == 0 and topics["orders"]["state"] == "exists", said
    broker.start()
    with broker.client() as client:
        assert set(client.metadata()) == {"own", "state", "orders"}
        assert records_of(client, "state") == [(0, "mine")]
        assert len(records_of(client, "orders", 0, 11)) == 4
    described = json.loads(broker.cli("topic", "describe", "orders", "--json").stdout)
    assert described["configs"]["retention.ms"]["value"] == str(30 * 86400 * 1000), described


@case("what cannot be imported is refused by its name: old formats, broken batches, missing partitions, a wrong config, a running Kafka")
def _(ctx):
    kafka = KafkaDirectory(ctx.directory / "kafka")
    kafka.partition("good", 0, {0: [batch(0, "a")]})
    old = kafka.partition("old", 0, {0: [batch(0, "a"), batch(1, "b", magic=1)]})
    broken = kafka.partition("broken", 0, {0: [batch(0, "a", "b"), batch(2, "c", crc=1)]})
    kafka.partition("gap", 0, {0: [batch(0, "a")]})
    kafka.partition("gap", 2, {0: [batch(0, "a")]})
    kafka.partition("mixed", 0, {0: [batch(0, "a")]})
    kafka.partition("mixed", 1, {0: [batch(0, "a")]}, topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    broker = ctx.broker(start=False)
    refused = broker.cli("import-log", kafka.path, "--data", broker.data, "--config", "cleanup.policy=compact", check=False)
    assert refused.returncode == 2 and "compact" in refused.stderr and not broker.data.exists(), refused.stderr
    with open(kafka.path / ".lock", "w") as lock:
        import fcntl
        fcntl.lockf(lock, fcntl.LOCK_EX)
        code, _, _, said = import_log(ctx, broker, kafka.path)
        assert code == 1 and f"pid {os.getpid()}" in said, said
    code, topics, _, said = import_log(ctx, broker, kafka.path)
    assert code == 1 and {name: line["state"] for name, line in topics.items()} == {
        "good": "imported", "old": "refused", "broken": "refused", "gap": "refused", "mixed": "refused"}, topics
    assert f"{old}/{0:020}.log" in topics["old"]["error"] and "offset 1" in topics["old"]["error"] and "format 1" in topics["old"]["error"]
    assert f"{broken}/{0:020}.log" in topics["broken"]["error"] and "offset 2" in topics["broken"]["error"]
    assert "partitions 1 are" in topics["gap"]["error"], topics["gap"]
    broker.start()
    with broker.client() as client:
        assert set(client.metadata()) == {"good"}
    assert sorted(path.name for path in (broker.data / "logs").iterdir()) == ["good-0"]
    empty = ctx.directory / "empty"
    empty.mkdir()
    code, _, _, said = import_log(ctx, broker, empty)
    assert code == 1 and str(empty) in said, said


@case("an import that is killed at any moment leaves each topic whole or not there, and the next one does the rest")
def _(ctx):
    kafka = KafkaDirectory(ctx.directory / "kafka")
    value = os.urandom(10_000).hex()
    names = [f"topic{number}" for number in range(6)]
    for name in names:
        for partition in range(2):
            kafka.partition(name, partition, {0: [batch(offset, value) for offset in range(10)]})
    broker = ctx.broker(start=False)
    seen = set()
    for delay in (0.02, 0.03, 0.05, 0.1):
        process = subprocess.Popen([broker.binary, "import-log", str(kafka.path), "--data", str(broker.data)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        broker.start()
        with broker.client() as client:
            there = set(client.metadata())
            assert seen <= there, f"{seen - there} have gone"
            for name in there:
                for partition in range(2):
                    assert [offset for offset, _ in records_of(client, name, partition)] == list(range(10)), name
            seen = there
        assert broker.stop() == 0
    code, topics, _, said = import_log(ctx, broker, kafka.path)
    assert code == 0 and {line["state"] for line in topics.values()} <= {"imported", "exists"}, said
    broker.start()
    with broker.client() as client:
        assert set(client.metadata()) == set(names)
        for name in names:
            assert [offset for offset, _ in records_of(client, name, 1)] == list(range(10))
    assert not [path for path in (broker.data / "logs").iterdir() if path.name.rsplit("-", 1)[0] not in names]
