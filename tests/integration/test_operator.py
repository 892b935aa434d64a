"""What is wrong on the machine: one line that names the thing, its value and what to do, exit 1,
and nothing changed."""

import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

import wire
from harness import Broker, Skip, case, eventually, now_ms, run


def contents(folder):
    """File -> hash of all that stands below it, but for who had it open and what RocksDB notes of that."""
    notes = re.compile(r"(.*/)?(\.lock|LOCK|LOG|LOG\.old\.\d+|CURRENT|MANIFEST-\d+|OPTIONS-\d+|\d+\.log)$")
    return {name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(pathlib.Path(folder).rglob("*"))
            if path.is_file() and not notes.match(name := str(path.relative_to(folder)))}


def check_refused(broker, *words, code=1, within=30, data=None, **popen):
    """Starting it prints one line with these words, exits with `code` and changes nothing below data."""
    data = data or broker.data
    before = contents(data) if data.is_dir() else None
    started = subprocess.run(broker.command(), stdin=subprocess.DEVNULL, capture_output=True, timeout=within, **popen)
    said = started.stderr.decode(errors="replace").strip()
    assert started.returncode == code, f"exit code {started.returncode}: {said}"
    assert len(said.splitlines()) == 1, f"not one line:\n{said}"
    assert started.stdout == b"", started.stdout
    for word in words:
        assert str(word) in said, f"no {word!r} in: {said}"
    after = contents(data) if data.is_dir() else None
    assert after == before, "the directory was changed: " + ", ".join(sorted(
        {name for name in {**(before or {}), **(after or {})} if (before or {}).get(name) != (after or {}).get(name)}))
    return said


def another(broker, **how):
    """A second broker of the same binary, on the same directory unless told otherwise."""
    second = Broker(broker.binary, broker.directory, **how)
    second.log_file = broker.directory / "second.log"
    return second


@case("a second broker on the directory is refused, and the first keeps running")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        second = another(broker)
        started = subprocess.run(second.command(), stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
        said = started.stderr.decode().strip()
        assert started.returncode == 1 and len(said.splitlines()) == 1 and str(broker.data) in said, said
        client.produce(topic, [wire.record("v")])
        assert len(client.consume(topic, 1)) == 1


@case("log.dirs of a broker, that runs or is stopped, is refused to another data directory, also to a backup of its own, and doctor says so")
def _(ctx):
    logs = ctx.directory / "segments"
    broker = ctx.broker(settings={"log.dirs": logs})
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.produce(topic, [wire.record("before")])
        copy, new = ctx.directory / "copy", ctx.directory / "new"
        broker.cli("backup", copy)
        client.produce(topic, [wire.record("after")])
        second = another(broker, settings={"log.dirs": logs})
        for second.data in (copy, new):
            check_refused(second, logs, f"in use by the broker with pid {broker.process.pid}", "log.dirs")
        assert not new.exists(), "a start that is refused makes nothing"
        looked = run(broker.binary, "doctor", "--data", copy, "--set", f"log.dirs={logs}", "--set", "listeners=127.0.0.1:0",
                     "--set", "tarry.admin.listener=off", "--json", check=False, env={"TARRY_BROKERS": "", "TARRY_ADMIN": ""})
        assert looked.returncode == 1 and f"in use by the broker with pid {broker.process.pid}" in looked.stdout, looked
    assert broker.stop() == 0
    for second.data in (copy, new):
        check_refused(second, logs, "another data directory", broker.data, logs / "owner.properties")
    broker.start()
    with broker.client() as client:
        assert [rec.value for rec in client.consume(topic, 2)] == [b"before", b"after"]


@case("a port in use is refused with its address, for Kafka and for the admin")
def _(ctx):
    broker = ctx.broker(start=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker.address = ("127.0.0.1", port)
        check_refused(broker, f"127.0.0.1:{port}")
        broker.address, broker.admin = ("127.0.0.1", 0), ("127.0.0.1", port)
        check_refused(broker, f"127.0.0.1:{port}")
    broker.admin = ("127.0.0.1", 0)
    broker.start()


@case("an unknown key, a bad value, a value out of range and a missing file are refused by name")
def _(ctx):
    broker = ctx.broker(start=False)
    for key, value, words in (("no.such.key", "1", ["no.such.key"]), ("log.segment.bytes", "many", ["log.segment.bytes", "many"]),
                              ("log.segment.bytes", "-3", ["log.segment.bytes", "-3"]), ("num.partitions", "", ["num.partitions"]),
                              ("tarry.durability", "sometimes", ["tarry.durability", "sometimes"])):
        broker.settings = {key: value}
        check_refused(broker, *words)
        assert not broker.data.exists(), f"{key}={value} made the directory"
    broker.settings = {}
    config = broker.directory / "tarry.properties"
    config.write_text("# a comment\nnum.partitions=3\nlog.retention.mss=5\n")
    broker.arguments = ["--config", str(config)]
    check_refused(broker, "log.retention.mss", config)
    broker.arguments = ["--config", str(broker.directory / "nowhere.properties")]
    check_refused(broker, "nowhere.properties")
    config.write_text("num.partitions=3\n")
    broker.arguments = ["--config", str(config)]
    broker.start()
    with broker.client() as client:
        assert len(client.metadata(topic := ctx.topic(), create=True)[topic][2]) in (0, 3)
        eventually(lambda: len(client.metadata(topic)[topic][2]) == 3, "3 partitions by the file")


@case("an unknown flag is a usage error: one line, exit code 2")
def _(ctx):
    broker = ctx.broker(start=False)
    for words in (["--frobnicate"], ["--shards", "many"], ["--listen", "nowhere"], ["--set", "novalue"]):
        broker.arguments = words
        check_refused(broker, words[-1].lstrip("-"), code=2)
    broker.arguments = ["--listen", "29194"]
    check_refused(broker, "--listen 29194: expected HOST:PORT", code=2)


@case("a directory that cannot be made is refused with its path")
def _(ctx):
    broker = ctx.broker(start=False)
    (broker.directory / "file").write_text("no folder")
    broker.data = broker.directory / "file" / "data"
    check_refused(broker, broker.data)
    broker.data = broker.directory / "file"
    check_refused(broker, broker.data, "--data")
    for logs in (broker.directory / "file", broker.directory / "file" / "logs"):
        broker.data, broker.settings = broker.directory / "data", {"log.dirs": logs}
        check_refused(broker, f"log.dirs={logs}", "Not a directory")
        assert not broker.data.exists(), "a bad log.dirs made the data directory"
    # Its mode lets root write there, and nothing can be made there.
    broker.settings = {"log.dirs": "/proc/nope"}
    check_refused(broker, "log.dirs=/proc/nope", "cannot be written")
    assert not broker.data.exists()
    broker.data, broker.settings = broker.directory / "file" / "data", {"log.dirs": broker.directory / "new" / "logs"}
    check_refused(broker, broker.data)
    assert not (broker.directory / "new").exists(), "a start that was refused has left the directory for logs"


@case("a directory that may not be written is refused with its path, new or full of records")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.produce(topic, [wire.record("v")])
    assert broker.stop() == 0
    user = {}
    if os.geteuid() == 0:  # Root may write everywhere.
        user = {"user": 65534, "group": 65534, "extra_groups": []}
        for folder in (broker.directory, ctx.directory):
            folder.chmod(0o755)
        # Where it was built nobody else may be let in.
        built, broker.binary = broker.binary, ctx.directory / "tarry"
        shutil.copy(built, broker.binary)
        try:
            subprocess.run([broker.binary, "--version"], check=True, capture_output=True, **user)
        except PermissionError as closed:
            raise Skip(f"the user nobody may not run what is in {ctx.directory}: {closed}") from None
    full, broker.data = broker.data, broker.directory / "locked"
    broker.data.mkdir(mode=0o555)
    check_refused(broker, broker.data, "ermission", **user)
    broker.data = full
    folders = [full, *(path for path in full.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    check_refused(broker, broker.data, "ermission", **user)
    for folder in folders:
        folder.chmod(0o755)
    if user:  # The directories are the broker's, and the databases' files are root's, as after `cp -r`.
        for path in (*folders, full / ".lock", full / "meta.properties"):
            os.chown(path, 65534, 65534)
        check_refused(broker, broker.data, "Permission denied", f": {full}", "chown -R ", **user)
        for path in (*folders, full / ".lock", full / "meta.properties"):
            os.chown(path, 0, 0)
    broker.start()
    with broker.client() as client:
        assert len(client.consume(topic, 1)) == 1


@case("a directory of another version is refused with its version")
def _(ctx):
    broker = ctx.broker()
    assert broker.stop() == 0
    properties = broker.data / "meta.properties"
    lines = properties.read_text().splitlines()
    assert any(line.startswith("version=") for line in lines), lines
    properties.write_text("\n".join("version=4711" if line.startswith("version=") else line for line in lines) + "\n")
    check_refused(broker, "4711", broker.data)


def schedule_and_kill(ctx, **settings):
    """A broker, killed, whose journal holds pending records with values that can be found in it."""
    broker = ctx.broker(shards=1, settings={"tarry.checkpoint.interval.ms": 3_600_000, **settings})
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        for number in range(40):
            client.produce(topic, [wire.record(f"needle-{number:03}-" + "x" * 200, x_delay="1h")])
    # Let an idle journal say up to where it was synced.
    time.sleep(1.0)
    broker.kill()
    return broker, topic


def files_with(folder, needle):
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and needle in path.read_bytes()]


@case("a journal that is damaged in its synced part is refused with its file's name, and is not changed")
def _(ctx):
    broker, _ = schedule_and_kill(ctx)
    found = files_with(broker.data / "journal", b"needle-005-")
    assert len(found) == 1, found
    data = bytearray(found[0].read_bytes())
    data[data.index(b"needle-005-") + 50] ^= 1
    found[0].write_bytes(data)
    check_refused(broker, found[0].name)
    data[data.index(b"needle-005-") + 50] ^= 1
    found[0].write_bytes(data)
    broker.start()
    assert broker.get("/status")["delayed"]["pending"] == 40


@case("a journal that ends in a torn write is cut there, and acknowledged records are kept")
def _(ctx):
    broker, topic = schedule_and_kill(ctx)
    found = files_with(broker.data / "journal", b"needle-039-")
    assert len(found) == 1, found
    data = bytearray(found[0].read_bytes())
    end = len(data.rstrip(b"\0"))
    if len(data) < end + 8192:
        data += bytes(end + 8192 - len(data))
    start = (end + 4095) // 4096 * 4096
    data[start : start + 3000] = os.urandom(3000)
    found[0].write_bytes(data)
    broker.start()
    assert len(broker.pending(topic)) == 40


@case("a clean start logs two lines and no warning: what the data directory has, and that the broker is ready with its addresses")
def _(ctx):
    # Fewer connections than this machine's limit of open files serves.
    broker = ctx.broker(settings={"max.connections": 500})

    def started(pending):
        # The line on stdout comes before the second one here.
        eventually(lambda: len(broker.log().splitlines()) >= 2, "two lines")
        lines = [re.sub(r"^\S+ ", "", line) for line in broker.log().splitlines()]
        assert len(lines) == 2, lines
        assert lines[0] == f"I server: data directory {broker.data}: {pending} pending records", lines
        assert re.fullmatch(rf"I server: Tarry \S+ is ready: kafka={broker.brokers} admin=127\.0\.0\.1:{broker.admin[1]} data={re.escape(str(broker.data))} shards=2", lines[1]), lines

    started(0)
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.produce(topic, [wire.record("a", x_delay="1h"), wire.record("b", x_delay="1h")])
    assert broker.stop() == 0
    broker.log_file.unlink()
    broker.start()
    started(2)


@case("a directory without journal/ is refused; with an empty one it starts with a line in the log")
def _(ctx):
    broker, _ = schedule_and_kill(ctx)
    assert "the journal is missing" not in broker.log(), "a new directory has none, and nobody is told"
    shutil.rmtree(broker.data / "journal")
    check_refused(broker, f"{broker.data}/journal is missing", f"mkdir {broker.data}/journal")
    (broker.data / "journal").mkdir(mode=0o700)
    broker.start()
    assert broker.log().count("the journal is missing") == 1, broker.log()


@case("a damaged RocksDB is refused with its directory, and is not changed")
def _(ctx):
    for folder in ("db/pending", "db/meta"):
        broker, topic = schedule_and_kill(ctx)
        broker.start()
        assert broker.stop() == 0
        current = broker.data / folder / "CURRENT"
        manifest = broker.data / folder / current.read_text().strip()
        right = manifest.read_bytes()
        manifest.write_bytes(right[: len(right) // 2] + b"damage" + right[len(right) // 2 + 6 :])
        said = check_refused(broker, folder)
        assert "orrupt" in said or "damage" in said, said
        manifest.write_bytes(right)
        broker.start()
        assert len(broker.pending(topic)) == 40
        assert broker.stop() == 0


@case("SIGTERM during work stops it in order: exit code 0, nothing acknowledged is lost")
def _(ctx):
    broker = ctx.broker()
    acknowledged = []
    with broker.client() as client, broker.client() as waiting:
        topic, empty = client.create_topic(ctx.topic()), client.create_topic(ctx.topic("empty"))
        waiting.send(wire.FETCH, 11, waiting.fetch_body(empty, 0, max_wait=30_000))
        end = now_ms() + 700
        stopped = False
        try:
            while True:
                if not stopped and now_ms() > end - 300:
                    broker.process.send_signal(signal.SIGTERM)
                    stopped = True
                number = len(acknowledged)
                headers = {"x_delay": "1h"} if number % 2 else {}
                client.produce(topic, [wire.record(str(number), **headers)])
                acknowledged.append(number)
        except (wire.ConnectionEnded, wire.KafkaError, OSError):
            pass
    assert broker.process.wait(20) == 0
    broker.process.stdout.close()
    broker.process = None
    broker.start()
    with broker.client() as client:
        visible = [int(rec.value) for each in client.everything(topic) for rec in each.records]
        pending = broker.get("/status")["delayed"]["pending"]
    assert set(visible) >= {n for n in acknowledged if n % 2 == 0}
    assert len(visible) + pending in (len(acknowledged), len(acknowledged) + 1)


@case("a full disk is logged, loses no acknowledged record, and the broker serves again when there is space")
def _(ctx):
    folder = ctx.directory / "small"
    folder.mkdir()
    image = ctx.directory / "image"
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        raise Skip("mounting a small file system wants root and mkfs.ext4")
    with open(image, "wb") as file:
        file.truncate(300 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    if subprocess.run(["mount", "-o", "loop", image, folder], capture_output=True).returncode != 0:
        raise Skip("no file system can be mounted here")
    try:
        broker = ctx.broker(start=False, shards=1, settings={
            "tarry.checkpoint.interval.ms": 500, "tarry.disk.reserve.bytes": 8 << 20,
            "tarry.journal.file.bytes": 8 << 20, "tarry.journal.max.bytes": 64 << 20})
        broker.data = folder / "data"
        broker.start()
        acknowledged, megabyte = 0, wire.batch([wire.record("x" * 900_000)])
        with broker.client() as client:
            topic = client.create_topic(ctx.topic())
            # What is refused may be sent again: a checkpoint makes room, until there is none on the disk.
            patience = 30
            while patience and acknowledged < 400:
                try:
                    refused = client.produce(topic, megabyte, check=False)
                except (wire.ConnectionEnded, OSError):
                    break
                acknowledged += refused.error == 0
                patience = 30 if refused.error == 0 else patience - 1
                time.sleep(0.1 if refused.error else 0)
        assert 10 < acknowledged < 330, f"{acknowledged} MB fitted into 300"
        eventually(lambda: "disk full, no space" in broker.log(), "the log says that there is no space", within=5)
        assert broker.log().count("\n") < 30, "a full disk is told once, not with every try"
        if broker.process.poll() is None:
            broker.kill()
        else:
            broker.process.stdout.close()
            broker.process = None
        subprocess.run(["umount", folder], check=True)
        with open(image, "ab") as file:
            file.truncate(600 << 20)
        subprocess.run(["e2fsck", "-fy", image], capture_output=True)
        subprocess.run(["resize2fs", image], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, folder], check=True)
        broker.start()
        with broker.client() as client:
            assert client.end_offset(topic) >= acknowledged
            assert len(client.consume(topic, acknowledged, within=60)) >= acknowledged
            client.produce(topic, [wire.record("again")])
        assert broker.stop() == 0
    finally:
        for each in ctx.brokers:
            each.kill()
        subprocess.run(["umount", folder], capture_output=True)


@case("the command line, the state and readyz report a full disk, and stop reporting it once there is room")
def _(ctx):
    folder = ctx.directory / "small"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", folder], capture_output=True).returncode != 0:
        raise Skip("a small file system cannot be mounted here")
    try:
        broker = ctx.broker(start=False, shards=1, settings={"tarry.disk.reserve.bytes": 16 << 20, "tarry.journal.file.bytes": 8 << 20,
                                                             "tarry.journal.max.bytes": 64 << 20})
        broker.data = folder / "data"
        broker.start()
        topic = ctx.topic()
        broker.cli("topic", "create", topic)
        assert broker.http("GET", "/readyz", token=False) == (200, {"status": "running"})
        disk = os.statvfs(folder)
        subprocess.run(["fallocate", "-l", str(disk.f_bavail * disk.f_frsize - (12 << 20)), folder / "filler"], check=True)
        # Nobody produces: the broker's own look, which comes once a second.
        eventually(lambda: broker.http("GET", "/readyz", token=False)[0] == 503, "an idle broker has noticed it", within=5)
        with broker.client() as client:
            eventually(lambda: client.produce(topic, [wire.record("x" * 900_000)], check=False).error == wire.KAFKA_STORAGE_ERROR,
                       "the broker refuses records", pause=0.1)
        for words in ([], ["--acks", "1"], ["--json"]):
            said = broker.cli("produce", topic, "-v", "x", "--timeout", "2s", *words, check=False)
            assert said.returncode == 1 and "KAFKA_STORAGE_ERROR: disk full" in said.stderr and "no answer" not in said.stderr, said.stderr
            assert not words[-1:] == ["--json"] or "disk full" in said.stdout, said.stdout
        status, body = broker.http("GET", "/readyz", token=False)
        assert status == 503 and body["status"] == "disk full" and "disk full" in body["error"], body
        assert "disk full" in broker.cli("status").stdout
        assert "no space" in broker.log(), broker.log()
        (folder / "filler").unlink()
        eventually(lambda: broker.http("GET", "/readyz", token=False)[0] == 200, "it is ready again")
        assert "running" in broker.cli("status").stdout
        broker.cli("produce", topic, "-v", "there is room")
        assert "there is room" in broker.cli("consume", topic, "--until-end").stdout
        assert broker.stop() == 0
    finally:
        for each in ctx.brokers:
            each.kill()
        subprocess.run(["umount", folder], capture_output=True)


@case("a broker whose data directory is moved away refuses records and is not ready within seconds, and goes on when it is back")
def _(ctx):
    broker = ctx.broker()
    topic, away = ctx.topic(), broker.data.with_name("away")
    broker.cli("topic", "create", topic)
    broker.cli("produce", topic, "-v", "before")
    broker.data.rename(away)
    eventually(lambda: broker.http("GET", "/readyz", token=False)[0] == 503, "the broker has noticed it", within=5)
    status, body = broker.http("GET", "/readyz", token=False)
    assert (status, body["status"]) == (503, "without its data directory"), body
    with broker.client() as client:
        assert client.produce(topic, [wire.record("lost")], check=False).error == wire.KAFKA_STORAGE_ERROR
    assert "without its data directory" in broker.cli("status").stdout
    doctor = broker.cli("doctor", check=False)
    assert doctor.returncode == 1 and "without its data directory" in doctor.stdout, doctor
    away.rename(broker.data)
    eventually(lambda: broker.http("GET", "/readyz", token=False)[0] == 200, "it is ready again", within=5)
    broker.cli("produce", topic, "-v", "after")
    assert broker.cli("consume", topic, "--until-end").stdout.split() == ["before", "after"]
    assert broker.log().count("was removed: .lock is not there") == 1, broker.log()
    assert broker.stop() == 0
    assert broker.log().rstrip().endswith("I server: stopped"), broker.log()


@case("a broker whose stderr nobody reads keeps serving and stops in order, and a start that fails then ends too")
def _(ctx):
    broker, second = ctx.broker(start=False, settings={"tarry.log.level": "debug"}), ctx.broker(start=False)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    for each in (broker, second):
        each.spawn = lambda shards=None, each=each: subprocess.Popen(each.command(shards), stdin=subprocess.DEVNULL,
                                                                     stdout=subprocess.PIPE, stderr=writing, start_new_session=True)
    try:
        broker.start()
        with broker.client(timeout=10) as client:
            topic = client.create_topic(ctx.topic())
            for _ in range(1000):
                with socket.create_connection(broker.address) as bad:
                    bad.sendall(wire.i32(-1))
            for _ in range(10):
                client.produce(topic, [wire.record("x")])
            assert len(client.consume(topic, 10)) == 10
        second.address = broker.address  # It is taken.
        second.process = second.spawn()
        assert second.process.wait(20) == 1
        second.process.stdout.close()
        second.process = None
        assert broker.stop() == 0
    finally:
        os.close(reading)
        os.close(writing)


@case("a start on a full disk is refused with the directory and the bytes it needs, and succeeds when there is room")
def _(ctx):
    folder = ctx.directory / "small"
    folder.mkdir()
    if os.geteuid() != 0:
        raise Skip("mounting a small file system wants root")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tarry-test", folder], capture_output=True).returncode != 0:
        raise Skip("no file system can be mounted here")

    def refused():
        """The one line of a start that does not come to be."""
        started = subprocess.run(broker.command(), stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
        said = started.stderr.decode(errors="replace").strip()
        assert started.returncode == 1 and started.stdout == b"" and len(said.splitlines()) == 1, f"{started.returncode}:\n{said}"
        assert str(broker.data) in said and re.search(r"has \d+ bytes free.* needs \d+", said), said
        return int(re.search(r" needs (\d+)", said)[1])

    try:
        broker = ctx.broker(start=False, shards=1, settings={
            "tarry.disk.reserve.bytes": 8 << 20, "tarry.journal.file.bytes": 8 << 20, "tarry.journal.max.bytes": 64 << 20})
        broker.data = folder / "data"
        assert refused() > 2 << 20, "it wants less than there was"
        assert not broker.data.exists(), "a start that is refused for want of room makes nothing"
        subprocess.run(["mount", "-o", "remount,size=200m", folder], check=True)
        broker.start()
        with broker.client() as client:
            topic = client.create_topic(ctx.topic())
            client.produce(topic, [wire.record("now"), wire.record("later", x_delay="1h")])
        assert broker.stop() == 0
        # Somebody else fills the disk while the broker is down.
        files = os.statvfs(folder)
        other = folder / "other"
        other.write_bytes(bytes(files.f_bavail * files.f_frsize - (1 << 20)))
        refused()
        other.unlink()
        broker.start()
        with broker.client() as client:
            assert [rec.value for rec in client.consume(topic, 1)] == [b"now"]
            client.produce(topic, [wire.record("again")])
        assert len(broker.pending(topic)) == 1
        assert broker.stop() == 0
    finally:
        for each in ctx.brokers:
            each.kill()
        subprocess.run(["umount", folder], capture_output=True)


@case("a second signal ends the broker at once with one line and without a failure; nothing acknowledged is lost")
def _(ctx):
    broker = ctx.broker()
    hurried = 0
    topic = None
    for round in range(6):
        with broker.client() as client:
            topic = topic or client.create_topic(ctx.topic(), partitions=50)
            for partition in range(50):
                client.produce(topic, [wire.record("v" * 1000)], partition=partition)
        process = broker.process
        process.send_signal(signal.SIGTERM)
        time.sleep(0.001 * round)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0, broker.log()[-500:]
        process.stdout.close()
        broker.process = None
        hurried = broker.log().count("a second signal")
        broker.start()
        with broker.client() as client:
            for partition in range(50):
                assert client.end_offset(topic, partition) == round + 1
    assert hurried > 0, "none of them came in time"


# The process gets it while it is still being loaded, before any function of a global or of main() has run.
EARLY_SIGNALS = """
#include <csignal>
#include <initializer_list>
namespace { struct Sent { Sent() { for (int each : {SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE}) std::raise(each); } } sent; }
"""


@case("SIGHUP is one line in the log, SIGUSR1, SIGUSR2 and SIGPIPE have no effect, under load and during the stop too")
def _(ctx):
    broker = ctx.broker(start=False)
    others = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE)
    hangups = lambda: broker.log().count("SIGHUP")
    library = ctx.directory / "early_signals.so"
    run("g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", library, stdin=EARLY_SIGNALS)
    process = broker.process = broker.spawn(env={**os.environ, "LD_PRELOAD": str(library)})
    assert broker.read_line(30).startswith("tarry ready "), (process.poll(), broker.log())
    eventually(lambda: hangups() == 1, "a line about SIGHUP")
    for number in (*others, signal.SIGHUP):
        process.send_signal(number)
    eventually(lambda: hangups() == 2, "a second line about SIGHUP")
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    for _ in range(20):
        for number in (signal.SIGHUP, *others):
            process.send_signal(number)
    assert process.wait(30) == 0, broker.log()
    assert "a second signal" not in broker.log(), broker.log()
    process.stdout.close()
    broker.process = None


@case("an address that others can reach is one line in the log, loopback is none")
def _(ctx):
    warning = "anyone who can reach the port has full access"
    for listen, warned in (("127.0.0.1:0", 0), ("localhost:0", 0), ("[::1]:0", 0), ("0.0.0.0:0", 1), ("[::]:0", 1), (":0", 1)):
        broker = ctx.broker(start=False, arguments=["--listen", listen])
        process = broker.process = broker.spawn()
        if not broker.read_line(30).startswith("tarry ready "):
            assert "[::" in listen, broker.log()  # A machine without IPv6.
            broker.process = None
            continue
        assert broker.stop() == 0 and process.returncode == 0
        lines = [line for line in broker.log().splitlines() if warning in line]
        assert len(lines) == warned, (listen, broker.log())
        assert all(listen.rsplit(":", 1)[0] in line for line in lines), lines


@case("with more clients than open files allow the broker refuses some, makes its checkpoints and keeps running", alone=True)
def _(ctx):
    broker = ctx.broker(start=False, settings={"tarry.checkpoint.interval.ms": 1000, "log.segment.bytes": 65536})
    limited = ["/bin/bash", "-c", 'ulimit -n 400; exec "$@"', "-"]
    command = broker.command
    broker.command = lambda shards=None: limited + command(shards)
    broker.start()
    most = broker.get("/status")["max_connections"]
    assert 100 <= most <= 200, most
    eventually(lambda: f"at most {most} " in broker.log(), "a line that says so")
    assert broker.log().count("limit of open files") == 1, broker.log()
    checkpoints = lambda: sum(shard["checkpoints_total"] for shard in broker.get("/status")["shards"])
    topics = [ctx.topic() for _ in range(20)]
    with broker.client() as client:
        for topic in topics:
            client.create_topic(topic)
        idle = []
        try:
            for _ in range(most + 300):
                try:
                    idle.append(socket.create_connection(broker.address, timeout=5))
                except OSError:
                    break
            eventually(lambda: broker.get("/status")["connections"] == most, "all that may be there are")
            before = checkpoints()
            # A shard makes a checkpoint of what came since its last, so the records go on until there were some.
            rounds, end = 0, time.monotonic() + 30
            while rounds < 30 or checkpoints() < before + 3:
                assert time.monotonic() < end, ("checkpoints among all those connections", before, checkpoints())
                for topic in topics:
                    client.produce(topic, [wire.record(b"x" * 10_000)])
                rounds += 1
            assert broker.process.poll() is None
        finally:
            for each in idle:
                each.close()
    assert "Too many open files" not in broker.log(), broker.log()
    broker.restart()
    with broker.client() as client:
        for topic in topics:
            assert len(client.consume(topic, rounds)) == rounds


@case("a broker that lacks file descriptors for its own files waits for them, and continues", alone=True)
def _(ctx):
    broker, topic = ctx.broker(settings={"tarry.checkpoint.interval.ms": 1000}), ctx.topic()
    checkpoints = lambda: sum(shard["checkpoints_total"] for shard in broker.get("/status")["shards"])
    limits = lambda soft: subprocess.run(["prlimit", f"--pid={broker.process.pid}", f"--nofile={soft}:"], check=True)
    with broker.client() as client:
        client.create_topic(topic)
        client.produce(topic, [wire.record("before")])
        eventually(lambda: checkpoints() > 0, "a first checkpoint")
        # From now on nothing can be opened.
        limits(len(os.listdir(f"/proc/{broker.process.pid}/fd")))
        time.sleep(1)
        client.produce(topic, [wire.record("meanwhile")])
        eventually(lambda: "Too many open files" in broker.log(), "a line in the log")
        time.sleep(3)
        assert broker.process.poll() is None, broker.log()
        client.produce(topic, [wire.record("still")])
        limits(1000)
        eventually(lambda: "makes checkpoints again" in broker.log(), "checkpoints again")
        assert broker.log().count("Too many open files") <= 3 * len(broker.get("/status")["shards"]), broker.log()
    broker.restart()
    with broker.client() as client:
        assert [each.value for each in client.consume(topic, 3)] == [b"before", b"meanwhile", b"still"]


@case("a thousand silent connections to the admin do not turn a health check into 503", alone=True)
def _(ctx):
    broker, silent = ctx.broker(), []
    try:
        begun = time.monotonic()
        for n in range(1000):
            silent.append(socket.create_connection(broker.admin, timeout=5))
            if n % 2 == 0:
                silent[-1].sendall(b"GET /healthz HT")
        # None of them had to send its first packet again, a second later.
        took = time.monotonic() - begun
        assert took < 5, took
        for _ in range(20):
            assert broker.http("GET", "/healthz", token=False)[0] == 200
            assert broker.http("GET", "/readyz", token=False) == (200, {"status": "running"})
        assert broker.http("GET", "/status", token=False)[0] == 503
    finally:
        for each in silent:
            each.close()
