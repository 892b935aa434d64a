"""Settings of a running broker over the Kafka protocol, its log as JSON, its metrics in the eyes of
Prometheus, and other names for the headers."""

import contextlib
import http.client
import json
import re
import socket
import subprocess

import wire
from harness import ROOT, Skip, case, eventually, run
from promtool import promtool

INCREMENTAL_ALTER_CONFIGS, BROKER = 44, 4
SET, DELETE = 0, 1


def alter(client, changes, name="1", validate_only=False):
    """changes: {key: value, or None to delete it}. (error, message)."""
    configs = wire.i32(len(changes)) + b"".join(
        wire.string(key) + wire.i8(DELETE if value is None else SET) + wire.string(value) for key, value in changes.items())
    answer = client.request(INCREMENTAL_ALTER_CONFIGS, 0, wire.i32(1) + wire.i8(BROKER) + wire.string(name) + configs
                            + wire.i8(validate_only))
    answer.i32(), answer.i32()
    return answer.i16(), answer.string()


def described(client, key, name="1"):
    """(value, read-only, source)."""
    answer = client.request(32, 1, wire.i32(1) + wire.i8(BROKER) + wire.string(name) + wire.i32(1) + wire.string(key) + wire.i8(0))
    answer.i32(), answer.i32()
    error, message = answer.i16(), answer.string()
    assert error == 0, message
    answer.i8(), answer.string()
    if answer.i32() == 0:
        return None
    assert answer.string() == key
    return answer.string(), bool(answer.i8()), answer.i8()


@case("the limits of connections that a client changes hold for the next connection, and end none that is open")
def _(ctx):
    broker = ctx.broker()

    def is_refused():
        with socket.create_connection(broker.address, timeout=5) as more, contextlib.suppress(ConnectionResetError):
            # The broker closes it, or waits for a request.
            more.settimeout(1)
            try:
                return more.recv(1) == b""
            except TimeoutError:
                return False
        return True

    def limits():
        status = broker.get("/status")
        return status["max_connections"], status["wanted_connections"]

    assert limits() == (100_000, 100_000) or limits()[0] < limits()[1] == 100_000, "this machine may allow fewer open files"
    with broker.client() as client:
        assert not is_refused()
        assert alter(client, {"max.connections.per.ip": "1"}) == (0, None)
        eventually(is_refused, "a second connection from this address is refused")
        assert alter(client, {"max.connections": "1", "max.connections.per.ip": None}) == (0, None)
        assert limits() == (1, 1) and is_refused()
        assert described(client, "max.connections") == ("1", False, 2)
        assert alter(client, {"max.connections": None, "producer.id.expiration.ms": "3600000"}) == (0, None)
        eventually(lambda: not is_refused(), "a second connection is served")
    broker.kill()
    broker.start()
    with broker.client() as client:
        assert described(client, "producer.id.expiration.ms") == ("3600000", False, 2)


@case("a setting that a client changes is in effect at once, overrides the file after kill -9, and is gone when it is deleted")
def _(ctx):
    broker = ctx.broker(settings={"num.partitions": 2})
    with broker.client() as client:
        assert described(client, "num.partitions") == ("2", False, 4)
        assert alter(client, {"num.partitions": "3", "message.max.bytes": "1KiB"}) == (0, None)
        assert described(client, "num.partitions") == ("3", False, 2)
        assert described(client, "message.max.bytes")[0] == "1024"
        topic = ctx.topic()
        client.metadata(topic, create=True)
        eventually(lambda: len(client.metadata(topic)[topic][2]) == 3, "a topic of 3 partitions")
        client.produce(topic, [wire.record("v")])
        try:
            client.produce(topic, [wire.record("v" * 2000)])
            raise AssertionError("a batch above message.max.bytes was accepted")
        except wire.KafkaError as refused:
            assert refused.code == 10, refused

        error, message = alter(client, {"num.partitions": "9", "listeners": "PLAINTEXT://localhost:1"})
        assert error == wire.INVALID_REQUEST and "listeners" in message and "restart" in message, message
        error, message = alter(client, {"num.partitions": "0"})
        assert error == 40 and "from 1 to 100000" in message, message
        assert alter(client, {"num.partitions": "9"}, validate_only=True) == (0, None)
        assert described(client, "listeners")[1], "read-only"
    broker.restart()
    with broker.client() as client:
        assert described(client, "num.partitions") == ("3", False, 2)
        assert "num.partitions=3" in broker.log(), "the log tells what wins over the file"
        assert alter(client, {"num.partitions": None}) == (0, None)
        assert described(client, "num.partitions") == ("2", False, 4)


@case("the log's level and form change while the broker runs; as JSON every line is an object")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        assert alter(client, {"tarry.log.format": "json", "tarry.log.level": "info"}) == (0, None)
        client.create_topic("told")
        assert alter(client, {"tarry.log.level": "error"}) == (0, None)
        client.create_topic("not-told")
        assert alter(client, {"tarry.log.level": None, "tarry.log.format": None}) == (0, None)
        client.create_topic("told-as-text")
    eventually(lambda: "told-as-text" in broker.log(), "the last line")
    lines = broker.log().splitlines()
    told = [json.loads(line) for line in lines if line.startswith("{")]
    created = [line for line in told if "topic told created" in line["message"]]
    assert len(created) == 1 and created[0]["level"] == "info" and created[0]["component"] == "broker", told
    assert set(created[0]) == {"time", "level", "component", "message"}
    assert not any("not-told" in line for line in lines)
    # The fields and the levels are those of docs/operating.md.
    page = (ROOT / "docs/operating.md").read_text()
    shown = json.loads(re.search(r'^    (\{"time":.*\})$', page, re.M)[1])
    assert list(shown) == list(created[0]) and shown["level"] == "error", shown
    assert re.search(r"`level` is `debug`, `info`, `warn` or `error`", page)
    assert not lines[-1].startswith("{")
    broker.kill()
    broker.settings["tarry.log.format"] = "json"
    broker.log_file.unlink()
    broker.start()
    assert broker.stop() == 0
    lines = broker.log().splitlines()
    assert lines and all(json.loads(line)["message"] for line in lines), lines


def broker_with_figures(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.produce(topic, [wire.record("now"), wire.record("soon", x_delay="10ms"), wire.record("late", x_delay="1h")])
        client.consume(topic, 2)
    return broker, topic


@case("Prometheus' own tool finds nothing wrong in /metrics")
def _(ctx):
    broker, topic = broker_with_figures(ctx)
    text = broker.get("/metrics")
    for name in ("tarry_storage_free_bytes{directory=", "tarry_delay_oldest_overdue_seconds 0",
                 f'tarry_delay_topic_pending{{topic="{topic}"}} 1', f'tarry_delay_topic_delivered_total{{topic="{topic}"}} 1'):
        assert name in text, f"no {name}"
    checked = run(promtool(), "check", "metrics", stdin=text)
    assert not checked.stdout + checked.stderr, checked


@case("the answer of /metrics in OpenMetrics is read by Prometheus' own strict parser, and has each figure of the other answer")
def _(ctx):
    try:
        from prometheus_client import parser as plain_parser
        from prometheus_client.openmetrics import parser
    except ImportError:
        raise Skip("python3-prometheus-client is not installed") from None
    broker, topic = broker_with_figures(ctx)
    connection = http.client.HTTPConnection(*broker.admin, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"})
        answer = connection.getresponse()
        assert answer.getheader("Content-Type").startswith("application/openmetrics-text; version=1.0.0")
        text = answer.read().decode()
    assert text.endswith("\n# EOF\n")
    samples = [each for family in parser.text_string_to_metric_families(text) for each in family.samples]
    assert ("tarry_delay_topic_pending", {"topic": topic}, 1) in [(each.name, each.labels, each.value) for each in samples]
    names = {each.name for each in samples}
    plain = {each.name for family in plain_parser.text_string_to_metric_families(broker.get("/metrics")) for each in family.samples}
    assert plain <= names and len(plain) > 80, (plain - names, len(plain))


@case("a header with an alias delays its record and is removed; aliases that clash are refused at the start")
def _(ctx):
    aliases = "tarry.delay.header.aliases"
    broker = ctx.broker(settings={aliases: "x-delay=postpone,x-schedule-id=job-id"})
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.produce(topic, [wire.record("v", Postpone="300ms", job_id="j-1", other="o")])
        assert [each["id"] for each in broker.pending(topic)] == ["j-1"]
        delivered = client.consume(topic, 1)[0]
        names = [name.decode() for name, _ in delivered.headers]
        assert "Postpone" not in names and delivered.header("other") == "o" and delivered.header("job-id") == "j-1", names
        assert delivered.header("x-scheduled-for"), names
        refused = client.produce(topic, [wire.record("v", postpone="soon")], check=False)
        assert refused.error == 87 and "postpone stands for x-delay" in str(refused.record_errors), refused
    broker.stop()
    for value, word in (("x-delay=x-until", "Tarry's own"), ("x-later=postpone", "does not begin with one of"),
                        ("x-delay=a,x-deliver-at=A", "a second time")):
        broker.settings[aliases] = value
        started = subprocess.run(broker.command(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
        said = started.stderr.strip()
        assert started.returncode == 1 and len(said.splitlines()) == 1 and aliases in said and word in said, said
