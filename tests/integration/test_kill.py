"""kill -9 at random moments, in a size that fits into every test run; kill_test.py by hand for more."""

import json
import os

import kill_test
from harness import Skip, case


@case("kill -9 at random moments: 0 lost, 0 twice, 0 early, equal due times in order")
def _(ctx):
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        raise Skip("no confluent_kafka here: apt-get install python3-confluent-kafka") from None
    directory = ctx.directory / "killed"
    directory.mkdir()
    said = []
    report = kill_test.torture(ctx.options.binary, directory, records=10_000, kills=20,
                               seed=int.from_bytes(os.urandom(4), "big"), seconds=20, tell=said.append)
    print(f"             {said[-1]}")
    assert report["ok"], "\n".join(map(str, said))
    assert report["cancelled"] and report["replaced"] and report["pending"], report


@case("the check of the kill test finds those acknowledged records that are not there, and no others")
def _(ctx):
    directory = ctx.directory / "lost"
    directory.mkdir()
    said = []
    report = kill_test.torture(ctx.options.binary, directory, records=500, kills=1, seed=1, seconds=2, tell=said.append, lose=7)
    assert report["ok"] and report["lost"] == 7, "\n".join(map(str, said))


@case("kill -9 while long batches of delayed records are applied and memory for them is short: every acknowledged one is pending")
def _(ctx):
    broker, topic = ctx.broker(settings={"tarry.delay.memory.bytes": "16777216"}), ctx.topic()
    broker.cli("topic", "create", topic)
    count = 0
    for _ in range(3):
        done = broker.cli("bench", "delayed", "--fill", "--topic", topic, "--rate", "0", "--count", "100000", "--delay", "1h", "--spread", "30d", "--json")
        count += json.loads(done.stdout)["accepted"]
        broker.restart()
        assert broker.get("/status")["delayed"]["pending"] == count, (broker.get("/status")["delayed"]["pending"], count)
        assert sum(row["count"] for row in broker.get("/delayed/count?by=day&topic=" + topic)["counts"]) == count
