"""tarry explain beside the broker's own answers."""

from harness import case, now_ms, run
from test_cli import json_lines, one_line


@case("explain says when a record would be due, in UTC, in local time and from now, without a broker")
def _(ctx):
    def explain(*words, zone="Europe/Berlin", check=True):
        return run(ctx.options.binary, "explain", *words, check=check, env={"TZ": zone, "TARRY_BROKERS": "127.0.0.1:1"})

    at = ("--at", "2026-11-21T10:00:00Z")
    shown = dict(row.split("\t") for row in explain("x-delay=30m", "x-schedule-id=mine", *at).stdout.splitlines())
    assert shown == {"result": "delayed", "meaning": "held until it is due", "due": "2026-11-21T10:30:00.000Z",
                     "local time": "2026-11-21T11:30:00.000+01:00 (CET)", "in": "30m", "id": "mine"}, shown
    told = json_lines(explain("x-deliver-at=2026-11-21T12:00:00+01:00", "x-expire-at=1800000000000", "--json", *at))
    due = {"result": "delayed", "due": "2026-11-21T11:00:00.000Z", "due_ms": 1795258800000,
           "local": "2026-11-21T12:00:00.000+01:00 (CET)", "in_ms": 3600000}
    assert told == [{**due, "expires": "2027-01-15T08:00:00.000Z", "expires_ms": 1800000000000}], told
    before, told, after = int(now_ms()), json_lines(explain("x-delay=1h", "--json"))[0], now_ms()
    assert before <= told["due_ms"] - 3_600_000 <= after, told
    for words, result in ((["x-delay=0"], "immediate"), (["a=b"], "nothing"), (["x-schedule-id=mine"], "nothing"),
                          (["x-schedule-action=cancel", "x-schedule-id=mine"], "cancel"),
                          (["x-delay=2h", "x-expire-at=2026-11-21T11:00:00Z"], "expired")):
        assert explain(*words, *at).stdout.startswith(f"result\t{result}\n"), words
    runs = explain("x-cron=0 9 * * MON-FRI", "x-cron-tz=Europe/Berlin", *at).stdout.splitlines()
    assert [row for row in runs if row.startswith("run\t")] == [f"run\t2026-11-{day}T08:00:00.000Z" for day in (23, 24, 25, 26, 27)], runs
    assert "ignored\tx-dealy: did you mean x-delay?\n" in explain("x-dealy=1h").stdout
    assert json_lines(explain("x-dealy=1h", "--json")) == [{"result": "nothing", "slips": {"x-dealy": "x-delay"}}]
    assert explain("a=b", "--topic-config", "tarry.delay.ms=1h", *at).stdout.startswith("result\tdelayed\n")


@case("explain refuses what the broker refuses, with the broker's words")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic, "--config", "tarry.delay.max.ms=1h")
    for headers in (["x-delay=soon"], ["x-delay=2h"], ["x-delay=1s", "x-delay=2s"], ["x-delay=1s", "x-deliver-at=1800000000000"],
                    ["x-deliver-at=12:00"], ["x-schedule-action=cancel"], ["x-schedule-action=stop", "x-schedule-id=a"],
                    ["x-delay=1s", "x-schedule-id=@a"], ["x-delay=1s", "x-expire-at=60s"], ["x-delay=s\no\x1b[2Jon"]):
        words = [word for header in headers for word in ("-H", header)]
        refused = broker.cli("produce", topic, "-v", "x", *words, check=False)
        one_line(refused, 1, "INVALID_RECORD: ")
        reason = refused.stderr.strip().split("INVALID_RECORD: ", 1)[1]
        explained = broker.cli("explain", *headers, "--topic-config", "tarry.delay.max.ms=1h", "--json", check=False)
        one_line(explained, 1)
        assert explained.stderr.strip() == f"tarry: refused: {reason}", (explained.stderr, reason)
        assert json_lines(explained)[0]["result"] == "refused"
    assert broker.pending(topic) == []
