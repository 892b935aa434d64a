"""`tarry repair`: every kind of damage in a data directory, what a repair keeps, and what the broker serves afterwards."""

import hashlib
import json
import random
import re
import signal
import struct
import subprocess
import time

import wire
from harness import case, eventually

KAFKA_STORAGE_ERROR = 56


def tree(directory):
    """Every file below it, with its contents."""
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in directory.rglob("*") if path.is_file()}


def repair(broker, *words):
    """(exit code, findings, summary)."""
    ran = subprocess.run([broker.binary, "repair", str(broker.data), "--json", *words], capture_output=True, text=True, timeout=120)
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert lines, ran.stderr
    return ran.returncode, lines[:-1], lines[-1]


def stopped_log(ctx, records=30, **configs):
    """A broker that was stopped in order, and a topic with a batch for each record."""
    broker = ctx.broker(shards=1)
    topic = ctx.topic()
    with broker.client() as client:
        client.create_topic(topic, **{"segment.bytes": "4096", **configs})
        for number in range(records):
            client.produce(topic, [wire.record(f"needle-{number:03}-" + "x" * 400)])
    assert broker.stop() == 0
    return broker, topic


def segments(broker, topic):
    return sorted((broker.data / "logs" / f"{topic}-0").glob("*.log"))


def positions(path):
    """Offset -> (position, size) of the batches."""
    data, at, out = path.read_bytes(), 0, {}
    while at + 12 <= len(data):
        offset, length = struct.unpack(">qi", data[at:at + 12])
        out[offset] = (at, 12 + length)
        at += 12 + length
    return out


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def cut(path, size):
    with open(path, "r+b") as file:
        file.truncate(size)


def offsets_of(client, topic):
    """Of the records; a hole is a control batch, which consumers pass over."""
    return [rec.offset for batch in client.everything(topic) if not batch.attributes & 0x20 for rec in batch.records]


def check_repaired(broker, topic, lost, end=30):
    """It is whole, the broker serves everything but `lost`, and goes on at `end`."""
    code, findings, _ = repair(broker, "--dry-run")
    assert code == 0 and not findings, findings
    broker.start()
    with broker.client() as client:
        assert offsets_of(client, topic) == [offset for offset in range(end) if offset not in lost]
        assert client.produce(topic, [wire.record("more")]).base_offset == end
        assert offsets_of(client, topic)[-1] == end
    broker.restart()
    with broker.client() as client:
        assert offsets_of(client, topic) == [offset for offset in range(end + 1) if offset not in lost]
    assert "out of service" not in broker.log(), broker.log()


@case("a flipped byte in a closed segment costs one batch, a dry run changes nothing, and the broker serves the rest")
def _(ctx):
    broker, topic = stopped_log(ctx)
    path = segments(broker, topic)[1]
    offset, (position, size) = list(positions(path).items())[3]
    flip(path, position + 100)
    before = tree(broker.data)
    code, findings, summary = repair(broker, "--dry-run")
    assert tree(broker.data) == before, "a dry run changed something"
    assert code == 1 and summary["damaged"] == summary["left"] == 1, summary
    found, = findings
    assert found["kind"] == "segment" and found["file"] == str(path) and found["position"] == position, found
    assert found["lost"] == {"first_offset": offset, "last_offset": offset, "records_at_most": 1}, found
    right = path.read_bytes()[position:]
    code, findings, summary = repair(broker, "--truncate")
    assert code == 0 and summary["left"] == 0, summary
    with open(findings[0]["moved_to"], "rb") as kept:
        assert kept.read() == right
    untouched = {name: digest for name, digest in before.items() if "/logs/" not in f"/{name}" and not name.startswith(".lock")}
    now = tree(broker.data)
    assert {name: now[name] for name in untouched} == untouched, "something whole was touched"
    check_repaired(broker, topic, {offset})


@case("a torn index, a missing one, and segments that were cut short are repaired, and the log keeps its end")
def _(ctx):
    def torn_index(paths):
        index = paths[1].with_suffix(".index")
        index.write_bytes(index.read_bytes() + b"abc")
        return set()

    def wrong_index(paths):
        paths[0].with_suffix(".timeindex").unlink()
        paths[1].with_suffix(".index").write_bytes(struct.pack(">ii", 3, 1000) + struct.pack(">ii", 5, 123))
        return set()

    def short_closed(paths):
        places = list(positions(paths[1]).items())
        cut(paths[1], places[-2][1][0] + 30)
        return {offset for offset, _ in places[-2:]}

    def short_active(paths):
        offset, (position, _) = list(positions(paths[-1]).items())[-1]
        cut(paths[-1], position + 100)
        return {offset}

    for damage in (torn_index, wrong_index, short_closed, short_active):
        broker, topic = stopped_log(ctx)
        lost = damage(segments(broker, topic))
        before = tree(broker.data)
        code, findings, _ = repair(broker, "--dry-run")
        assert code == 1 and findings and tree(broker.data) == before, (damage.__name__, findings)
        code, _, summary = repair(broker, "--truncate")
        assert code == 0 and summary["left"] == 0, (damage.__name__, summary)
        check_repaired(broker, topic, lost)
        assert broker.stop() == 0


@case("a journal that is damaged at its tail costs the records of the broken round, and the broker starts again")
def _(ctx):
    broker = ctx.broker(shards=1, settings={"tarry.checkpoint.interval.ms": 3_600_000})
    topic, delayed = ctx.topic(), ctx.topic("delayed")
    with broker.client() as client:
        client.create_topic(topic)
        client.create_topic(delayed)
        for number in range(40):
            client.produce(topic, [wire.record(f"needle-{number:03}-" + "x" * 200)])
            client.produce(delayed, [wire.record(f"later-{number:03}", x_delay="1h")])
    time.sleep(1.0)  # Let an idle journal say up to where it was synced.
    broker.kill()
    code, findings, _ = repair(broker, "--dry-run")
    assert code == 0 and not findings, "a killed broker leaves no damage"
    for needle in (b"needle-020-", b"later-039"):
        path, = [path for path in (broker.data / "journal").rglob("*.journal") if needle in path.read_bytes()]
        flip(path, path.read_bytes().index(needle) + 3)
    before = tree(broker.data)
    code, findings, _ = repair(broker, "--dry-run")
    assert tree(broker.data) == before and code == 1
    assert {found["kind"] for found in findings} == {"journal"} and all(found["repairable"] for found in findings), findings
    assert any(found.get("lost") == {"first_offset": 20, "last_offset": 20, "records_at_most": 1} for found in findings), findings
    code, _, summary = repair(broker, "--truncate")
    assert code == 0 and summary["left"] == 0, summary
    assert len(list((broker.data / "kept").glob("journal-0-*.damaged"))) == 2
    broker.start()
    with broker.client() as client:
        assert offsets_of(client, topic) == [offset for offset in range(40) if offset != 20]
        assert len(broker.pending(delayed)) == 39
        assert client.produce(topic, [wire.record("more")]).base_offset == 40
    broker.restart()
    assert len(broker.pending(delayed)) == 39


@case("a partition that the broker took out of service is served again, with what the start has saved of it")
def _(ctx):
    for start_between in (True, False):
        broker, topic = stopped_log(ctx, records=10, **{"segment.bytes": str(1 << 20)})
        broker.settings["tarry.checkpoint.interval.ms"] = 3_600_000
        broker.start()
        with broker.client() as client:
            for number in range(5):
                client.produce(topic, [wire.record(f"late-{number}")])
        broker.kill()
        # The records 8 and 9 were synced, and are gone.
        path, = segments(broker, topic)
        cut(path, positions(path)[8][0])
        for suffix in (".index", ".timeindex"):
            path.with_suffix(suffix).write_bytes(b"")
        if start_between:
            broker.start()
            eventually(lambda: "out of service" in broker.log() and "copied from the journal to" in broker.log(), "what the start has saved")
            with broker.client() as client:
                assert client.produce(topic, [wire.record("no")], check=False).error == KAFKA_STORAGE_ERROR
            assert broker.stop() == 0
            broker.log_file.write_text("")
        code, findings, _ = repair(broker, "--truncate")
        assert code == 0, findings
        assert any(found.get("lost") == {"first_offset": 8, "last_offset": 9, "records_at_most": 2} for found in findings), findings
        check_repaired(broker, topic, {8, 9}, end=15)
        assert broker.stop() == 0


@case("tarry consume ends with an error, or warns, at a partition out of service")
def _(ctx):
    broker, topic = stopped_log(ctx, records=3)
    path = segments(broker, topic)[0]
    flip(path, positions(path)[0][0] + 30)
    broker.start()
    for words in ((), ("-g", "billing")):
        said = broker.cli("consume", topic, "--until-end", "--timeout", "4s", *words, check=False, within=20)
        assert said.returncode == 1 and not said.stdout, said
        assert len(said.stderr.splitlines()) == 1 and topic in said.stderr and "KAFKA_STORAGE_ERROR" in said.stderr and "tarry doctor" in said.stderr, said
    said = broker.cli("consume", topic, "--timeout", "2s", "--idle", "2s", check=False, within=20)
    assert said.returncode == 1 and "reading continues when it is served again" in said.stderr.splitlines()[0], said


@case("a repair that is killed at any moment leaves a directory that the next one repairs")
def _(ctx):
    broker, topic = stopped_log(ctx, records=1, **{"segment.bytes": str(1 << 30)})
    path, = segments(broker, topic)
    first = path.read_bytes()
    # A large segment, written as a broker would have: one record a batch, 3 MB.
    with open(path, "wb") as log:
        for number in range(12):
            log.write(first if number == 0 else wire.batch([wire.record("y" * 250_000)], base_offset=number, leader_epoch=0))
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).unlink()
    code, _, _ = repair(broker, "--truncate")
    assert code == 0
    flip(path, positions(path)[2][0] + 500)
    for delay in (0.01, 0.02, 0.03, 0.06):
        process = subprocess.Popen([broker.binary, "repair", str(broker.data), "--truncate"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
    code, _, summary = repair(broker, "--truncate")
    assert code == 0 and summary["left"] == 0, summary
    check_repaired(broker, topic, {2}, end=12)


@case("a damaged database is told and left as it is, and what is not damaged exits with 0")
def _(ctx):
    broker, topic = stopped_log(ctx)
    before = tree(broker.data)
    code, findings, summary = repair(broker, "--dry-run")
    assert code == 0 and not findings and summary["partitions"] == 1 and summary["batches"] == 30, summary
    code, findings, _ = repair(broker, "--truncate")
    assert code == 0 and not findings
    after = tree(broker.data)
    before.pop(".lock"), after.pop(".lock")
    assert after == before
    table = max((broker.data / "db/meta").glob("*.sst"), key=lambda path: path.stat().st_size)
    flip(table, 20)
    for flag in ("--dry-run", "--truncate"):
        code, findings, _ = repair(broker, flag)
        assert code == 1 and [found["kind"] for found in findings] == ["database"], findings
        assert findings[0]["file"].endswith("db/meta") and not findings[0]["repairable"], findings
    flip(table, 20)
    check_repaired(broker, topic, set())


def lost_offsets(broker, topic, findings):
    """What a repair says of the topic, by the directory of its log or, for a journal, by its id."""
    folder = broker.data / "logs" / f"{topic}-0"
    topic_id = re.search(r"topic_id: (\S+)", (folder / "partition.metadata").read_text())[1]
    out = set()
    for found in findings:
        if "lost" in found and (found["file"].startswith(f"{folder}/") or found["problem"].endswith(topic_id)):
            out |= set(range(found["lost"]["first_offset"], found["lost"]["last_offset"] + 1))
    return out


@case("after kill -9 and damage in many files a repair loses what was in the broken batches, says so, and everything else is served")
def _(ctx):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    broker = ctx.broker(shards=2, settings={"tarry.checkpoint.interval.ms": 3_600_000})
    topics = [ctx.topic(f"t{number}") for number in range(4)]
    delayed = ctx.topic("delayed")
    acknowledged = {topic: {} for topic in topics}

    def produce(client, rounds):
        for number in range(rounds):
            for topic in topics:
                values = [f"{topic}-{number}-{chance.random()}-" + "z" * chance.randrange(300) for _ in range(chance.randrange(1, 4))]
                base = client.produce(topic, [wire.record(value) for value in values]).base_offset
                acknowledged[topic].update({base + i: value for i, value in enumerate(values)})

    with broker.client() as client:
        for topic in topics:
            client.create_topic(topic, **{"segment.bytes": "8192", "index.interval.bytes": "500"})
        client.create_topic(delayed)
        client.produce(delayed, [wire.record(f"later-{number}", x_delay="1h") for number in range(50)])
        produce(client, 90)
    assert broker.stop() == 0  # With a checkpoint: the logs alone have these.
    ends = {topic: max(acknowledged[topic]) + 1 for topic in topics}
    broker.start()
    with broker.client() as client:
        produce(client, 20)
    time.sleep(1.0)  # Let the idle journals say up to where they were synced.
    broker.kill()

    broken = {topic: set() for topic in topics}
    for topic in topics[:3]:
        paths = segments(broker, topic)
        closed = [(path, int(later.stem)) for path, later in zip(paths, paths[1:]) if int(later.stem) <= ends[topic]]
        for path, end in chance.sample(closed, 2):
            offset, (position, size) = chance.choice(list(positions(path).items()))
            broken[topic] |= set(range(offset, min((other for other in positions(path) if other > offset), default=end)))
            flip(path, position + chance.randrange(21, size))  # Behind the fields that no checksum covers.
        index = chance.choice(closed)[0].with_suffix(chance.choice((".index", ".timeindex")))
        index.write_bytes(index.read_bytes()[:-3] if index.stat().st_size else b"abc")
    topic = topics[3]
    needle = chance.choice(list(acknowledged[topic].values())[-25:-15]).encode()
    path, = [path for path in (broker.data / "journal").rglob("*.journal") if needle in path.read_bytes()]
    flip(path, path.read_bytes().index(needle))

    code, told, _ = repair(broker, "--dry-run")
    assert code == 1 and all(found["repairable"] for found in told), told
    code, findings, summary = repair(broker, "--truncate")
    assert code == 0 and summary["left"] == 0 and findings == told, summary
    lost = {topic: lost_offsets(broker, topic, findings) for topic in topics}
    for topic in topics[:3]:
        assert lost[topic] == broken[topic], (seed, topic, lost[topic], broken[topic])
    assert 1 <= len(lost[topics[3]]) <= 3, (seed, lost[topics[3]])
    broker.start()
    assert "out of service" not in broker.log(), broker.log()
    with broker.client() as client:
        for topic in topics:
            served = [(rec.offset, rec.value.decode()) for batch in client.everything(topic) if not batch.attributes & 0x20 for rec in batch.records]
            assert served == [(offset, value) for offset, value in acknowledged[topic].items() if offset not in lost[topic]], (seed, topic)
            assert client.produce(topic, [wire.record("more")]).base_offset == max(acknowledged[topic]) + 1
    assert len(broker.pending(delayed)) == 50


@case("while a journal cannot be repaired the logs are left alone, because it may have their end")
def _(ctx):
    broker, topic = stopped_log(ctx, records=10, **{"segment.bytes": str(1 << 20)})
    broker.settings["tarry.checkpoint.interval.ms"] = 3_600_000
    broker.start()
    with broker.client() as client:
        client.produce(topic, [wire.record("late")])
    broker.kill()
    log, = segments(broker, topic)
    with open(log, "ab") as file:  # As a kill in the middle of a write leaves it; the journal has the record.
        file.write(b"half a batch")
    checkpoint, = (broker.data / "journal").rglob("checkpoint")
    line = checkpoint.read_text()
    checkpoint.write_text(line[:20])
    before = tree(broker.data)
    for flag in ("--dry-run", "--truncate"):
        code, findings, summary = repair(broker, flag)
        assert code == 1 and [found["kind"] for found in findings] == ["journal"] and not findings[0]["repairable"], findings
        assert summary["partitions"] == 0 and any("was not checked" in note for note in summary["notes"]), summary
        now = tree(broker.data)
        before.pop(".lock", None), now.pop(".lock", None)
        assert now == before
    checkpoint.write_text(line)
    check_repaired(broker, topic, set(), end=11)


@case("what a start has saved of a deleted topic is not put into a new one of its name")
def _(ctx):
    broker, topic = stopped_log(ctx, records=10, **{"segment.bytes": str(1 << 20)})
    broker.settings["tarry.checkpoint.interval.ms"] = 3_600_000
    broker.start()
    with broker.client() as client:
        client.produce(topic, [wire.record("late")])
    broker.kill()
    path, = segments(broker, topic)
    cut(path, positions(path)[8][0])
    broker.start()
    assert "copied from the journal to" in broker.log(), broker.log()
    broker.cli("topic", "delete", topic)
    with broker.client() as client:
        client.create_topic(topic)
        client.produce(topic, [wire.record("new")])
    assert broker.stop() == 0
    saved, = (broker.data / "kept").glob("*.log")
    code, findings, _ = repair(broker, "--truncate")
    assert code == 0 and not findings and saved.exists(), findings
    broker.log_file.write_text("")
    check_repaired(broker, topic, set(), end=1)


@case("repair refuses a directory that is in use or none, and wants to be told what to do")
def _(ctx):
    broker = ctx.broker()
    for flag in ("--dry-run", "--truncate"):
        refused = broker.cli("repair", broker.data, flag, check=False)
        assert refused.returncode == 1 and refused.stderr.count("\n") == 1, refused.stderr
        assert f"pid {broker.process.pid}" in refused.stderr and str(broker.data) in refused.stderr, refused.stderr
    assert broker.stop() == 0
    for words in ((), ("--dry-run", "--truncate")):
        refused = broker.cli("repair", broker.data, *words, check=False)
        assert refused.returncode == 2 and "--truncate" in refused.stderr, refused.stderr
    properties = broker.data / "meta.properties"
    text = properties.read_text()
    properties.write_text(text.replace("version=1", "version=9"))
    before = tree(broker.data)
    for flag in ("--dry-run", "--truncate"):
        refused = broker.cli("repair", broker.data, flag, check=False)
        assert refused.returncode == 1 and "version '9'" in refused.stderr and tree(broker.data) == before, refused.stderr
    properties.write_text(text)
    nothing = ctx.directory / "nothing"
    nothing.mkdir()
    refused = broker.cli("repair", nothing, "--dry-run", check=False)
    assert refused.returncode == 1 and "meta.properties" in refused.stderr and not list(nothing.iterdir()), refused.stderr
    said = broker.cli("repair", broker.data, "--dry-run")
    assert re.search(r"0 places damaged", said.stdout), said.stdout
