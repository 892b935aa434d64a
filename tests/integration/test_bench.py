"""tarry bench produce, consume, e2e and delayed, against brokers that keep the promises and some that do not."""

import json
import signal
import subprocess
import sys
import tempfile
import time

from harness import ROOT, case, eventually, run
from test_cli import json_lines, one_line


def result_of(done):
    *rows, last = done.stdout.splitlines()
    return rows, json.loads(last)


@case("bench delayed finds each record once and none early, at a rate, and deletes the topic that it made")
def _(ctx):
    broker = ctx.broker()
    words = ("bench", "delayed", "--rate", "2000", "--duration", "1s", "--delay", "500ms", "--spread", "300ms")
    rows, told = result_of(broker.cli(*words, "--clients", "3", "--partitions", "4", "--floor", "1s", "--seed", "7"))
    assert (told["bench"], told["partitions"], told["clients"], told["rate"], told["seed"]) == ("delayed", 4, 3, 2000, 7), told
    for flow in (told, told["floor"]):
        assert flow["sent"] == flow["accepted"] == flow["delivered"] == 2000, flow
        assert [flow[name] for name in ("early", "lost", "twice", "refused", "unconfirmed", "not_due")] == [0] * 6, flow
        lag = flow["lag_ms"]
        assert 0 <= lag["min"] <= lag["p50"] <= lag["p90"] <= lag["p99"] <= lag["p99.9"] <= lag["max"] < 5000, lag
        assert 500 < flow["accepted_per_s"] < 4000, flow
    names = [row.split("\t")[0] for row in rows]
    assert names[:2] == ["records accepted", "accepted a second"] and {"lag, p50", "p99.9", "early", "lost", "twice", "refused"} <= set(names), names
    assert all(len(row.split("\t")) == 3 for row in rows), rows
    assert broker.cli("topic", "list").stdout == "", "its topic is left"
    alone = json_lines(broker.cli(*words, "--floor", "0", "--json", "--id", "--size", "1KiB"))
    assert len(alone) == 1 and alone[0]["floor"] is None and alone[0]["ids"] and alone[0]["delivered"] == 2000 and alone[0]["size"] == 1024, alone
    assert alone[0].keys() == told.keys()


@case("bench delayed measures a burst from its due millisecond to the first and the last record, and reads it again to compare")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic, "--partitions", "2")
    broker.cli("produce", topic, stdin="not of the bench\n" * 10)
    broker.cli("produce", topic, "--delay", "1s", stdin="nor this\n" * 10)
    rows, told = result_of(broker.cli("bench", "delayed", "--burst", "5000", "--topic", topic, "--id", "--delay", "2s"))
    assert told["topic"] == topic and told["partitions"] == 2 and told["delivered"] == told["accepted"] == 5000, told
    assert 0 <= told["burst"]["first_ms"] <= told["burst"]["all_ms"] < 5000, told
    assert 0 < told["floor"]["first_ms"] <= told["floor"]["all_ms"], told
    assert [told[name] for name in ("early", "lost", "twice", "accepted_late")] == [0] * 4, told
    assert "first fetchable" in [row.split("\t")[0] for row in rows]
    assert topic in broker.cli("topic", "list").stdout, "a topic that it was given is deleted"


@case("bench delayed reports early records if a topic ignores headers, and names the reason of a refusal")
def _(ctx):
    broker, topic, strict = ctx.broker(settings={"auto.create.topics.enable": "false"}), ctx.topic(), ctx.topic()
    broker.cli("topic", "create", topic, "--config", "tarry.delay.enable=false")
    words = ("bench", "delayed", "--rate", "100", "--count", "50", "--delay", "20s", "--spread", "0", "--floor", "0", "--json")
    done = broker.cli(*words, "--topic", topic, check=False)
    one_line(done, 1, "50 records delivered early, 0 lost")
    assert json_lines(done)[0]["early"] == 50
    broker.cli("topic", "create", strict, "--config", "tarry.delay.max.ms=500")
    done = broker.cli(*words, "--topic", strict, check=False)
    one_line(done, 1, "50 records not accepted", "tarry.delay.max.ms")
    told = json_lines(done)[0]
    assert told["refused"] == 50 and told["accepted"] == 0 and "tarry.delay.max.ms" in told["first_refusal"], told
    one_line(broker.cli(*words, "--topic", "nowhere", check=False), 1, "nowhere")


@case("bench delayed finds a record that a broker has lost")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    with subprocess.Popen([broker.binary, "bench", "delayed", "-b", broker.brokers, "--topic", topic, "--rate", "50", "--count", "50",
                           "--delay", "4s", "--spread", "0", "--floor", "0", "--timeout", "3s", "--json", "--id"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        eventually(lambda: len(broker.pending(topic)) == 50, "all are pending")
        # A cancel is a loss, to someone who does not know of it.
        ids = [record["id"] for record in broker.pending(topic)]
        broker.cli("delayed", "cancel", topic, ids[7], ids[40])
        out, said = process.communicate(timeout=30)
    assert process.returncode == 1 and said == "tarry: 0 records delivered early, 2 lost, 0 delivered twice\n", (process.returncode, said)
    assert json.loads(out)["lost"] == 2 and json.loads(out)["delivered"] == 48, out


@case("bench delayed --fill leaves its records pending, and --cancel leaves none, by ids, in several partitions")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic, "--partitions", "3")
    one_line(broker.cli("bench", "delayed", "--fill", "--count", "10", check=False), 2, "--topic")
    filled, = json_lines(broker.cli("bench", "delayed", "--fill", "--topic", topic, "--rate", "0", "--count", "3000", "--delay", "1h", "--spread", "30d", "--json"))
    assert filled["accepted"] == filled["not_due"] == 3000 and filled["cancels"] is None and filled["lost"] == filled["delivered"] == 0, filled
    days = broker.get("/delayed/count?by=day&topic=" + topic)
    assert days["total"] == 3000 and len(days["counts"]) >= 30, days
    pending = lambda: broker.get("/status")["delayed"]["pending"]
    assert pending() == 3000
    rows, told = result_of(broker.cli("bench", "delayed", "--cancel", "--partitions", "3", "--rate", "20000", "--count", "4000", "--clients", "2"))
    assert told["ids"] and told["delay_ms"] == 3_600_000 and told["delivered"] == told["lost"] == 0 and told["not_due"] == 4000, told
    assert told["cancels"]["sent"] == told["cancels"]["accepted"] == 4000 and told["cancels"]["refused"] == 0, told["cancels"]
    assert told["cancels"]["accept_ms"]["p50"] <= told["cancels"]["accept_ms"]["p99"] < 5000, told["cancels"]
    assert "accepted after, p50" in [row.split("\t")[0] for row in rows], rows
    status = broker.get("/status")["delayed"]
    assert (status["pending"], status["cancelled_total"]) == (3000, 4000), status


@case("bench delayed --target fails if no relay brings the records, and fills a source that no relay reads yet")
def _(ctx):
    broker, source, target = ctx.broker(), ctx.topic(), ctx.topic()
    for topic, partitions in ((source, "3"), (target, "2")):
        broker.cli("topic", "create", topic, "--partitions", partitions)
    words = ("bench", "delayed", "--topic", source, "--target", target, "--count", "100", "--json")
    # The floor's first records do come, because they are sent to the target.
    one_line(broker.cli(*words, "--rate", "100", "--timeout", "1s", check=False), 1, f"{source}: the first record", target, "relay")
    read, = json_lines(broker.cli("bench", "consume", "--topic", target, "--json"))
    assert read["records"] == 2, read
    filled, = json_lines(broker.cli(*words, "--fill", "--rate", "0", "--delay", "1h"))
    assert (filled["target"], filled["partitions"], filled["accepted"], filled["not_due"], filled["early"]) == (target, 3, 100, 100, 0), filled
    assert broker.get("/status")["delayed"]["pending"] == 100


@case("Ctrl-C ends bench delayed in order: it prints its results, and deletes its topic with the pending records")
def _(ctx):
    broker = ctx.broker()
    environment = {"TARRY_BROKERS": broker.brokers, "TARRY_ADMIN": "%s:%d" % broker.admin, "PATH": "/usr/bin"}
    with subprocess.Popen([broker.binary, "bench", "delayed", "--rate", "500", "--duration", "1h", "--delay", "1s", "--spread", "1h", "--floor", "0",
                           "--data", broker.data], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        eventually(lambda: broker.get("/status")["delayed"]["pending"] > 1000, "records are pending")
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=30)
    told = json.loads(out.splitlines()[-1])
    assert process.returncode == 0 and said == "", (process.returncode, said)
    assert told["interrupted"] and told["lost"] == 0 and told["not_due"] > 1000, told
    assert told["not_due"] + told["delivered"] == told["accepted"] == told["sent"], told
    assert time.monotonic() - began < 10
    assert broker.cli("topic", "list").stdout == "" and broker.get("/status")["delayed"]["pending"] == 0


def in_order(times):
    return [times[name] for name in ("min", "p50", "p90", "p99", "p99.9", "max")] == sorted(times.values())


@case("bench produce sends what it was asked for to a topic that it makes, and bench consume reads the same records and bytes")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    words = ("bench", "produce", "--topic", topic, "--partitions", "3", "--bytes", "200", "--clients", "2")
    rows, told = result_of(broker.cli(*words, "--count", "20000"))
    assert (told["bench"], told["topic"], told["partitions"], told["clients"], told["acks"]) == ("produce", topic, 3, 2, "all"), told
    assert told["sent"] == told["records"] == told["count"] == 20000 and told["errors"] == 0, told
    assert told["bytes"] == 4_000_000 and told["records_per_s"] > 0 and told["mb_per_s"] > 0, told
    assert abs(told["records_per_s"] * told["seconds"] - 20000) < 200, told
    assert in_order(told["ack_ms"]) and told["ack_ms"]["max"] < 30_000, told
    assert {"records accepted", "records a second", "MB a second", "accepted after, p99.9"} <= {row.split("\t")[0] for row in rows}, rows
    read, = json_lines(broker.cli("bench", "consume", "--topic", topic, "--json"))
    assert (read["records"], read["bytes"], read["partitions"], read["from"]) == (20000, 4_000_000, 3, "start"), read
    assert 0 < read["first_ms"] <= read["seconds"] * 1000 and read["records_per_s"] > 0 and read["mb_per_s"] > 0, read
    some, = json_lines(broker.cli("bench", "consume", "--topic", topic, "--count", "700", "--json"))
    assert (some["records"], some["bytes"]) == (700, 140_000), some
    # A topic that is named stays, and is not another one than was asked for.
    one_line(broker.cli(*words[:4], "--partitions", "4", "--count", "1", check=False), 1, topic, "3 partitions")
    assert topic in broker.cli("topic", "list").stdout


@case("bench produce at a rate counts from the schedule, by a duration as well, and leaves no topic that nobody named")
def _(ctx):
    broker = ctx.broker()
    rows, told = result_of(broker.cli("bench", "produce", "--rate", "500", "--duration", "2s"))
    assert told["sent"] == told["records"] == 1000 and 1.9 < told["seconds"] < 10, told
    assert in_order(told["ack_ms"]) and told["ack_ms"]["min"] > 0, told
    fast, = json_lines(broker.cli("bench", "produce", "--duration", "500ms", "--acks", "1", "-X", "linger.ms=1", "--json"))
    assert fast["count"] is None and fast["records"] == fast["sent"] > 0 and fast["acks"] == "1", fast
    assert broker.cli("topic", "list").stdout == "", "its topic is left"


@case("bench produce has idempotent producers where -X asks for them, by itself or in a file")
def _(ctx):
    broker = ctx.broker()
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        file.write("enable.idempotence = true\n")
        file.flush()
        for word in ("enable.idempotence=true", f"@{file.name}"):
            told, = json_lines(broker.cli("bench", "produce", "--count", "1000", "-X", word, "--json"))
            assert told["sent"] == told["records"] == 1000 and told["errors"] == 0, told


@case("bench produce at a rate that nobody keeps up with ends soon after its duration, and says how many records it did not send")
def _(ctx):
    broker, began = ctx.broker(), time.monotonic()
    words = ("bench", "produce", "--rate", "10000000", "--duration", "500ms", "--size", "16", "--timeout", "1s", "--json")
    done = broker.cli(*words, check=False)
    told, = json_lines(done)
    one_line(done, 1, "not sent")
    assert told["sent"] + told["not_sent"] == 5_000_000 and told["not_sent"] > 0, told
    assert time.monotonic() - began < 30, told


@case("bench consume whose broker dies fails, whether it would end by --idle or by --duration")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("bench", "produce", "--topic", topic, "--count", "1000")
    read, = json_lines(broker.cli("bench", "consume", "--topic", topic, "--idle", "100ms", "--json"))
    assert read["records"] == 1000 and "error" not in read, read
    readers = [subprocess.Popen([broker.binary, "bench", "consume", "--topic", topic, *words, "-b", broker.brokers, "--json"],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
               for words in (("--idle", "4s", "--timeout", "6s"), ("--duration", "4s"))]
    time.sleep(2)  # Long enough that both have read all; nothing outside tells when.
    broker.kill()
    for reader in readers:
        out, said = reader.communicate(timeout=30)
        assert reader.returncode == 1 and topic in said, (reader.returncode, said)
        told = json.loads(out)
        assert told["records"] == 1000 and told["error"], told


@case("bench e2e counts every record from its schedule to a consumer, and reports one that a topic with a delay keeps")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    rows, told = result_of(broker.cli("bench", "e2e", "--rate", "400", "--count", "800", "--partitions", "2", "--clients", "2"))
    assert told["bench"] == "e2e" and told["sent"] == told["accepted"] == told["records"] == 800, told
    assert (told["lost"], told["twice"], told["errors"], told["unconfirmed"]) == (0, 0, 0, 0), told
    assert in_order(told["latency_ms"]) and 0 < told["latency_ms"]["p50"] < 5000, told
    assert in_order(told["ack_ms"]) and told["rate"] == 400, told
    assert {"records read", "lost", "twice", "read after, p50"} <= {row.split("\t")[0] for row in rows}, rows
    assert broker.cli("topic", "list").stdout == "", "its topic is left"
    broker.cli("topic", "create", topic, "--config", "tarry.delay.ms=3600000")
    held = broker.cli("bench", "e2e", "--count", "10", "--topic", topic, "--timeout", "1s", check=False)
    one_line(held, 1, topic, "tarry.delay.ms")


@case("bench e2e at a rate that nobody keeps up with ends soon after its duration, and says how many records it did not send")
def _(ctx):
    broker, began = ctx.broker(), time.monotonic()
    done = broker.cli("bench", "e2e", "--rate", "10000000", "--duration", "1s", "--size", "16", "--timeout", "3s", "--json", check=False)
    told, = json_lines(done)
    one_line(done, 1, "not sent")
    assert told["sent"] + told["not_sent"] == 10_000_000 and told["not_sent"] > 0, told
    assert told["accepted"] == told["records"] == told["sent"], told
    assert time.monotonic() - began < 60, told


@case("Ctrl-C ends bench produce and bench consume in order, with the figures so far; a broker that is away is one line")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("bench", "produce", "--topic", topic, "--count", "1000")
    for words in (("produce", "--topic", topic, "--rate", "100", "--duration", "1h"), ("consume", "--topic", topic, "--count", "1000000")):
        with subprocess.Popen([broker.binary, "bench", *words, "-b", broker.brokers, "--json"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            time.sleep(1.5)  # Long enough that either has sent or read something; nothing outside tells when.
            process.send_signal(signal.SIGINT)
            out, said = process.communicate(timeout=30)
        told = json.loads(out)
        assert process.returncode == 0 and said == "", (process.returncode, said)
        assert told["interrupted"] and told["records"] > 0, told
    away = "127.0.0.1:1"
    for words in (("produce",), ("consume", "--topic", topic), ("e2e",)):
        one_line(run(broker.binary, "bench", *words, "-b", away, check=False), 1, away)


@case("the program behind the table of figures measures its steps with brokers of its own, finds all records there, and leaves nothing")
def _(ctx):
    values, steps = ctx.directory / "figures.json", {"full", "cancel", "shards"}
    program = [sys.executable, "-B", ROOT / "bench" / "delay_figures.py", "--binary", ctx.options.binary, "--dir", ctx.directory, "--json", values]
    done = run(*program, "--quick", "--full", "4", "--only", ",".join(steps), within=300, check=False)
    told = json.loads(values.read_text())
    assert told["failed"] == [] and {each["step"] for each in told["figures"]} == steps | {"all"}, done.stdout
    figures = {each["figure"]: each for each in told["figures"]}
    assert len({(each["step"], each["figure"]) for each in told["figures"]}) == len(told["figures"]), "two figures of a step have one name"
    assert figures["cancels a second, in due order, pipelined"]["rates"][0] > 0, done.stdout
    assert figures["disk a pending record, without the journal"]["pending"] == 55_000, done.stdout
    assert figures["early, of all that the brokers delivered"]["delivered"] == 3_000, done.stdout
    table = run(sys.executable, "-B", ROOT / "bench" / "delay_table.py", values).stdout
    assert sum(line.startswith("| `") for line in table.splitlines()) == len(told["figures"]), table
    # What the owner of so many records sees stands under it.
    assert "in `/status` 55 000 pending" in table and any(line.startswith("| disk | hour | ") for line in table.splitlines()), table
    assert table.count("    20") == 5 and "count --by hour" in table, table
    assert [path.name for path in ctx.directory.iterdir()] == ["figures.json"], "a broker's directory is left"
