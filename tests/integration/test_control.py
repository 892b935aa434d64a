"""What the owner of pending records may do: move, deliver now, count, trace, select, export and import."""

import concurrent.futures
import json
import subprocess
import time

import wire
from harness import case, eventually, now_ms, run

HOUR = 3_600_000


@case("a moved record is delivered only at its new time, with its old handle, also over kill -9")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.schedule(topic, "a", x_delay="1s")
        client.schedule(topic, "b")
        handle = {row["id"]: row["handle"] for row in broker.pending(topic)}
        due = int(now_ms()) + 2 * HOUR
        status, body = broker.http("PATCH", f"/delayed/{topic}/a", body={"due": due})
        assert status == 200 and body == {"result": "moved", "partitions": [{"partition": 0, "result": "moved", "due_ms": due}]}
    broker.restart()
    with broker.client() as client:
        rows = {row["id"]: row for row in broker.pending(topic)}
        assert rows["a"]["due_ms"] == due and rows["a"]["handle"] == handle["a"]
        soon = int(now_ms()) + 700
        assert broker.http("PATCH", f"/delayed/{topic}/{handle['a']}", body={"due": soon})[1]["result"] == "moved"
        records = client.consume(topic, 1)
        assert records[0].value == b"a" and records[0].header("x-schedule-handle") == handle["a"]
        assert int(records[0].header("x-scheduled-for")) == soon and records[0].arrived >= soon
        assert broker.http("PATCH", f"/delayed/{topic}/a", body={"by": "1h"})[1]["result"] == "already_delivered"
        assert broker.http("PATCH", f"/delayed/{topic}/{handle['a']}", body={"by": "1h"})[1]["result"] == "unknown"
        before = rows["b"]["due_ms"]
        assert broker.http("PATCH", f"/delayed/{topic}/b", body={"by": "-10m"})[1]["partitions"][0]["due_ms"] == before - 600_000


@case("a record that is delivered now is in the log at the offset of the answer, and not again")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), partitions=2)
        client.produce(topic, [wire.record("first")], 1)
        client.schedule(topic, "a", partition=1)
        status, body = broker.http("POST", f"/delayed/{topic}/a/deliver")
        assert status == 200 and body == {"result": "delivered", "partitions": [{"partition": 1, "result": "delivered", "offset": 1}]}
        assert [record.value for record in client.consume(topic, 2, partition=1)] == [b"first", b"a"]
        late = {"partition": 1, "result": "already_delivered", "offset": 1}
        assert broker.http("POST", f"/delayed/{topic}/a/deliver")[1] == {"result": "already_delivered", "partitions": [late]}
        assert broker.http("POST", f"/delayed/{topic}/nobody/deliver")[1]["result"] == "unknown"
        assert broker.http("POST", f"/delayed/{topic}/a/deliver", token=False)[0] == 401
        assert client.end_offset(topic, 1) == 2


@case("a record whose partition cannot be opened is not delivered: the request is told why, and a stop does not wait for it")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.schedule(topic, "a")
    assert broker.stop() == 0
    log = broker.data / "logs" / f"{topic}-0"
    log.rename(broker.data / "away")
    log.write_text("a file where a directory should be")
    broker.start()
    status, body = broker.http("POST", f"/delayed/{topic}/a/deliver")
    assert status == 503 and "cannot be opened" in body["error"] and "it stays pending" in body["error"], body
    # While the partition waits for its next try nobody answers the next request but the stop.
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(broker.http, "POST", f"/delayed/{topic}/a/deliver")
        time.sleep(0.2)
        assert broker.stop(within=15) == 0
        asked.exception()
    log.unlink()
    (broker.data / "away").rename(log)
    broker.start()
    with broker.client() as client:
        assert [record.value for record in client.consume(topic, 1)] == [b"a"]


@case("a wrong body, action, time or duration is refused with the reason, and nothing changes")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.schedule(topic, "a", x_expire_at=int(now_ms()) + 2 * HOUR)
    before = broker.pending(topic)
    for method, path, body, word in [
        ("PATCH", "a", None, "JSON object"), ("PATCH", "a", [1], "JSON object"), ("PATCH", "a", {}, "either"),
        ("PATCH", "a", {"due": "tomorrow"}, "tomorrow"), ("PATCH", "a", {"by": "soon"}, "soon"),
        ("PATCH", "a", {"due": 1, "by": "1h"}, "either"), ("PATCH", "a", {"at": 1}, "'at'"), ("PATCH", "a", {"due": True}, "true"),
        ("POST", "select", {"id": "*"}, "action"), ("POST", "select", {"id": "*", "action": "drop"}, "drop"),
        ("POST", "select", {"action": "cancel"}, "empty"), ("POST", "select", {"id": "", "action": "cancel"}, "empty"),
        ("POST", "select", {"id": "*", "action": "cancel", "due": 1}, "move"),
        ("POST", "select", {"id": "*", "action": "move"}, "either"),
        ("POST", "select", {"id": "*", "action": "cancel", "dry_run": "yes"}, "yes"),
        ("POST", "select", {"id": "*", "action": "cancel", "show": 5}, "show belongs to dry_run"),
        ("POST", "select", {"id": "*", "action": "cancel", "dry_run": True, "show": 1001}, "1001"),
        ("POST", "select", {"id": "*", "action": "cancel", "partition": 7}, "7"),
        ("PATCH", "a", {"due": 1_000}, "2000"), ("PATCH", "a", {"due": 253_402_300_800_000}, "9999"),
        ("POST", "select", {"id": "*", "action": "move", "due": 1_000}, "2000"),
        ("DELETE", "a", {"by": "1h"}, "no body"),
    ]:
        status, answer = broker.http(method, f"/delayed/{topic}/{path}", body=body)
        assert status == 400 and word in answer["error"], (method, body, status, answer)
    for body, word in [({"due": int(now_ms()) + 3 * HOUR}, "x-expire-at"), ({"by": "-500000h"}, "2000")]:
        status, answer = broker.http("PATCH", f"/delayed/{topic}/a", body=body)
        assert status == 409 and word in answer["error"], (body, status, answer)
    assert broker.pending(topic) == before


@case("count says how many are pending in each minute, hour or day")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic, other = client.create_topic(ctx.topic()), client.create_topic(ctx.topic())
        start = (int(now_ms()) // HOUR + 5) * HOUR
        due = [start + 1, start + 2, start + 60_000, start + HOUR, start + 30 * HOUR]
        client.produce(topic, [wire.record(str(n), x_deliver_at=each) for n, each in enumerate(due)])
        client.produce(other, [wire.record("x", x_deliver_at=start)])
    assert broker.get(f"/delayed/count?topic={topic}") == {"total": 5, "by": None, "counts": []}
    assert broker.get("/delayed/count")["total"] == 6
    for by, unit in [("minute", 60_000), ("hour", HOUR), ("day", 24 * HOUR)]:
        expected = {}
        for each in due:
            expected[each // unit * unit] = expected.get(each // unit * unit, 0) + 1
        answer = broker.get(f"/delayed/count?topic={topic}&by={by}")
        assert answer["total"] == 5 and {row["from"]: row["count"] for row in answer["counts"]} == expected
        lines = broker.cli("delayed", "count", topic, "--by", by).stdout.splitlines()
        assert [line.split("\t")[1] for line in lines] == [str(expected[each]) for each in sorted(expected)]
    assert broker.get(f"/delayed/count?topic={topic}&from={start + 60_000}")["total"] == 3
    assert broker.cli("delayed", "count", topic).stdout == "5\n"
    assert broker.http("GET", "/delayed/count?by=week")[0] == 400


@case("trace shows the events of an id, up to the offset of its delivery, also over kill -9")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.produce(topic, [wire.record("first")])
        client.schedule(topic, "a")
        client.schedule(topic, "a", x_delay="2h")
        # A move into the past would make it due at the time of the move.
        due = int(now_ms()) + 2500
        broker.cli("delayed", "move", topic, "a", "--at", str(due))
        eventually(lambda: client.end_offset(topic, 0) == 2, "its delivery")
        client.schedule(topic, "b")
        broker.cli("delayed", "cancel", topic, "b")
    broker.restart()
    events = broker.get(f"/delayed/{topic}/a/trace")["events"]
    assert [each["event"] for each in events] == ["scheduled", "replaced", "moved", "delivered"], events
    assert [each["offset"] for each in events] == [None, None, None, 1] and events[3]["due_ms"] == due
    assert [each["event"] for each in broker.get(f"/delayed/{topic}/b/trace")["events"]] == ["scheduled", "cancelled"]
    assert broker.http("GET", f"/delayed/{topic}/nobody/trace")[0] == 404
    lines = [line.split("\t") for line in broker.cli("delayed", "trace", topic, "a").stdout.splitlines()]
    assert lines[3][1] == "delivered" and lines[3][-1] == "1"


@case("a selection cancels, moves or delivers the matching records and no others, and --dry-run changes nothing")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), partitions=3)
        for n in range(2_500):
            if n % 100 == 0:
                batch = []
            batch.append(wire.record(f"v{n}", key=f"k{n % 10}", x_delay="1h" if n % 2 else "2h", x_schedule_id=f"id-{n:04}"))
            if n % 100 == 99:
                client.produce(topic, batch, n // 100 % 3)
    preview = broker.cli("delayed", "cancel", topic, "--id", "id-0*", "--dry-run")
    assert preview.stdout.startswith("1000 records would be cancelled\n") and len(preview.stdout.splitlines()) == 11
    # The same for clients that may only read.
    preview = broker.get(f"/delayed/select?topic={topic}&id=id-0*&show=2")
    assert preview["matched"] == 1_000 and preview["done"] == 0 and [row["id"] for row in preview["records"]] == ["id-0001", "id-0003"], preview
    for query, wanted in (("id=id-0*", 400), (f"topic={topic}&show=1001", 400), (f"topic={topic}&action=cancel", 400), ("topic=nobody&id=*", 404)):
        assert broker.http("GET", f"/delayed/select?{query}", token=False)[0] == wanted, query
    # A pattern of topics is looked for in one go, and says how many are of which.
    with broker.client() as client:
        other = client.create_topic(ctx.topic("other"))
        client.produce(other, [wire.record("v", x_delay="30m", x_schedule_id="id-00")])
    preview = broker.get("/delayed/select?topic=*&id=id-00*&show=2")
    assert preview["matched"] == 101 and preview["topics"] == {topic: 100, other: 1}, preview
    assert [(row["topic"], row["id"]) for row in preview["records"]] == [(other, "id-00"), (topic, "id-0001")], preview
    assert broker.get(f"/delayed/select?topic={other[:-1]}%5B!x%5D&id=*")["topics"] == {other: 1}
    assert broker.get("/delayed/select?topic=nobody*&id=*")["topics"] == {}
    assert broker.http("GET", "/delayed/select?topic=*&partition=0&id=*", token=False)[0] == 400
    assert broker.get(f"/delayed/count?topic={topic}")["total"] == 2_500
    assert broker.cli("delayed", "cancel", topic, "--id", "id-0*").stdout == "1000 records cancelled\n"
    assert broker.get(f"/delayed/count?topic={topic}")["total"] == 1_500
    status, text = broker.http("POST", f"/delayed/{topic}/select", body={"from": 0, "action": "move", "by": "10h"})
    lines = [json.loads(line) for line in text.splitlines()]
    assert status == 200 and lines[-1] == {"matched": 1_500, "done": 1_500, "already_delivered": 0, "unknown": 0}
    assert [line["done"] for line in lines[-2:]] == [1_000, 1_500]
    hours = sorted((row["due_ms"] - row["accepted_ms"]) // HOUR for row in broker.pending(topic))
    assert set(hours) <= {11, 12}, set(hours)
    assert broker.cli("delayed", "cancel", topic, "--key", "k[13]", "--dry-run").stdout.startswith("300 records would be cancelled\n")
    assert broker.cli("delayed", "cancel", topic, "--key", "k[!0-8]", "--dry-run").stdout.startswith("150 records would be cancelled\n")
    assert broker.cli("delayed", "deliver", topic, "--key", "k3").stdout == "150 records delivered\n"
    with broker.client() as client:
        assert sum(client.end_offset(topic, partition) for partition in range(3)) == 150
    assert broker.cli("delayed", "cancel", topic, "--from", "+10h30m", "--to", "+11h30m").stdout == "600 records cancelled\n"
    ids = "".join(row["id"] + "\n" for row in broker.pending(topic)[:3])
    broker.cli("delayed", "cancel", topic, "-", stdin=ids)
    assert broker.get(f"/delayed/count?topic={topic}")["total"] == 747
    # Unlike an id that is unknown: a pattern names no record that should be there.
    assert broker.cli("delayed", "cancel", topic, "--id", "nobody*").stdout == "0 records cancelled\n"
    for words in (["cancel", topic], ["cancel", topic, "a", "--id", "b"], ["move", topic, "a"], ["cancel", topic, "a", "--dry-run"]):
        wrong = broker.cli("delayed", *words, check=False)
        assert wrong.returncode == 2 and len(wrong.stderr.splitlines()) == 1, (words, wrong)


@case("cancel - stops with one line when the admin answers no more, and asks for no other id")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        for name in ("a", "b", "c"):
            client.schedule(topic, name)
    admin = "%s:%d" % broker.admin
    # Without the token: nothing that follows would end in another way.
    nobody = run(broker.binary, "delayed", "cancel", topic, "-", "--admin", admin, "--data", ctx.directory, stdin="a\nb\nc\n", check=False)
    assert nobody.returncode == 1 and len(nobody.stdout.splitlines()) == 1 and "token" in nobody.stderr, nobody
    assert len(nobody.stderr.splitlines()) == 1 and len(broker.pending(topic)) == 3
    process = subprocess.Popen([broker.binary, "delayed", "cancel", topic, "-", "--json", "--admin", admin, "--data", broker.data],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(b"a\n")
    process.stdin.flush()
    eventually(lambda: len(broker.pending(topic)) == 2, "a is cancelled")
    broker.kill()
    out, error = process.communicate(b"b\nc\n", timeout=30)
    rows = [json.loads(line) for line in out.splitlines()]
    assert [(row["id"], row["result"]) for row in rows] == [("a", "cancelled"), ("b", "error")], out
    error = error.decode()
    assert process.returncode == 1 and len(error.splitlines()) == 1, error
    assert all(word in error for word in ("b: ", admin, "stopped there, after 1 record cancelled")), error
    broker.start()


@case("a record that is exported and imported is pending again with its key, value, headers, id, due time and expiry")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), partitions=2)
        client.schedule(topic, "a", partition=1, key="ä", mine="h", x_expire_at=int(now_ms()) + 9 * HOUR)
        client.produce(topic, [wire.record(bytes(range(256)), key=b"\xff\x00", x_delay="3h")], 0)
        client.produce(topic, [wire.record(None, key=None, x_delay="4h")], 0)
    before = broker.get(f"/delayed?topic={topic}&values=true")["records"]
    exported = broker.cli("delayed", "export", topic).stdout
    assert len(exported.splitlines()) == 3
    broker.cli("delayed", "cancel", topic, "--from", "0")
    assert broker.pending(topic) == []
    assert broker.cli("delayed", "import", stdin=exported).stdout == "3 records accepted\n"
    after = broker.get(f"/delayed?topic={topic}&values=true")["records"]
    for row in before + after:
        for name in ("handle", "accepted_ms", "timestamp_ms"):
            row.pop(name)
    assert before == after, (before, after)
    for text, word in [("{", "JSON object"), ('{"topic": 1}', "topic"), ('{"topic": "t"}', "due_ms"),
                       ('{"topic": "t", "due_ms": 1, "value": "?"}', "base64"),
                       (json.dumps({"topic": topic, "partition": 9, "due_ms": 1}), "no partition 9")]:
        wrong = broker.cli("delayed", "import", stdin=text + "\n", check=False)
        assert wrong.returncode == 1 and word in wrong.stderr and "line 1" in wrong.stderr, (text, wrong.stderr)
    # A line that says less than its record had, or a number that no time has, becomes no other record.
    for fields, word in [({"due_ms": 2**64 - 1}, "due_ms is not"), ({"partition": 2**63}, "partition is not"), ({"expires_ms": 2**63}, "expires_ms is not"),
                         ({"recurrence": {"every": "1h", "until_ms": 2**64 - 1}}, "until_ms is not"),
                         ({"recurring": True}, "recurrence is missing"), ({"recurrence": {"left": 3}}, "neither every nor cron"),
                         ({"key": None, "value": None, "damage": "it is truncated"}, "damaged when it was exported: it is truncated")]:
        line = json.dumps({"topic": topic, "due_ms": int(now_ms()) + HOUR} | fields)
        wrong = broker.cli("delayed", "import", stdin=line, check=False)
        assert wrong.returncode == 1 and word in wrong.stderr and "line 1:" in wrong.stderr, (line, wrong.stderr)
    assert len(broker.pending(topic)) == len(after)
    # Lines may end with a carriage return, empty ones too.
    lines = "".join(json.dumps({"topic": topic, "due_ms": int(now_ms()) + HOUR}) + end for end in ("\r\n\r\n", "\r\n \r\n"))
    assert broker.cli("delayed", "import", stdin=lines).stdout == "2 records accepted\n"
    # What does not fit is told with the limit, and how many did; also where one more record would fit, but not a batch.
    for limit, pending in (("2", 2), ("12", 9)):
        with broker.client() as client:
            full = client.create_topic(ctx.topic(), tarry_delay_max_pending=limit)
            for number in range(pending):
                client.schedule(full, f"there-{number}")
        lines = "".join(json.dumps({"topic": full, "due_ms": int(now_ms()) + HOUR, "id": f"new-{number}"}) + "\n" for number in range(5))
        refused = broker.cli("delayed", "import", "--timeout", "2s", stdin=lines, check=False)
        assert refused.returncode == 1 and refused.stdout == "0 records accepted\n", refused
        assert all(word in refused.stderr for word in ("0 records accepted, 5 refused", full, "tarry.delay.max.pending", limit)), refused.stderr
        assert "NOT_LEADER" not in refused.stderr and len(refused.stderr.splitlines()) == 1, refused.stderr
        assert len(broker.pending(full)) == pending
        # What ended the import is told beside what was refused.
        both = broker.cli("delayed", "import", "--timeout", "2s", stdin=lines + "{\n", check=False)
        assert both.returncode == 1 and len(both.stderr.splitlines()) == 1, both.stderr
        assert all(word in both.stderr for word in ("5 refused", "line 1:", "tarry.delay.max.pending", "line 6:", "JSON object")), both.stderr
    missing = broker.cli("delayed", "import", "/nowhere", check=False)
    assert missing.returncode == 1 and "/nowhere" in missing.stderr
