"""tarry group, tarry consume -g and the admin's /groups, against the running broker."""

import contextlib
import fcntl
import os
import signal
import subprocess
import time

import wire
from harness import case, eventually, now_ms
from test_cli import json_lines, one_line


def describe(broker, group):
    return json_lines(broker.cli("group", "describe", group, "--json"))[0]


def offsets(broker, group):
    return {each["partition"]: (each["offset"], each["lag"]) for each in describe(broker, group)["offsets"]}


@contextlib.contextmanager
def consumer(broker, topic, group):
    """A member that goes on and on; ended by Ctrl-C."""
    process = subprocess.Popen([broker.binary, "consume", topic, "-g", group, "-b", broker.brokers],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
        assert process.returncode == 0 and said == "", (process.returncode, said)
    finally:
        process.kill()
        process.wait()


@case("tarry consume -g continues at its group's offset, and no printed record is read twice")
def _(ctx):
    broker, topic, group = ctx.broker(), ctx.topic(), "readers"
    broker.cli("topic", "create", topic, "--partitions", "2")
    for partition in ("0", "1"):
        broker.cli("produce", topic, "-p", partition, stdin="".join(f"{partition}-{n}\n" for n in range(10)))
    first = broker.cli("consume", topic, "-g", group, "-n", "7").stdout.splitlines()
    assert len(first) == 7
    rest = broker.cli("consume", topic, "-g", group, "--until-end").stdout.splitlines()
    assert sorted(first + rest) == sorted(f"{p}-{n}" for p in (0, 1) for n in range(10)), (first, rest)
    assert broker.cli("consume", topic, "-g", group, "--until-end").stdout == ""
    assert offsets(broker, group) == {0: (10, 0), 1: (10, 0)}
    broker.cli("produce", topic, "-p", "1", "-v", "more")
    assert offsets(broker, group) == {0: (10, 0), 1: (10, 1)}
    broker.restart()
    assert broker.cli("consume", topic, "-g", group, "-n", "1").stdout == "more\n"
    # A group that begins at the end sees only what comes.
    assert broker.cli("consume", topic, "-g", "late", "--from", "end", "--idle", "300ms").stdout == ""


@case("two tarry consume -g share a topic's partitions, and one takes over when the other ends")
def _(ctx):
    broker, topic, group = ctx.broker(), ctx.topic(), "pair"
    broker.cli("topic", "create", topic, "--partitions", "4")

    def members():
        done = broker.cli("group", "describe", group, "--json", check=False)
        if done.returncode != 0:
            return None  # Not there yet.
        described = json_lines(done)[0]
        return described["state"], sorted(each["partitions"] for each in described["members"])

    with consumer(broker, topic, group):
        eventually(lambda: members() == ("Stable", [4]), "one member has all", within=30)
        with consumer(broker, topic, group):
            eventually(lambda: members() == ("Stable", [2, 2]), "each has half", within=30)
        eventually(lambda: members() == ("Stable", [4]), "the first has all again", within=30)
    assert members() in (("Empty", []), None), "it committed nothing, so nothing of it need be kept"


@case("tarry consume -g commits nothing that it could not write")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    broker.cli("produce", topic, stdin="".join(f"{n:099}\n" for n in range(3000)))

    def consume(group, stdout, *words):
        return subprocess.Popen([broker.binary, "consume", topic, "-g", group, "-b", broker.brokers, *words],
                                stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True)

    with open("/dev/full", "wb") as full:
        for words in (["-n", "5"], ["--until-end"], ["--idle", "300ms"]):
            process = consume("full", full, *words)
            _, said = process.communicate(timeout=30)
            assert process.returncode == 1 and "No space left" in said and len(said.splitlines()) == 1, (words, said)
    assert len(broker.cli("consume", topic, "-g", "full", "--until-end").stdout.splitlines()) == 3000

    # A pipe holds 4 KiB; its reader takes some lines and goes away.
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    process = consume("pipe", writing, "--until-end")
    os.close(writing)
    got = b""
    while len(got) < 20_000:
        got += os.read(reading, 1000)
    # Once what it holds is written too, nobody is there for what comes.
    time.sleep(0.3)
    os.close(reading)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 0 and said == "", (process.returncode, said)
    rest = broker.cli("consume", topic, "-g", "pipe", "--until-end").stdout.splitlines()
    written = (len(got) + 4096) // 100
    assert rest[-1] == f"{2999:099}" and int(rest[0]) <= written, (rest[0], written)


@case("tarry consume -g without a partition ends as if it had read everything")
def _(ctx):
    broker, topic, group = ctx.broker(), ctx.topic(), "crowd"
    broker.cli("topic", "create", topic, "--partitions", "1")
    broker.cli("produce", topic, "-v", "x")

    def members():
        done = broker.cli("group", "describe", group, "--json", check=False)
        return done.returncode == 0 and [each["partitions"] for each in json_lines(done)[0]["members"]]

    with consumer(broker, topic, group):
        eventually(lambda: members() == [1], "one member has it", within=30)
        for words in (["--until-end"], ["--idle", "1s"]):
            # Members are given partitions in the order of their ids, which begin with client.id.
            started = time.monotonic()
            done = broker.cli("consume", topic, "-g", group, "-X", "client.id=zzz", *words)
            took = time.monotonic() - started
            assert took < 11 and done.stdout == "", (words, took, done.stdout)
            if words == ["--until-end"]:
                assert len(done.stderr.splitlines()) == 1 and group in done.stderr and topic in done.stderr, done.stderr


@case("tarry group lists, describes, resets and deletes, in columns, in JSON and with the right exit codes")
def _(ctx):
    broker, topic, group = ctx.broker(), ctx.topic(), "a group/with:signs"
    broker.cli("topic", "create", topic, "--partitions", "2")
    broker.cli("produce", topic, "-p", "0", stdin="a\nb\nc\n")
    time.sleep(0.05)
    later = int(now_ms())
    time.sleep(0.05)
    broker.cli("produce", topic, "-p", "0", stdin="d\n")
    broker.cli("consume", topic, "-g", group, "--until-end")
    assert f"{group}\tEmpty\n" in broker.cli("group", "list").stdout
    assert {"group": group, "state": "Empty"} in json_lines(broker.cli("group", "list", "--json"))
    described = broker.cli("group", "describe", group).stdout
    assert f"{group}\tEmpty\t" in described and f"{topic}\t0\t4\t4\t0\t-\t-\t-\n" in described, described

    def reset(*words, **how):
        return broker.cli("group", "reset", group, topic, *words, **how)

    assert f"{topic}\t0\t4\t0\n" in reset("--to", "start", "--dry-run").stdout
    assert offsets(broker, group)[0] == (4, 0)
    assert f"{topic}\t0\t4\t0\n" in reset("--to", "start").stdout
    assert offsets(broker, group)[0] == (0, 4)
    assert broker.cli("consume", topic, "-g", group, "-n", "1").stdout == "a\n"
    row = json_lines(reset("--to", "3", "-p", "0", "--json"))
    assert row == [{"group": group, "topic": topic, "partition": 0, "from": 1, "to": 3, "result": "reset"}], row
    one_line(reset("--to", "5", "-p", "0", check=False), 1, topic, "5", "begins at 0")
    one_line(reset("--to", "start", "-p", "7", check=False), 1, topic, "7")
    assert offsets(broker, group)[0] == (3, 1)
    reset("--to", f"@{later}")
    assert offsets(broker, group)[0] == (3, 1), "the first record from then on"
    reset("--to", f"@{now_ms() + 60_000:.0f}")
    assert offsets(broker, group)[0] == (4, 0), "none is: the end"
    # A group that nobody was ever in.
    fresh = ("group", "reset", "fresh", topic, "--to", "2", "-p", "0")
    one_line(broker.cli(*fresh, check=False), 1, "fresh", "no such group", "--create")
    one_line(broker.cli(*fresh, "--dry-run", check=False), 1, "fresh")
    assert "fresh" not in broker.cli("group", "list").stdout
    broker.cli(*fresh, "--create")
    assert broker.cli("consume", topic, "-g", "fresh", "--until-end").stdout == "c\nd\n"

    with consumer(broker, topic, group):
        eventually(lambda: describe(broker, group)["state"] == "Stable", "it has joined", within=30)
        one_line(reset("--to", "start", check=False), 1, group, "active", "1 member")
        one_line(broker.cli("group", "delete", group, check=False), 1, group, "active")
    assert broker.cli("group", "delete", group).stdout == f"{group} deleted\n"
    assert group not in broker.cli("group", "list").stdout
    for words in (["describe", group], ["delete", group]):
        one_line(broker.cli("group", *words, check=False), 1, group, "no such group")
    one_line(broker.cli("group", "reset", group, "nowhere", "--to", "start", check=False), 1, "nowhere")
    assert json_lines(broker.cli("group", "delete", "fresh", "--json")) == [{"group": "fresh", "result": "deleted"}]


@case("tarry group describes and refuses to reset a group whose leader assigns bytes that nobody can read")
def _(ctx):
    broker, topic, group = ctx.broker(), ctx.topic(), "garbage"
    broker.cli("topic", "create", topic, "--partitions", "1")
    with wire.Client(broker.address) as member:
        sized = wire.i32(3) + b"abc"
        joined = member.request(11, 0, wire.string(group) + wire.i32(300_000) + wire.string("") +
                                wire.string("consumer") + wire.i32(1) + wire.string("range") + sized)
        assert joined.i16() == wire.NO_ERROR
        generation, _, _, member_id = joined.i32(), joined.string(), joined.string(), joined.string()
        good = b"\0\0" + wire.i32(1) + wire.string(topic) + wire.i32(1) + wire.i32(0)
        # How many partitions of it can be read; what stands behind them is the client's own.
        for assignment, partitions in ((b"", 0), (b"\0", 0), (b"\0\0\0\0\0\1", 0), (b"\0\0\x7f\xff\xff\xff", 0),
                                       (b"\0\0\0\0\0\1\xff\xff\0\0\0\0", 0), (b"x" * 40, 0), (good[:-1], 0),
                                       (good, 1), (good + b"\0\0", 1), (good + wire.i32(9) + b"ab", 1),
                                       # More than librdkafka takes: of one topic, and of names.
                                       (b"\0\0" + wire.i32(1) + wire.string("t") + wire.i32(100_001) + b"\0\0\0\1" * 100_001, 100_001),
                                       (b"\0\0" + wire.i32(60_000) + b"".join(wire.string(f"{n:0249}") + wire.i32(1) + wire.i32(0) for n in range(60_000)), 60_000)):
            sized = wire.i32(len(assignment)) + assignment
            synced = member.request(14, 0, wire.string(group) + wire.i32(generation) + wire.string(member_id) +
                                    wire.i32(1) + wire.string(member_id) + sized)
            assert synced.i16() == wire.NO_ERROR
            described = describe(broker, group)
            assert described["state"] == "Stable" and described["assignor"] == "range", described
            assert [(each["member"], each["partitions"]) for each in described["members"]] == [(member_id, partitions)], (assignment, described)
            one_line(broker.cli("group", "reset", group, topic, "--to", "start", check=False), 1, group, "active", "1 member")
            # The leader joins again, and a generation begins with what is next.
            joined = member.request(11, 0, wire.string(group) + wire.i32(300_000) + wire.string(member_id) +
                                    wire.string("consumer") + wire.i32(1) + wire.string("range") + wire.i32(3) + b"abc")
            assert joined.i16() == wire.NO_ERROR
            generation = joined.i32()


@case("/groups shows which member reads which partition, and how much is left to read")
def _(ctx):
    broker, topic, group = ctx.broker(), ctx.topic(), "billing"
    broker.cli("topic", "create", topic, "--partitions", "2")
    broker.cli("produce", topic, "-p", "0", stdin="a\nb\nc\n")
    broker.cli("consume", topic, "-g", group, "-n", "2")
    shown = broker.get(f"/groups/{group}")
    assert shown["state"] == "Empty" and shown["members"] == [], shown
    assert [(each["partition"], each["committed"], each["lag"]) for each in shown["offsets"] if each["partition"] == 0] == [(0, 2, 1)]
    with consumer(broker, topic, group):
        eventually(lambda: broker.get(f"/groups/{group}")["state"] == "Stable", "it has joined", within=30)
        shown = broker.get(f"/groups/{group}")
        assert shown["members"][0]["assigned"] == [{"topic": topic, "partitions": [0, 1]}], shown
        assert {each["member"] for each in shown["offsets"]} == {shown["members"][0]["member"]}
        eventually(lambda: broker.get(f"/groups/{group}")["lag"] == 0, "it has read all and committed")
        assert group in [each["group"] for each in broker.get("/groups")["groups"]]
    status, body = broker.http("GET", "/groups/nobody", token=False)
    assert status == 404 and "nobody" in body["error"]
