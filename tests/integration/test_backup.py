"""Backups of a running broker: what is in the copy, that it starts by itself, and what an interrupted one leaves."""

import http.client
import json
import os
import pathlib
import re
import shlex
import shutil
import threading

import compression
import wire
from harness import ROOT, case, eventually, now_ms

OFFSET_COMMIT, OFFSET_FETCH = 8, 9
HOUR = "1h"


class Load:
    """Producers of three topics, and a group that commits what it has read; all in one thread."""

    def __init__(self, broker, plain, packed, delayed):
        self.broker, self.plain, self.packed, self.delayed = broker, plain, packed, delayed
        self.acked = {plain: set(), packed: set(), delayed: set()}
        self.rounds, self.committed, self.error, self.going = 0, 0, None, True
        self.thread = threading.Thread(target=self.work, daemon=True)

    def __enter__(self):
        self.thread.start()
        eventually(lambda: self.rounds >= 20 or self.error, "twenty rounds of the load", within=30)
        return self

    def __exit__(self, *_):
        self.going = False
        self.thread.join(20)
        assert self.error is None, self.error

    def work(self):
        try:
            with self.broker.client() as client:
                while self.going:
                    self.one_round(client, f"r{self.rounds}")
                    self.rounds += 1
        except Exception as error:  # Told by the thread that waits for us.
            self.error = f"{type(error).__name__}: {error}"

    def one_round(self, client, name):
        number = self.rounds
        offset = client.produce(self.plain, [wire.record(f"{name}.{i}") for i in range(20)], partition=number % 3).base_offset
        self.acked[self.plain] |= {f"{name}.{i}" for i in range(20)}
        client.produce(self.packed, wire.batch([wire.record(name)], codec=compression.GZIP))
        self.acked[self.packed].add(name)
        # Far ones with an id, near ones that are delivered during the backup or soon after it.
        client.produce(self.delayed, [wire.record(f"{name}.far", x_delay=HOUR, x_schedule_id=f"{name}.far"),
                                      wire.record(f"{name}.near", x_delay=f"{number % 4}s")])
        self.acked[self.delayed] |= {f"{name}.far", f"{name}.near"}
        client.consume(self.plain, 1, partition=number % 3, offset=offset)
        commit(client, "readers", self.plain, number % 3, offset + 20)
        self.committed = number


def commit(client, group, topic, partition, offset):
    places = wire.i32(1) + wire.string(topic) + wire.i32(1) + wire.i32(partition) + wire.i64(offset) + wire.string("")
    answer = client.request(OFFSET_COMMIT, 2, wire.string(group) + wire.i32(-1) + wire.string("") + wire.i64(-1) + places)
    answer.i32(), answer.string(), answer.i32(), answer.i32()
    assert (error := answer.i16()) == 0, error


def committed(client, group, topic, partition):
    answer = client.request(OFFSET_FETCH, 1, wire.string(group) + wire.i32(1) + wire.string(topic) + wire.i32(1) + wire.i32(partition))
    answer.i32(), answer.string(), answer.i32(), answer.i32()
    return answer.i64()


def values(client, topic, partition=0):
    return [rec.value.decode() for found in client.everything(topic, partition) for rec in found.records]


def all_pending(broker, topic):
    rows, after = [], ""
    while True:
        page = broker.get(f"/delayed?topic={topic}&limit=1000&values=true{after}")
        rows += page["records"]
        if not page["next"]:
            return rows
        after = f"&after={page['next']}"


def copy_of(ctx, directory, **how):
    """A broker that is started on the copy."""
    broker = ctx.broker(start=False, **how)
    broker.data = pathlib.Path(directory)
    return broker


@case("the check broker of docs/operating.md has the logins and rules of the settings, and leaves the running one and its log.dirs alone")
def _(ctx):
    settings = ctx.directory / "tarry.properties"
    settings.write_text(f"""log.dirs={ctx.directory / "logs"}
listeners=SASL_PLAINTEXT://127.0.0.1:0
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="secret";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin
""")
    login = ["-X", "security.protocol=sasl_plaintext", "-X", "sasl.mechanism=PLAIN", "-X", "sasl.username=admin", "-X", "sasl.password=secret"]
    # The listener once more, so that the harness gives no --listen.
    live = ctx.broker(start=False, settings={"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}, arguments=["--config", str(settings)]).start()
    live.cli("topic", "create", "orders", *login)
    live.cli("produce", "orders", "-v", "x", *login)
    live.cli("backup", ctx.directory / "copy", *login)
    before = sorted((ctx.directory / "logs").rglob("*"))
    told = re.search(r"runuser -u tarry -- (tarry serve .*?)\n\n", (ROOT / "docs/operating.md").read_text(), re.S)[1]
    words = shlex.split(told.replace("\\\n", " "))
    assert words[:2] == ["tarry", "serve"] and words[words.index("--config") + 1] == "/etc/tarry/tarry.properties", words
    ours = {"/etc/tarry/tarry.properties": settings, "/var/backups/tarry/check": ctx.directory / "copy",
            "listeners=PLAINTEXT://127.0.0.1:19092": "listeners=SASL_PLAINTEXT://127.0.0.1:0", "127.0.0.1:18080": "127.0.0.1:0"}
    assert set(ours) <= set(words), words
    check = copy_of(ctx, ctx.directory / "copy")
    check.command = lambda shards=None: [str(live.binary), *(str(ours.get(word, word)) for word in words[1:])]
    check.start()
    assert check.cli("topic", "list", *login).stdout.split()[0] == "orders"
    assert check.cli("consume", "orders", "--until-end", *login).stdout == "x\n"
    assert check.cli("topic", "list", "--timeout", "1s", check=False).returncode == 1, "nobody has logged in"
    check.cli("topic", "create", "only-there", *login)
    assert sorted((ctx.directory / "logs").rglob("*")) == before and "only-there" not in live.cli("topic", "list", *login).stdout


@case("after a restore the tokens of admin.tokens are known, and reading with one asks for no second request")
def _(ctx):
    broker = ctx.broker(start=False, settings={"tarry.admin.loopback.reads": "token"}).start()
    tokens = broker.data / "admin.tokens"
    tokens.touch(mode=0o600)
    reader = "r" * 40
    tokens.write_text(f"prometheus read {reader}\n")
    assert broker.stop() == 0
    broker.start()
    broker.cli("backup", ctx.directory / "copy")
    restored = copy_of(ctx, ctx.directory / "copy", settings={"tarry.admin.loopback.reads": "token"}).start()
    assert restored.http("GET", "/metrics", token=reader)[0] == 200
    assert restored.http("GET", "/metrics", token="x" * 40)[0] == 401
    assert "running" in restored.cli("status", "--data", restored.data).stdout
    assert "running" in restored.cli("status", env={"TARRY_ADMIN_TOKEN": reader}).stdout
    audited = [line for line in restored.log().splitlines() if "audit: " in line]
    assert len(audited) == 1 and "a wrong token" in audited[0], audited


@case("a backup under load starts as a broker that has all that was acknowledged before it, and delivers nothing twice")
def _(ctx):
    # Small files, so that checkpoints, rolls and retention happen meanwhile.
    broker = ctx.broker(settings={"tarry.journal.file.bytes": 1 << 20, "tarry.journal.max.bytes": 32 << 20,
                                  "tarry.checkpoint.interval.ms": 300, "log.retention.check.interval.ms": 300})
    plain, packed, delayed, short = ctx.topic("plain"), ctx.topic("packed"), ctx.topic("delayed"), ctx.topic("short")
    with broker.client() as client:
        client.create_topic(plain, 3, **{"segment.bytes": "4096"})
        client.create_topic(packed)
        client.create_topic(delayed)
        client.create_topic(short, **{"segment.bytes": "1024", "retention.bytes": "2048"})
    target = ctx.directory / "copy"
    with Load(broker, plain, packed, delayed) as load:
        before = {topic: set(names) for topic, names in load.acked.items()}
        rounds = load.rounds
        with broker.client() as client:  # What goes while it is copied.
            for i in range(30):
                client.produce(short, [wire.record(f"{i}" * 50)])
        said = json.loads(broker.cli("backup", target, "--json").stdout)
        assert said["state"] == "done" and said["directory"] == str(target) and said["files"] > 10, said
        assert load.rounds > rounds, "producers stood still"
    assert not (broker.data / ".tarry-backup").exists() and not (broker.data / "logs/.tarry-backup").exists()
    assert (target / "meta.properties").read_bytes() == (broker.data / "meta.properties").read_bytes()
    assert oct(target.stat().st_mode & 0o777) == "0o700" and (target / "admin.token").stat().st_mode & 0o777 == 0o600

    copy = copy_of(ctx, target).start(within=60)
    with broker.client() as old, copy.client() as new:
        for topic, partitions in ((plain, 3), (packed, 1)):
            seen = []
            for partition in range(partitions):
                here, there = values(old, topic, partition), values(new, topic, partition)
                assert there == here[:len(there)], f"{topic}-{partition} is no prefix"
                seen += there
            missing = before[topic] - set(seen)
            assert not missing, f"{len(missing)} of {topic} are missing, as {sorted(missing)[:5]}"
        for partition in range(3):
            at, end = committed(new, "readers", plain, partition), new.end_offset(plain, partition)
            assert 0 < at <= end, f"the group is at {at} of {end}"
        assert new.end_offset(short) >= 30
        # A pending record is in the copy's log or is pending there; never both, never neither.
        far = {f"{row['id']}" for row in all_pending(copy, delayed) if row["id"]}
        assert {name for name in before[delayed] if name.endswith(".far")} <= far
        near = {name for name in before[delayed] if name.endswith(".near")}
        eventually(lambda: near <= set(values(new, delayed)), "the near records are delivered", within=20)
        delivered = values(new, delayed)
        assert len(delivered) == len(set(delivered)), "one was delivered twice"
        assert not any(name.endswith(".far") for name in delivered)
        # It goes on as a broker: ids, sequence numbers and offsets continue.
        name = sorted(far)[0]
        assert copy.http("DELETE", f"/delayed/{delayed}/{name}")[1]["result"] == "cancelled"
        new.produce(delayed, [wire.record("again", x_delay="100ms", x_schedule_id="again")])
        eventually(lambda: "again" in values(new, delayed), "a new record is delivered")
    copy.restart()
    with copy.client() as new:
        assert "again" in values(new, delayed)


@case("the directory of a backup is refused unless it is the broker's own to fill, and two backups are not made at once")
def _(ctx):
    broker = ctx.broker()
    for directory, words in ((broker.data / "copy", "overlaps the broker's directory"), (broker.data.parent, "overlaps the broker's directory"),
                             (ctx.directory / "no" / "copy", "create its parent directory"), (broker.log_file, "is not a directory")):
        refused = broker.cli("backup", directory, check=False)
        assert refused.returncode == 1 and words in refused.stderr and refused.stderr.count("\n") == 1, refused.stderr
    full = ctx.directory / "full"
    full.mkdir()
    (full / "file").write_text("mine")
    refused = broker.cli("backup", full, check=False)
    assert refused.returncode == 1 and "not empty" in refused.stderr, refused.stderr
    assert [each.name for each in full.iterdir()] == ["file"]
    assert broker.http("POST", "/backup", body={"directory": "relative"})[0] == 400
    assert broker.http("POST", "/backup", token=False, body={"directory": str(ctx.directory / "x")})[0] == 401
    (broker.data / ".tarry-backup").mkdir()
    (broker.data / ".tarry-backup" / ".tarry").touch()
    refused = broker.cli("backup", ctx.directory / "second", check=False)
    assert refused.returncode == 1 and "another backup" in refused.stderr, refused.stderr
    assert not (ctx.directory / "second").exists()
    shutil.rmtree(broker.data / ".tarry-backup")
    empty = ctx.directory / "empty"
    empty.mkdir()
    # Those that were refused are no backups.
    metric = "\ntarry_broker_last_backup_timestamp_seconds "
    assert broker.get("/status")["last_backup_ms"] is None and metric not in broker.http("GET", "/metrics")[1]
    before = int(now_ms())
    said = broker.cli("backup", os.path.relpath(empty)).stdout
    assert said.startswith(f"{empty}: "), said
    assert before <= broker.get("/status")["last_backup_ms"] <= int(now_ms()), broker.get("/status")["last_backup_ms"]
    assert metric in broker.http("GET", "/metrics")[1]
    copy = copy_of(ctx, empty).start()
    assert copy.get("/status")["cluster_id"] == broker.get("/status")["cluster_id"]


def begin_backup(broker, target):
    """The connection, after the first line of the answer; nobody reads the rest."""
    connection = http.client.HTTPConnection(*broker.admin, timeout=20)
    token = (broker.data / "admin.token").read_text().strip()
    connection.request("POST", "/backup", headers={"Authorization": f"Bearer {token}"},
                       body=json.dumps({"directory": str(target)}))
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    return connection, answer


def add_large_log(broker):
    """A log of no topic, which takes seconds to copy; it takes no space here."""
    directory = broker.data / "logs" / "large-0"
    directory.mkdir(parents=True)
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    with open(directory / f"{0:020}.log", "wb") as log:
        log.truncate(3 << 30)
    return directory


@case("a kill -9 in a backup leaves a directory that serve refuses, and a broker that starts and makes another one")
def _(ctx):
    broker = ctx.broker()
    large = add_large_log(broker)
    target = ctx.directory / "copy"
    connection, answer = begin_backup(broker, target)
    line = json.loads(answer.readline())
    broker.kill()
    connection.close()
    assert line["state"] == "copying", line
    copy = copy_of(ctx, target)
    copy.process = copy.spawn()
    assert copy.process.wait(20) == 1
    copy.process.stdout.close()
    copy.process = None
    assert f"{target} is a backup that was not finished" in copy.log(), copy.log()
    broker.start()
    assert not (broker.data / ".tarry-backup").exists() and not (broker.data / "logs/.tarry-backup").exists()
    shutil.rmtree(target)
    shutil.rmtree(large)
    broker.cli("backup", target)
    copy.start()


@case("a backup whose client goes away is given up and leaves nothing, and the broker stops in order in the middle of one")
def _(ctx):
    broker = ctx.broker()
    add_large_log(broker)
    gone = ctx.directory / "gone"
    connection, answer = begin_backup(broker, gone)
    line = json.loads(answer.readline())
    assert line["state"] == "copying" and gone.exists(), line
    answer.close()
    connection.close()
    eventually(lambda: not gone.exists() and not (broker.data / ".tarry-backup").exists(), "nothing is left")
    eventually(lambda: "was abandoned" in broker.log(), "the log says so")
    stopped = ctx.directory / "stopped"
    connection, answer = begin_backup(broker, stopped)
    answer.readline()
    assert broker.stop() == 0
    connection.close()
    assert not stopped.exists(), list(stopped.iterdir())
