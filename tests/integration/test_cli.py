"""The command line beside what test_delayed.py says of it: its output, its exit codes, its errors."""

import datetime
import json
import os
import re
import select
import signal
import socket
import subprocess
import threading
import time

import wire
from harness import ROOT, case, eventually, now_ms, run


def one_line(done, code, *words):
    """It ended with `code` and one line on stderr that has these words."""
    said = done.stderr.strip()
    assert done.returncode == code, (done.returncode, said)
    assert len(said.splitlines()) == 1, f"not one line: {said!r}"
    for word in words:
        assert str(word) in said, f"no {word!r} in: {said}"


def epoch_ms(text):
    return round(datetime.datetime.fromisoformat(text).timestamp() * 1000)


def json_lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


@case("the command line answers with tabs in a pipe, and with one JSON text a line when asked")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    assert broker.cli("topic", "create", topic, "--partitions", "2").stdout == f"{topic} created\n"
    assert f"{topic}\t2\t1\n" in broker.cli("topic", "list").stdout
    assert {"topic": topic, "partitions": 2, "replicas": 1} in json_lines(broker.cli("topic", "list", "--json"))
    broker.cli("topic", "alter", topic, "--config", "retention.ms=1d12h", "--config", "segment.bytes=64MiB")
    described = json_lines(broker.cli("topic", "describe", topic, "--json"))[0]
    assert [each["partition"] for each in described["partitions"]] == [0, 1]
    assert described["configs"]["retention.ms"] == {"value": "129600000", "source": "topic"}
    assert described["configs"]["segment.bytes"] == {"value": str(64 << 20), "source": "topic"}
    assert broker.cli("produce", topic, "-p", "1", stdin="a\nb\n").stdout == "2 records accepted\n"
    told = json_lines(broker.cli("produce", topic, "-p", "1", "-v", "now", "--json"))
    assert told == [{"record": 1, "topic": topic, "partition": 1, "offset": 2}]
    told = json_lines(broker.cli("produce", topic, "-p", "1", "-v", "later", "--delay", "1h", "--id", "mine", "--json"))
    due = told[0].pop("due_ms")
    assert told[0].pop("due").startswith("20") and broker.pending(topic)[0]["due_ms"] <= due < now_ms() + 3_600_000, (due, told)
    assert told == [{"record": 1, "topic": topic, "partition": 1, "offset": None, "result": "delayed", "id": "mine", "estimated": True}]
    at = json_lines(broker.cli("produce", topic, "-p", "1", "-v", "later", "--at", str(int(due)), "--json"))[0]
    assert at["due_ms"] == int(due) and "estimated" not in at, at
    broker.cli("delayed", "cancel", topic, broker.pending(topic)[1]["handle"])
    row = broker.cli("delayed", "list").stdout.rstrip("\n").split("\t")
    assert row[0] == topic and row[1] == "1" and row[4] == "mine" and row[5].startswith("@") and row[7] == "5", row
    status = json_lines(broker.cli("status", "--json"))[0]
    shown = broker.cli("status").stdout
    assert status["delayed"]["pending"] == 1 and "pending\t1\n" in shown, shown
    (disk, whole, unit), = re.findall(r"^disk\t(.*): [\d.]+ \w+ of ([\d.]+) (\w+) free; below 256\.0 MiB no records are accepted$", shown, re.M)
    assert disk == status["data"], shown
    # The doctor names the same size, as df does: what is kept for root is no part of it.
    details = {row["check"]: row["detail"] for row in json_lines(broker.cli("doctor", "--json", check=False))}
    other = re.search(rf" of ([\d.]+) {unit} free", details["disk space"])
    assert other and abs(float(other[1]) - float(whole)) <= 0.01 * float(whole), (shown, details["disk space"])


@case("the command line's keys, headers, formats and bytes arrive as they were given")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    broker.cli("produce", topic, "--key-separator", "::", "-H", "h=1", "-H", "none", stdin="k::v::w\nno key\n\n")
    other = ctx.topic()
    broker.cli("topic", "create", other)
    broker.cli("produce", other, "--key-separator", r"\t\x3a", stdin="k\t:v\n")
    assert broker.cli("consume", other, "--until-end", "--format", "[%k] [%s]").stdout == "[k] [v]"
    whole = ctx.directory / "whole"
    whole.write_bytes(b"\xff\x00\n")
    broker.cli("produce", topic, "--whole", whole, "-k", "file")
    shown = broker.cli("consume", topic, "--until-end", "--format", r"%t %p %o [%k:%K] [%s:%S] %h %%\x21\n", "-n", "3").stdout
    assert shown == (f"{topic} 0 0 [k:1] [v::w:4] h=1,none=NULL %!\n{topic} 0 1 [:-1] [no key:6] h=1,none=NULL %!\n"
                     f"{topic} 0 2 [:-1] [:0] h=1,none=NULL %!\n"), shown
    rows = json_lines(broker.cli("consume", topic, "--until-end", "--json"))
    assert rows[0]["headers"] == [{"name": "h", "value": "1"}, {"name": "none", "value": None}] and rows[1]["key"] is None
    assert rows[3]["value"] == "/wAK" and rows[3]["value_base64"] is True and "key_base64" not in rows[3]
    assert broker.cli("consume", topic, "--from", "3", "-n", "1", "--format", "%k\n").stdout == "file\n"
    assert broker.cli("consume", topic, "--from", f"@{int(now_ms()) - 60_000}", "-n", "1", "--format", "%o\n").stdout == "0\n"
    assert broker.cli("consume", topic, "--from", "end", "--idle", "200ms").stdout == ""
    # A file may be standard input: its lines among those of files, or the whole as one record.
    lines, mixed = ctx.directory / "lines", ctx.topic()
    lines.write_text("one\n")
    broker.cli("topic", "create", mixed)
    assert broker.cli("produce", mixed, lines, "-", stdin="two\nthree\n").stdout == "3 records accepted\n"
    broker.cli("produce", mixed, "--whole", "-", stdin="four\nfive\n")
    assert [row["value"] for row in json_lines(broker.cli("consume", mixed, "--until-end", "--json"))] == ["one", "two", "three", "four\nfive\n"]


@case("the command line reports a failure in one line with status 1, and an unknown word with status 2")
def _(ctx):
    broker, topic = ctx.broker(settings={"auto.create.topics.enable": "false"}), ctx.topic()
    broker.cli("topic", "create", topic)

    def wrong(*words, **how):
        return broker.cli(*words, check=False, **how)

    one_line(wrong("topic", "describe", "nowhere"), 1, "nowhere")
    one_line(wrong("topic", "delete", "nowhere"), 1, "nowhere")
    one_line(wrong("topic", "create", "a b"), 1, "a b")
    one_line(wrong("topic", "create", ctx.topic(), "--config", "no.such=1"), 1, "no.such")
    broker.cli("topic", "create", ctx.topic(), "--replication-factor", "1")
    one_line(wrong("topic", "create", ctx.topic(), "--replication-factor", "3"), 1, "INVALID_REPLICATION_FACTOR")
    one_line(wrong("hlep"), 2, "hlep", "did you mean help?")
    assert wrong("topic", "ls").stdout == wrong("topic", "list").stdout != ""
    one_line(wrong("topic", "alter", topic, "--config", "retention.ms=many"), 1, "many", "as in 90s and 7d")
    one_line(wrong("config", "set", "--topic", topic, "retention.ms=many"), 1, "many", "as in 90s and 7d")
    one_line(wrong("topic", "create", ctx.topic(), "--config", "segment.bytes=1MB"), 1, "1MB", "as in 64KiB and 1GiB")
    one_line(wrong("consume", "nowhere", "--until-end"), 1, "nowhere")
    one_line(wrong("consume", topic, "--from", "77"), 1, topic, "begins at 0")
    one_line(wrong("consume", topic, "-p", "9"), 1, topic, "9")
    one_line(wrong("produce", topic, "-p", "9", "-v", "x"), 1, topic, "9")
    one_line(wrong("produce", "nowhere", "-v", "x"), 1, "nowhere")
    one_line(wrong("produce", topic, "/no/such/file"), 1, "/no/such/file")
    one_line(wrong("produce", topic, "-H", "x-delay=soon", stdin="a\nb\n"), 1, topic, "2 of 2", "record 1", "INVALID_RECORD", "soon")
    one_line(wrong("delayed", "list", "nowhere"), 1, "nowhere")
    one_line(wrong("delayed", "cancel", topic, "one", "two"), 1, "one", "2 of 2")
    one_line(wrong("topic", "list", "-b", "127.0.0.1:1", "--timeout", "300ms"), 1, "127.0.0.1:1", "refused")
    one_line(wrong("status", "--admin", "127.0.0.1:1"), 1, "127.0.0.1:1", "tarry serve")
    for words in (["produce", topic, "-v", "x", "--at", "12:00"], ["consume", topic, "--format", "%q"], ["topic", "alter", topic],
                  ["produce", topic, "-v", "x", "--every", "soon"], ["consume", topic, "-g", ""], ["consume", topic, "-g", "g", "-p", "0"],
                  ["consume", topic, "-g", "g", "--from", "3"], ["group"], ["group", "reset", "g", topic],
                  ["group", "reset", "g", topic, "--to", "somewhere"], ["delayed", "move", topic, "x"],
                  ["topic", "list", "-X", "no.such.key=1"], ["frobnicate"], ["--frobnicate"]):
        one_line(wrong(*words), 2, words[-1] if len(words) == 1 else "")
    one_line(wrong("produce", topic, "-v", "x", "-H", "x-every=1ms"), 1, topic, "x-every", "1ms")


@case("a command that asks no broker takes the flags that name one, so that a script can give all commands the same")
def _(ctx):
    broker = ctx.broker(start=False)

    def cli(*words, **how):
        return broker.cli(*words, "-b", "127.0.0.1:1", "--admin", "127.0.0.1:1", "--timeout", "1s", "-X", "linger.ms=5", "-X", "acks=1", **how)

    assert json_lines(cli("explain", "x-delay=1h", "--json"))[0]["in_ms"] == 3_600_000
    assert cli("dump", "message", stdin="18 q 0 -\n").stdout == "{}\t-\n"
    assert broker.cli("version").stdout == f"tarry {json_lines(cli('version', '--json'))[0]['version']}\n"
    one_line(cli("repair", ctx.directory / "none", "--dry-run", check=False), 1, "none")
    one_line(cli("import-log", ctx.directory / "none", check=False), 1, "none")
    one_line(cli("explain", "x-delay=1h", "--brokrs=x", check=False), 2, "--brokrs")
    assert "--brokers" not in broker.cli("explain", "--help").stdout, "it has no effect there"


@case("what is printed, logged or read through a closed standard descriptor goes into no file, and waits for no input")
def _(ctx):
    broker, topic = ctx.broker(start=False), ctx.topic()

    def closed(redirections, *words, **how):
        # What opens a file gets the lowest number that is free.
        return run("sh", "-c", f'exec "$0" "$@" {redirections}', broker.binary, *words, check=False, within=30, **how)

    quiet = subprocess.Popen(["sh", "-c", 'exec "$0" "$@" <&- 2>&-', *broker.command()], stdout=subprocess.PIPE)
    try:
        ready = quiet.stdout.readline().decode()
        held = [os.readlink(f"/proc/{quiet.pid}/fd/{number}") for number in (0, 2)]
        quiet.send_signal(signal.SIGTERM)
        assert quiet.wait(30) == 0 and ready.startswith("tarry ready "), ready
    finally:
        quiet.kill()
        quiet.communicate()
    assert held == ["/dev/null"] * 2, held
    written = [path for path in broker.data.rglob("*") if path.is_file() and b"is ready" in path.read_bytes()]
    assert not written, f"the log went into {written}"
    broker.start()
    broker.cli("topic", "create", topic)
    at = ("-b", broker.brokers)
    one_line(closed("<&-", "produce", topic, *at), 1, "standard input: Bad file descriptor")
    one_line(closed(">&-", "topic", "list", *at), 1, "standard output: Bad file descriptor")
    for word in ("--version", "--help"):
        one_line(closed(">/dev/full", word), 1, "standard output: No space left on device")


@case("the command line says why the broker refuses a record, in the broker's own words, with any acks and in JSON too")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    broker.cli("topic", "alter", topic, "--config", "tarry.delay.max.ms=1h")

    def refused(*words):
        return broker.cli("produce", topic, *words, check=False)

    for acks in ("all", "1"):
        one_line(refused("-v", "x", "--delay", "2h", "--acks", acks), 1, topic, "INVALID_RECORD: ", "tarry.delay.max.ms")
        one_line(refused("-v", "x", "-H", "x-schedule-action=cancel", "--acks", acks), 1, "INVALID_RECORD: ", "x-schedule-id")
        one_line(refused("-v", "x", "-H", "x-delay=so\non\x1b[2J", "--acks", acks), 1, "so\\x0aon\\x1b[2J")
    answers = json_lines(refused("-v", "x", "-v", "y", "--delay", "2h", "--json"))
    assert len(answers) == 2 and all("tarry.delay.max.ms" in each["error"] for each in answers), answers
    assert broker.cli("consume", topic, "--until-end").stdout == "" and not broker.pending(topic), "what was refused was taken"
    errors = broker.get("/status")["produce_errors"]
    assert set(errors) == {"INVALID_RECORD"} and 7 <= errors["INVALID_RECORD"] <= 8, f"asking for the reason was counted: {errors}"
    eventually(lambda: f"for {topic}-0 failed: INVALID_RECORD: " in broker.log() and "tarry.delay.max.ms" in broker.log(), "the log says why")
    described = broker.cli("topic", "describe", topic)
    one_line(described, 0, f"{topic}: ", "refused since the broker started, the last one ", "tarry.delay.max.ms")
    last = json_lines(broker.cli("topic", "describe", topic, "--json"))[0]["refused_batches"]["last"]
    assert last["message"] in described.stderr and last["reason"] == "delay_too_long", last
    assert broker.cli("topic", "describe", topic, "--admin", "127.0.0.1:1").stdout == described.stdout, "without the admin all else is there"
    other = ctx.topic()
    broker.cli("topic", "create", other)
    assert broker.cli("topic", "describe", other).stderr == "", "nothing was refused there"


@case("text is escaped for the terminal once, and a typed backslash can be distinguished from an escape")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    for typed, shown in (("no\non", "no\\x0aon"), ("no\\x0aon", "no\\x5cx0aon"), ("\x1b[2Jgröße", "\\x1b[2Jgröße")):
        # From the words themselves, from the admin's answer, and from the broker's.
        one_line(broker.cli("produce", topic, "-v", "x", "--at", typed, check=False), 2, f'"{shown}"')
        one_line(broker.cli("delayed", "list", typed, check=False), 1, f"'{shown}'")
        one_line(broker.cli("produce", topic, "-v", "x", "-H", f"x-delay={typed}", check=False), 1, f'"{shown}"')
        lines = [line for line in broker.log().splitlines() if f"for {topic}-0 failed: INVALID_RECORD" in line]
        assert f'"{shown}"' in lines[-1], lines


@case("a topic with pending records is deleted from the command line only with --force")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    broker.cli("produce", topic, "--delay", "1h", stdin="x\n" * 17)
    one_line(broker.cli("topic", "delete", topic, check=False), 1, f"{topic}: not deleted (POLICY_VIOLATION): 17 records are", "--force")
    assert broker.cli("topic", "delete", topic, "--force").stdout == f"{topic} deleted\n"
    assert topic not in broker.cli("topic", "list").stdout


@case("a command changes only the broker that it names: with the admin of another one it is refused")
def _(ctx):
    here, there, topic = ctx.broker(), ctx.broker(), ctx.topic()
    admin_here, admin_there = ("%s:%d" % each.admin for each in (here, there))
    for broker in (here, there):
        broker.cli("topic", "create", topic)
        broker.cli("produce", topic, "-v", "x", "--delay", "1h", "--id", "mine")

    def cli(*words, **env):
        return run(here.binary, *words, check=False, env={"TARRY_BROKERS": "", "TARRY_ADMIN": "", **env})

    for words in (["topic", "delete", topic, "--force"], ["delayed", "cancel", topic, "mine"], ["delayed", "list"],
                  ["delayed", "get", topic, "mine"], ["status"]):
        one_line(here.cli(*words, "-b", there.brokers, check=False), 1, admin_here, there.brokers)
        one_line(cli(*words, TARRY_BROKERS=there.brokers, TARRY_ADMIN=admin_here), 1, admin_here, there.brokers)
        # The admin that is the default is nobody's, or somebody else's.
        one_line(cli(*words, "-b", there.brokers), 2, "--admin", there.brokers)
        one_line(cli(*words, TARRY_BROKERS=there.brokers), 2, "--admin", there.brokers)
    refused = here.cli("topic", "delete", topic, "-b", there.brokers, check=False)
    one_line(refused, 1, topic, "--admin")
    assert all(len(broker.pending(topic)) == 1 for broker in (here, there))
    assert cli("delayed", "list", "--admin", admin_there).stdout.count("mine") == 1, "no broker was named, so none is contradicted"
    # Kafka does not answer: who reads is told so, who changes is stopped.
    nobody = ("-b", "127.0.0.1:1", "--timeout", "300ms")
    read = here.cli("delayed", "list", *nobody)
    assert "mine" in read.stdout and len(read.stderr.splitlines()) == 1 and "127.0.0.1:1" in read.stderr, read
    one_line(here.cli("delayed", "cancel", topic, "mine", *nobody, check=False), 1, "127.0.0.1:1", admin_here)
    # The other's token is the other's.
    one_line(here.cli("delayed", "cancel", topic, "mine", "-b", there.brokers, "--admin", admin_there, check=False),
             1, admin_there, "TARRY_ADMIN_TOKEN", "--data")
    here.cli("delayed", "cancel", topic, "mine", "-b", there.brokers, "--admin", admin_there, "--data", there.data)
    assert [len(broker.pending(topic)) for broker in (here, there)] == [1, 0]
    here.cli("topic", "delete", topic, "--force")
    assert topic not in here.cli("topic", "list").stdout and topic in there.cli("topic", "list").stdout


@case("a broker on a copy of another one's data directory is another broker, although cluster id and token are the same")
def _(ctx):
    live, topic = ctx.broker(), ctx.topic()
    live.cli("topic", "create", topic)
    live.cli("produce", topic, "-v", "x", "--delay", "1h", "--id", "mine")
    copy = ctx.broker(start=False)
    live.cli("backup", copy.data)
    copy.start()
    assert copy.get("/status")["cluster_id"] == live.get("/status")["cluster_id"]
    assert copy.get("/status")["start_id"] != live.get("/status")["start_id"]
    changes = (["delayed", "cancel", topic, "mine"], ["topic", "delete", topic, "--force"], ["backup", ctx.directory / "backup"])
    for words in (*changes, ["delayed", "list"], ["status"]):
        # Both with the live broker's admin, and its token, which is the copy's too.
        one_line(live.cli(*words, "-b", copy.brokers, check=False), 1, "%s:%d" % live.admin, copy.brokers, "start id")
    assert [len(broker.pending(topic)) for broker in (live, copy)] == [1, 1] and not (ctx.directory / "backup").exists()
    # No note of what is pending in another broker's topic.
    assert not live.cli("consume", topic, "--until-end", "-b", copy.brokers).stderr
    refused = live.cli("topic", "delete", topic, "-b", copy.brokers, check=False)
    one_line(refused, 1, topic, "needs --admin of this broker")
    copy.cli("delayed", "cancel", topic, "mine")
    assert [len(broker.pending(topic)) for broker in (live, copy)] == [1, 0]
    # An id of the start, not of the directory.
    before = live.get("/status")["start_id"]
    live.restart()
    assert live.get("/status")["start_id"] != before
    live.cli("delayed", "cancel", topic, "mine")


@case("tarry delayed list follows the pages to their end, or to its limit")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    base = int(now_ms()) + 3_600_000
    with broker.client() as client:
        client.produce(topic, [wire.record(str(n), x_deliver_at=base + n, x_schedule_id=f"id-{n}") for n in range(1200)])
    rows = json_lines(broker.cli("delayed", "list", topic, "--json"))
    assert [row["id"] for row in rows] == [f"id-{n}" for n in range(1200)]
    rows = json_lines(broker.cli("delayed", "list", topic, "--limit", "700", "--json"))
    assert len(rows) == 700 and rows[-1]["id"] == "id-699"
    assert len(broker.cli("delayed", "list", topic, "--id", "id-11??").stdout.splitlines()) == 100
    some = json_lines(broker.cli("delayed", "list", topic, "--from", str(base + 10), "--to", str(base + 20), "--json"))
    assert [row["id"] for row in some] == [f"id-{n}" for n in range(10, 20)]


@case("tarry dump segment shows the produced records, and reports a torn end with its position")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    broker.cli("produce", topic, "-k", "key", "-H", "a=b", stdin="one\ntwo\n")
    assert broker.stop() == 0
    log = broker.data / "logs" / f"{topic}-0" / "00000000000000000000.log"
    batch = json_lines(broker.cli("dump", "segment", log, "--records", "--json"))[0]
    assert (batch["baseOffset"], batch["lastOffset"], batch["count"], batch["isvalid"], batch["position"]) == (0, 1, 2, True, 0), batch
    assert [record["payload"] for record in batch["records"]] == ["one", "two"] and batch["records"][0]["key"] == "key"
    text = broker.cli("dump", "segment", log).stdout
    assert "baseOffset: 0 lastOffset: 1 count: 2 " in text and "compresscodec: none" in text and "isvalid: true" in text
    size = log.stat().st_size
    torn = ctx.directory / "00000000000000000000.log"
    torn.write_bytes(log.read_bytes() + log.read_bytes()[:40])
    found = broker.cli("dump", "segment", torn, check=False)
    one_line(found, 1, torn, size)
    assert "count: 2 " in found.stdout
    broker.start()


@case("a reader that goes away, and Ctrl-C, end tarry consume quietly")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    broker.cli("produce", topic, stdin="line\n" * 1000)

    def consume():
        return subprocess.Popen([broker.binary, "consume", topic, "-b", broker.brokers], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    for end in (lambda process: process.stdout.close(), lambda process: process.send_signal(signal.SIGINT)):
        with consume() as process:
            assert os.read(process.stdout.fileno(), 5) == b"line\n"
            end(process)
            eventually(lambda: process.poll() is not None, "it ends")
            assert process.returncode == 0 and process.stderr.read() == b"", process.returncode


@case("Ctrl-C and SIGTERM end tarry produce with status 1, and half a line is not sent as a record")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    for end in (signal.SIGINT, signal.SIGTERM):
        for writer_goes in (False, True):
            with subprocess.Popen([broker.binary, "produce", topic, "-b", broker.brokers, "--json"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                process.stdin.write(b"one\ntwo\nhal")
                process.stdin.flush()
                for _ in range(2):
                    assert b"offset" in process.stdout.readline()
                process.send_signal(end)
                if writer_goes:
                    process.stdin.close()
                eventually(lambda: process.poll() is not None, "it ends")
                said = process.stderr.read()
                assert process.returncode == 1 and said == b"tarry: interrupted: 2 records accepted\n", (process.returncode, said)
    assert broker.cli("consume", topic, "--until-end").stdout == "one\ntwo\n" * 4
    # Half of a file is no record either.
    pipe = ctx.directory / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen([broker.binary, "produce", topic, "-b", broker.brokers, "--whole", pipe], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process, open(pipe, "wb") as writer:
        writer.write(b"hal")
        writer.flush()
        eventually(lambda: select.select([], [writer], [], 0)[1], "it reads")
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        eventually(lambda: process.poll() is not None, "it ends")
        assert process.returncode == 1 and b"interrupted: 0 records accepted" in process.stderr.read()
    assert len(broker.cli("consume", topic, "--until-end").stdout.splitlines()) == 8


@case("tarry produce distinguishes cancellations and expiring records from records that are delivered later")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)

    def produce(*words, **how):
        return broker.cli("produce", topic, *words, **how).stdout

    assert produce("-v", "x", "--delay", "1h", "--id", "a").startswith("1 record accepted, to be delivered later\n")
    assert produce("-v", "", "-H", "x-schedule-action=cancel", "--id", "a") == "1 cancellation accepted\n"
    assert broker.pending(topic) == []
    told = "2 records accepted, never to be delivered: they expire before their due time\n"
    assert produce("--delay", "1h", "--expire-at", str(int(now_ms()) + 60_000), stdin="a\nb\n") == told
    assert produce("-H", f"x-deliver-at={int(now_ms()) + 60_000}", "-H", f"x-expire-at={int(now_ms()) + 60_000}",
                   stdin="a\nb\n") == told
    assert broker.pending(topic) == []
    assert produce("-v", "x", "--delay", "1m", "--expire-at",
                   str(int(now_ms()) + 3_600_000)).startswith("1 record accepted, to be delivered later\n")
    assert produce("-v", "x") == "1 record accepted\n"
    late = broker.cli("produce", topic, "-v", "x", "--at", "-1h")
    assert late.stdout == "1 record accepted\n", late
    one_line(late, 0, "--at -1h: due in the past, delivered at once")
    assert broker.cli("produce", topic, "-v", "x", "--at", "now").stderr == ""


@case("tarry produce says when a record is due, and the command that it gives finds exactly the record")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic, "--partitions", "3")

    def produce(*words, **how):
        accepted, due, find = broker.cli("produce", topic, *words, **how).stdout.splitlines()
        command = find.split(": tarry ", 1)[1]
        assert find.startswith("to find "), find
        group, name, rest = command.split(" ", 2)
        found = json_lines(run("bash", "-c", f"{broker.binary} {group} {name} --json {rest}",
                               env={"TARRY_BROKERS": broker.brokers, "TARRY_ADMIN": "%s:%d" % broker.admin}))
        return due, command, found

    at = "2099-12-24T18:00:00.000Z"
    due, _, found = produce("-v", "x", "--at", "2099-12-24T19:00:00+01:00", "--id", "it's -$1 `a`", "-k", "k")
    assert due == f"due {at}" and [each["id"] for each in found] == ["it's -$1 `a`"], (due, found)
    due, _, found = produce("-v", "x", "--delay", "2h", "--id", "-b", "-k", "k")
    assert due.startswith("due about ") and [each["id"] for each in found] == ["-b"], (due, found)
    assert 0 <= epoch_ms(due.split()[-1]) - found[0]["due_ms"] < 5_000, (due, found)

    due, command, found = produce("-v", "x", "--delay", "1h", "-k", "no id")
    assert [(each["key"], each["id"]) for each in found] == [("no id", None)] and found[0]["handle"].startswith("@"), found
    assert 0 <= epoch_ms(due.split()[-1]) - found[0]["due_ms"] < 5_000, (due, found)
    due, command, found = produce("-v", "x", "--at", "2099-12-25T18:00:00Z", "-k", "another")
    assert due == "due 2099-12-25T18:00:00.000Z" and [each["key"] for each in found] == ["another"], (due, found)

    due, command, found = produce("-H", "X-Delay=3h", stdin="".join(f"{i}\n" for i in range(3000)))
    assert len(found) == 3000 and due.startswith("due between ") and command.startswith(f"delayed list {topic} "), (due, command)
    _, _, first, _, last = due.split()
    assert all(epoch_ms(first) <= each["due_ms"] <= epoch_ms(last) for each in found), due

    due, _, found = produce("-v", "x", "--cron", "0 9 24 12 *", "--tz", "Europe/Berlin", "--times", "2", "--id", "cron", "-k", "k")
    assert due.startswith("first due 20") and due.endswith("-12-24T08:00:00.000Z; recurring: cron 0 9 24 12 * Europe/Berlin, 2 of 2 left"), due
    assert epoch_ms(due.split()[2].rstrip(";")) == found[0]["due_ms"], (due, found)

    # The command names the broker in the words of this one, where no variable does, and can be given as it is.
    nobody = {"TARRY_BROKERS": "", "TARRY_ADMIN": "", "TARRY_ADMIN_TOKEN": ""}
    flags = ("-b", broker.brokers, "--admin", "%s:%d" % broker.admin)
    find = run(broker.binary, "produce", topic, "-v", "x", "--delay", "2h", "--id", "given", "-k", "k", *flags, env=nobody).stdout.splitlines()[-1]
    assert find == f"to find it: tarry delayed get {topic} {' '.join(flags)} given", find
    words = find.split(": tarry ", 1)[1].split()
    assert json.loads(run(broker.binary, *words, "--json", env=nobody).stdout)["id"] == "given"


@case("tarry produce warns about a header whose name is one letter off, and still sends the record")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    one_line(broker.cli("produce", topic, "-v", "x", "-H", "x-dealy=1h"), 0, "-H x-dealy: schedules nothing; did you mean x-delay?")
    assert broker.cli("produce", topic, "-v", "x", "-H", "x-delays-seen=1").stderr == ""
    assert len(broker.cli("consume", topic, "--until-end").stdout.splitlines()) == 2


@case("tarry delayed get shows the time left of a record, and an error names the missing thing once")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    broker.cli("produce", topic, "-v", "x", "--delay", "2h", "--id", "mine")
    shown = dict(row.split("\t") for row in broker.cli("delayed", "get", topic, "mine").stdout.splitlines())
    assert shown["in"] in ("2h", "1h59m59s", "1h59m58s"), shown
    for words, text in (((topic, "other"), f"tarry: nothing is pending under 'other' in topic {topic}\n"),
                        (("nowhere", "mine"), "tarry: there is no topic 'nowhere'\n")):
        failed = broker.cli("delayed", "get", *words, check=False)
        assert (failed.returncode, failed.stdout, failed.stderr) == (1, "", text), failed


@case("tarry produce knows the topic's own delay and its dead letters, and states nothing that it cannot know")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic, "--config", "tarry.delay.ms=1h")
    accepted, due, find = broker.cli("produce", topic, "-v", "x").stdout.splitlines()
    assert 0 <= epoch_ms(due.removeprefix("due about ")) - broker.pending(topic)[0]["due_ms"] < 5_000, due
    assert broker.cli("produce", topic, "-v", "x", "-H", "x-delay=0").stdout == "1 record accepted\n"
    assert broker.cli("produce", topic, "-v", "x", "--acks", "0").stdout == "1 record accepted\n"
    eventually(lambda: len(broker.pending(topic)) == 2, "the record without an acknowledgement is pending")
    broker.cli("topic", "alter", topic, "--config", "tarry.delay.max.ms=1h", "--config", "tarry.delay.invalid=dead-letter")
    told = broker.cli("produce", topic, "-v", "x", "--delay", "2h").stdout
    assert told.startswith(f"1 record accepted, as a dead letter to {topic}.invalid: x-delay") and told.count("\n") == 1, told
    told = json_lines(broker.cli("produce", topic, "-v", "x", "--delay", "2h", "--json"))
    assert told == [{"record": 1, "topic": topic, "partition": 0, "offset": None, "result": "dead-letter"}], told
    assert len(broker.cli("consume", f"{topic}.invalid", "--until-end").stdout.splitlines()) == 2


@case("--id names one record: several are refused and nothing is sent, and a warning says when its partition is random")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic, "--partitions", "3")
    words = ("produce", topic, "--delay", "1h", "--id", "mine")
    one_line(broker.cli(*words, stdin="a\nb\n", check=False), 2, "--id", "nothing was sent")
    one_line(broker.cli(*words, "-v", "a", "-v", "b", check=False), 2, "--id")
    assert broker.pending(topic) == []
    for more in (["-k", "key"], ["-p", "1"], ["--key-separator", ":"]):
        done = broker.cli(*words, *more, stdin="key:one\n")
        assert done.stdout.startswith("1 record accepted") and done.stderr == "", done
    broker.cli("delayed", "cancel", topic, "mine")
    done = broker.cli(*words, stdin="one\n")
    assert done.stdout.startswith("1 record accepted") and len(done.stderr.splitlines()) == 1, done
    assert all(word in done.stderr for word in (topic, "3 partitions", "mine", "key")), done.stderr


@case("a cancellation or replacement that missed the pending record's partition is reported, and one that met it is not")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic, "--partitions", "3")
    words = ("produce", topic, "-v", "x", "--id", "mine")
    cancel = ("-H", "x-schedule-action=cancel")
    assert broker.cli(*words, "-p", "1", "--delay", "1h").stderr == ""
    missed = broker.cli(*words, "-p", "2", *cancel)
    assert missed.stdout == "1 cancellation accepted\n", missed
    one_line(missed, 0, "mine: this went to partition 2", "pending in partition 1", f"tarry delayed cancel {topic} mine -p 1`")
    assert broker.cli(*words, "-p", "2", *cancel, "--admin", "127.0.0.1:1").stderr == "", "nobody answers there"
    assert broker.cli(*words, "-p", "1", "--delay", "2h").stderr == "", "it has replaced the record"
    one_line(broker.cli(*words, "-p", "0", "--delay", "2h"), 0, "this went to partition 0", "partition 1")
    one_line(broker.cli(*words, "-p", "2", *cancel), 0, "partitions 0, 1")
    broker.cli("delayed", "cancel", topic, "mine")
    assert broker.cli(*words, "-p", "2", *cancel).stderr == "" and broker.pending(topic) == []


@case("the error for a word in the wrong place names the possible words, and a missing token is reported as missing")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    one_line(broker.cli("topic", "lst", check=False), 2, "lst", "create, list, describe, alter, delete")
    one_line(broker.cli("-b", broker.brokers, "topic", "list", check=False), 2, "-b", "options follow the command")
    one_line(broker.cli("topic", "-b", broker.brokers, "list", check=False), 2, "-b", "options follow the command")
    one_line(broker.cli("--frobnicate", check=False), 2, "--frobnicate", "no such option")
    one_line(broker.cli("topic", "list", "--timeout", "0", check=False), 2, "--timeout")
    broker.cli("topic", "create", topic)
    token = broker.data / "admin.token"
    token.rename(broker.data / "gone")
    one_line(broker.cli("delayed", "cancel", topic, "x", "--data", broker.data, check=False),
             1, token, "is not there", "--data", "TARRY_ADMIN_TOKEN")


@case("tarry consume reports that its topic was created again, and not an invalid offset")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    broker.cli("produce", topic, stdin="line\n" * 10)
    with subprocess.Popen([broker.binary, "consume", topic, "-b", broker.brokers], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert [process.stdout.readline() for _ in range(10)] == [b"line\n"] * 10
        with broker.client() as client:
            client.delete_topic(topic)
            client.create_topic(topic)
        eventually(lambda: process.poll() is not None, "it ends", within=30)
        said = process.stderr.read().decode()
        assert process.returncode == 1 and len(said.splitlines()) == 1 and topic in said and "asked for" not in said, said
    one_line(broker.cli("consume", topic, "--from", "77", check=False), 1, "asked for, 77", "begins at 0")


@case("bench timers ends with one JSON text of rates and percentiles, after plain columns unless it is asked for JSON alone")
def _(ctx):
    words = ("bench", "timers", "--pending", "2000", "--threads", "1")
    *rows, last = run(ctx.options.binary, *words).stdout.splitlines()
    told = json.loads(last)
    assert told["bench"] == "timers" and told["pending"] == 2000 and told["service"]["pairs_per_second"] > 0, told
    for name in ("wheel", "std::multimap"):
        assert told[name]["insert"]["per_second"] > 0 and told[name]["step_us"]["p99"] <= told[name]["step_us"]["max"], told
    assert [row.split("\t")[0] for row in rows][:2] == ["insert", "schedule + cancel, hot"], rows
    assert all(len(row.split("\t")) == 4 for row in rows), rows
    alone = json_lines(run(ctx.options.binary, *words, "--json"))
    assert len(alone) == 1 and alone[0].keys() == told.keys()


class Impostor:
    """Listens where an admin was, and answers like one; remembers what it was sent. With a target it passes on."""

    def __init__(self, address, data, target=None):
        self.data, self.target, self.received = str(data), target, b""
        self.socket = socket.create_server(address)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(10)

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                while request := connection.recv(65536):
                    self.received += request
                    if self.target:
                        names = ["%s:%d" % each for each in (self.socket.getsockname(), self.target)]
                        request = request.replace(*(name.encode() for name in names))
                        with socket.create_connection(self.target) as admin:
                            admin.sendall(request)
                            reply = admin.recv(65536)
                    else:
                        body = json.dumps({"data": self.data, "cluster_id": "x", "proof": "0" * 64}).encode()
                        reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
                    connection.sendall(reply)


@case("a program that holds the admin's port is not sent the token, although it says where the token is; the broker itself is")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    broker.cli("produce", topic, "-v", "x", "--delay", "1h", "--id", "mine")
    token = (broker.data / "admin.token").read_text().strip().encode()
    nobody = {"TARRY_BROKERS": "", "TARRY_ADMIN": "", "TARRY_ADMIN_TOKEN": ""}
    for target in (None, broker.admin):  # One that makes its answers up, one that asks the broker.
        impostor = Impostor(("127.0.0.1", 0), broker.data, target)
        admin = "127.0.0.1:%d" % impostor.socket.getsockname()[1]
        for words, env in ((("--data", broker.data), nobody), ((), {**nobody, "TARRY_ADMIN_TOKEN": token.decode()})):
            one_line(run(broker.binary, "delayed", "cancel", topic, "mine", "--admin", admin, *words, check=False, env=env),
                     1, admin, "was not sent the token", *(["run this where the broker runs"] if target else []))
        # Without either it is looked for where /status says, and not sent either.
        one_line(run(broker.binary, "delayed", "cancel", topic, "mine", "--admin", admin, check=False, env=nobody), 1, admin)
        impostor.close()
        assert b"/proof?nonce=" in impostor.received and token not in impostor.received, impostor.received
        assert b"DELETE" not in impostor.received
    assert len(broker.pending(topic)) == 1
    # A pipe where the token should be is not waited for, and nothing has to be proved.
    (ctx.directory / "elsewhere").mkdir()
    decoy = ctx.directory / "decoy"
    decoy.mkdir()
    os.mkfifo(decoy / "admin.token")
    impostor = Impostor(("127.0.0.1", 0), decoy)
    words = [broker.binary, "delayed", "cancel", topic, "mine", "--admin"]
    how = {"cwd": ctx.directory / "elsewhere", "env": {**os.environ, **nobody}, "capture_output": True, "text": True, "timeout": 30}
    done = subprocess.run([*words, "127.0.0.1:%d" % impostor.socket.getsockname()[1]], **how)
    impostor.close()
    assert done.returncode == 1 and "this needs the admin's token" in done.stderr and b"/proof" not in impostor.received, done
    assert len(broker.pending(topic)) == 1
    # The broker itself says where its data is, proves that it knows the token in it, and gets it.
    done = subprocess.run([*words, "%s:%d" % broker.admin], **how)
    assert done.returncode == 0 and not broker.pending(topic), done
    broker.cli("produce", topic, "-v", "x", "--delay", "1h", "--id", "mine")
    # The broker itself is sent it, whichever way it is given; the default is ./tarry-data.
    (ctx.directory / "here").mkdir()
    (ctx.directory / "here" / "tarry-data").symlink_to(broker.data)
    admin = "%s:%d" % broker.admin
    done = subprocess.run([broker.binary, "delayed", "cancel", topic, "mine", "--admin", admin], cwd=ctx.directory / "here",
                          env={**os.environ, **nobody}, capture_output=True, timeout=30)
    assert done.returncode == 0, done
    run(broker.binary, "topic", "delete", topic, "--force", "--data", broker.data, "-b", broker.brokers, "--admin", admin, env=nobody)


@case("beyond loopback reading needs the token too, and the command line takes it from the data directory")
def _(ctx):
    broker = ctx.broker(arguments=["--admin", "0.0.0.0:0"])
    admin = "127.0.0.1:%d" % broker.admin[1]
    nobody = {"TARRY_BROKERS": "", "TARRY_ADMIN": "", "TARRY_ADMIN_TOKEN": ""}
    one_line(run(broker.binary, "status", "--admin", admin, check=False, env=nobody), 1, "--data", "TARRY_ADMIN_TOKEN")
    assert "running" in run(broker.binary, "status", "--admin", admin, "--data", broker.data, env=nobody).stdout


@case("without a broker every command reports that at once, and waits for one if --timeout is given", alone=True)
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    assert broker.stop() == 0
    for words in (("topic", "list"), ("topic", "create", "t"), ("topic", "delete", "t", "--force"), ("produce", "t", "-v", "x"),
                  ("consume", "t"), ("consume", "t", "-g", "g"), ("group", "list"), ("status",), ("delayed", "list"),
                  ("delayed", "cancel", "t", "id")):
        began = time.monotonic()
        # Without TARRY_BROKERS and TARRY_ADMIN the addresses count as the defaults, and are named all the same.
        done = broker.cli(*words, check=False)
        assert time.monotonic() - began < 6, f"{words} took {time.monotonic() - began:.1f} s"
        assert done.returncode in (1, 2) and "is `tarry serve` running?" in done.stderr, (words, done)
        assert len(done.stderr.splitlines()) == 1, (words, done)
    for words in (("topic", "list"), ("status",), ("consume", topic, "--until-end")):
        with subprocess.Popen([broker.binary, *words, "--timeout", "20s"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, "TARRY_BROKERS": broker.brokers, "TARRY_ADMIN": "%s:%d" % broker.admin}) as waits:
            time.sleep(1)
            assert waits.poll() is None, (words, waits.stdout.read())
            broker.start()
            assert waits.wait(20) == 0, (words, waits.stdout.read())
        assert broker.stop() == 0
    broker.start()


@case("an advertised address to which nobody can connect is named at once, and ends every command that waits for an end", alone=True)
def _(ctx):
    # Bound, and not listening: it stays nobody's during the test.
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        advertised = "127.0.0.1:%d" % nobody.getsockname()[1]
        broker, topic = ctx.broker(arguments=["--advertise", advertised]), ctx.topic()
        with broker.client() as client:
            client.create_topic(topic)
        told = (broker.brokers, advertised, "Connection refused", "advertised.listeners", "--advertise")
        ended = f"no answer from {advertised} within 2s"
        for words in (("consume", topic, "--until-end"), ("consume", topic, "--idle", "1ms"), ("consume", topic, "-n", "1"),
                      ("consume", topic, "-g", "billing", "--until-end"), ("produce", topic, "-v", "x"),
                      ("produce", topic, "-v", "x", "--acks", "1")):
            began = time.monotonic()
            done = broker.cli(*words, "--timeout", "2s", check=False)
            took, lines = time.monotonic() - began, done.stderr.splitlines()
            assert done.returncode == 1 and len(lines) == 2, (words, done)
            assert all(word in lines[0] for word in told) and ended in lines[1], (words, lines)
            assert 1.5 < took < 5, (words, took)
        for words in (("topic", "create", "other"), ("consume", topic, "--from", "@2026-01-01T00:00:00Z"), ("group", "list")):
            one_line(broker.cli(*words, "--timeout", "1s", check=False), 1, *told)
        checked = json_lines(broker.cli("doctor", "--json", env={"TARRY_BROKERS": ""}))
        (found,) = [row for row in checked if row["check"] == "advertised"]
        assert found["result"] == "warning" and all(word in found["detail"] for word in told[1:4]), found
        # One that follows says it and goes on, until it is ended.
        for more in ((), ("-g", "billing")):
            with subprocess.Popen([broker.binary, "consume", topic, "-b", broker.brokers, "--timeout", "1s", *more],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as follower:
                said = follower.stderr.readline().decode()
                assert all(word in said for word in told), said
                time.sleep(1.5)
                assert follower.poll() is None, more
                began = time.monotonic()
                follower.send_signal(signal.SIGINT)
                out, rest = follower.communicate(timeout=30)
                assert follower.returncode == 0 and out == b"" and rest == b"", (more, follower.returncode, rest)
                assert time.monotonic() - began < 3, f"{more}: it waited for an answer"


@case("tarry consume continues after the broker was down for longer than its timeout, with a group and without")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    broker.cli("produce", topic, "-v", "before")
    words = [broker.binary, "consume", topic, "-b", broker.brokers, "--timeout", "2s", "-n", "2"]
    readers = [subprocess.Popen([str(word) for word in words + more], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE) for more in ([], ["-g", "billing"])]
    try:
        for reader in readers:
            assert reader.stdout.readline() == b"before\n"
        broker.kill()
        time.sleep(5)
        assert all(reader.poll() is None for reader in readers), [reader.stderr.read() for reader in readers if reader.poll()]
        broker.start()
        broker.cli("produce", topic, "-v", "after")
        for reader in readers:
            out, said = reader.communicate(timeout=60)
            assert reader.returncode == 0 and out == b"after\n", (reader.returncode, out, said)
            lines = said.decode().splitlines()
            assert len(lines) == 2 and "is lost" in lines[0] and "is back" in lines[1], lines
            assert all(broker.brokers in line for line in lines), lines
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()


@case("without the broker Ctrl-C ends tarry consume -g at once, and tarry produce waits for its timeout once")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    broker.cli("produce", topic, "-v", "before")
    open_pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    reader = subprocess.Popen([str(broker.binary), "consume", topic, "-b", broker.brokers, "-g", "billing"],
                              stdin=subprocess.DEVNULL, **open_pipes)
    writer = subprocess.Popen([str(broker.binary), "produce", topic, "-b", broker.brokers, "--timeout", "4s", "--json"],
                              stdin=subprocess.PIPE, **open_pipes)
    try:
        assert reader.stdout.readline() == b"before\n"
        writer.stdin.write(b"first\n")
        writer.stdin.flush()
        assert b"offset" in writer.stdout.readline()
        broker.kill()
        assert b"is lost" in reader.stderr.readline()
        began = time.monotonic()
        writer.stdin.write(b"second\n")
        writer.stdin.close()
        reader.send_signal(signal.SIGINT)
        said = reader.communicate(timeout=30)[1].decode()
        assert time.monotonic() - began < 3, "it waited for an answer"
        assert reader.returncode == 1 and "billing" in said and "may not be committed" in said, (reader.returncode, said)
        writer.wait(timeout=30)
        assert time.monotonic() - began < 7.5, "it waited twice"
        assert writer.returncode == 1 and b"no answer" in writer.stderr.read(), writer.returncode
    finally:
        for each in (reader, writer):
            each.kill()
            each.wait()


@case("dump pending prints what a start would find, also what the journals alone have: of a killed broker, and of a fresh backup")
def _(ctx):
    broker, topic, gone = ctx.broker(settings={"tarry.checkpoint.interval.ms": 3_600_000}), ctx.topic(), ctx.topic()

    def dumped(directory):
        rows = json_lines(broker.cli("dump", "pending", "--json", directory))
        assert len(broker.cli("dump", "pending", directory / "db/pending").stdout.splitlines()) == len(rows)
        return sorted((row["due_ms"], row["id"], row["handle"]) for row in rows)

    def pending(one):
        return sorted((row["due_ms"], row["id"], row["handle"]) for row in one.get("/delayed")["records"])

    def add(name, *ids):
        with broker.client() as client:
            client.produce(name, [wire.record("v", x_delay="1h", x_schedule_id=each) for each in ids])

    for name in (topic, gone):
        broker.cli("topic", "create", name)
    add(topic, "stays", "moved", "cancelled", "replaced")
    add(gone, "dropped")
    before = pending(broker)
    broker.kill()
    assert dumped(broker.data) == before and len(before) == 5, "no checkpoint has come: all are in the journals"
    broker.start()
    assert broker.stop() == 0
    assert dumped(broker.data) == before, "the last checkpoint has them all"
    broker.start()
    broker.cli("delayed", "cancel", topic, "cancelled")
    broker.cli("delayed", "move", topic, "moved", "--by", "1h")
    add(topic, "replaced", "new")
    broker.cli("topic", "delete", gone, "--force")
    after = pending(broker)
    assert sorted(row[1] for row in after) == ["moved", "new", "replaced", "stays"]
    broker.cli("backup", ctx.directory / "backup")
    assert dumped(ctx.directory / "backup") == after
    broker.kill()
    assert dumped(broker.data) == after
    # Behind damage in one journal the others are read.
    for journal in (broker.data / "journal").glob("*/checkpoint"):
        journal.write_text("nonsense")
    damaged = broker.cli("dump", "pending", broker.data, check=False)
    assert damaged.returncode == 1 and "journal/0" in damaged.stderr and "more)" in damaged.stderr, damaged.stderr
    # The store's own: what it knew at the last checkpoint.
    assert "id: stays " in damaged.stdout and "id: new " not in damaged.stdout, damaged.stdout


@case("dump index, journal and pending read what a broker has left, and go on behind damage")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    with broker.client() as client:
        client.create_topic(topic)
        for i in range(20):
            client.produce(topic, [wire.record("v" * 1000)])
        client.produce(topic, [wire.record("later", x_delay="1h", x_schedule_id=f"id-{i}") for i in range(3)])
        topic_id = broker.get(f"/topics/{topic}")["id"]
    broker.kill()
    journals = sorted((broker.data / "journal").glob("*/*.journal"))
    said = broker.cli("dump", "journal", *journals).stdout
    for words in (f"TopicCreated topic: {topic_id} name: {topic}", f"LogAppended topic: {topic_id} partition: 0", "id: id-2 "):
        assert words in said, f"{words} is not in {said[:2000]}"
    broker.start()
    assert broker.stop() == 0
    assert sum(f"topic: {topic_id} name: {topic} partition: 0 id: id-" in line for line in broker.cli("dump", "pending", broker.data).stdout.splitlines()) == 3
    rows = [json.loads(line) for line in broker.cli("dump", "pending", "--json", broker.data / "db/pending").stdout.splitlines()]
    assert sorted(row["id"] for row in rows) == ["id-0", "id-1", "id-2"], rows
    log = next((broker.data / "logs").glob("*/*.log"))
    index = log.with_suffix(".index")
    lines = broker.cli("dump", "index", index, log.with_suffix(".timeindex")).stdout.splitlines()
    assert re.fullmatch(r"offset: \d+ position: \d+", lines[1]) and lines[-1].startswith("timestamp: "), lines
    with open(index, "ab") as more:
        more.write(b"half")
    damaged = broker.cli("dump", "index", index, check=False)
    assert damaged.returncode == 1 and "4 bytes at the end are not a whole entry" in damaged.stderr, damaged.stderr
    assert damaged.stdout.splitlines()[1] == lines[1]
    nothing = broker.cli("dump", "pending", broker.directory, check=False)
    assert nothing.returncode == 1 and nothing.stderr.count("\n") == 1, nothing.stderr
    broker.start()
