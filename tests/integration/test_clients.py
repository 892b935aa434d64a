"""Stock clients, unchanged, in four languages. Nothing of them knows that Tarry is no Kafka."""

import json
import time

import compression
import wire
from harness import Skip, case, eventually, now_ms, run
from node_clients import errand


def kcat_records(broker, topic, count, *more, within=20):
    """What kcat reads from the topic's beginning, as dicts with offset, timestamp, headers, value."""
    done = run("kcat", "-C", "-q", "-b", broker.brokers, "-t", topic, "-o", "beginning", "-c", count,
               "-f", "%o\t%T\t%k\t%h\t%s\n", "-X", "fetch.wait.max.ms=100", *more, within=within)
    rows = []
    for line in done.stdout.splitlines():
        offset, timestamp, key, headers, value = line.split("\t")
        pairs = dict(pair.split("=", 1) for pair in headers.split(",") if pair)
        rows.append({"offset": int(offset), "timestamp": int(timestamp), "key": key, "headers": pairs, "value": value})
    return rows


def kcat_produce(broker, topic, lines, *more):
    run("kcat", "-P", "-b", broker.brokers, "-t", topic, *more, stdin="".join(line + "\n" for line in lines))


def check_delivery(row, due_from, due_to, schedule_id=None):
    """row: a delivered record of any client as {timestamp, headers}: its headers as docs/life_of_a_delayed_message.md says."""
    headers = dict(row["headers"])
    due = int(headers.pop("x-scheduled-for"))
    assert due_from <= due <= due_to, f"due {due} is not within {due_from} and {due_to}"
    assert headers.pop("x-schedule-handle").startswith("@")
    assert headers.pop("x-schedule-id", None) == schedule_id
    assert not [name for name in headers if name.startswith("x-d") or name.startswith("x-s")], headers
    if "timestamp" in row:
        assert row["timestamp"] == due, f"its timestamp {row['timestamp']} is not its due time {due}"
    return due


# --- kcat ------------------------------------------------------------------------------------------


@case("kcat creates a topic by producing to it and reads back what it wrote", any_broker=True)
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    kcat_produce(broker, topic, ["one", "two"], "-k", "key", "-H", "a=b", "-H", "c=d")
    rows = kcat_records(broker, topic, 2)
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [(0, "key", "one"), (1, "key", "two")]
    assert rows[0]["headers"] == {"a": "b", "c": "d"}


@case("kcat writes and reads every codec", any_broker=True)
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        for codec, name in compression.NAMES.items():
            topic = client.create_topic(ctx.topic(name))
            kcat_produce(broker, topic, [f"{name} {i}" for i in range(50)], "-z", name)
            assert [row["value"] for row in kcat_records(broker, topic, 50)] == [f"{name} {i}" for i in range(50)]


@case("kcat lists the broker and its topics", any_broker=True)
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), partitions=3)
    listed = json.loads(run("kcat", "-L", "-J", "-b", broker.brokers).stdout)
    assert broker.brokers in [each["name"] for each in listed["brokers"]]
    found = [each for each in listed["topics"] if each["topic"] == topic]
    assert len(found) == 1 and len(found[0]["partitions"]) == 3


@case("kcat asks for the offset of a time", any_broker=True)
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.produce(topic, [wire.record("a", timestamp=1_700_000_000_000), wire.record("b", timestamp=1_700_000_005_000)])
        client.produce(topic, [wire.record("c", timestamp=1_700_000_009_000)])
    for stamp, offset in ((1_699_999_999_999, 0), (1_700_000_000_001, 1), (1_700_000_005_000, 1), (1_700_000_005_001, 2)):
        said = run("kcat", "-Q", "-b", broker.brokers, "-t", f"{topic}:0:{stamp}").stdout
        assert f"offset {offset}" in said, f"at {stamp}: {said}"


@case("a record that kcat delays by a header comes when it is due, with the headers of a delivery")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    sent = now_ms()
    kcat_produce(broker, topic, ["late"], "-H", "x-delay=1500ms", "-H", "x-schedule-id=an id", "-H", "mine=1", "-k", "key")
    took = now_ms()
    kcat_produce(broker, topic, ["at once"])
    rows = kcat_records(broker, topic, 2)
    arrived = now_ms()
    assert [row["value"] for row in rows] == ["at once", "late"]
    assert "x-scheduled-for" not in rows[0]["headers"]
    assert rows[1]["key"] == "key" and rows[1]["headers"]["mine"] == "1"
    due = check_delivery(rows[1], sent + 1499, took + 1501, "an id")
    assert arrived >= due


# --- librdkafka from Python ----------------------------------------------------------------------


def confluent():
    try:
        import confluent_kafka
        import confluent_kafka.admin
        return confluent_kafka
    except ImportError:
        raise Skip("no confluent_kafka here: apt-get install python3-confluent-kafka") from None


def confluent_consume(broker, topic, partitions, count, within=20):
    library = confluent()
    consumer = library.Consumer({"bootstrap.servers": broker.brokers, "group.id": "unused",
                                 "enable.auto.commit": False, "fetch.wait.max.ms": 100})
    consumer.assign([library.TopicPartition(topic, p, 0) for p in range(partitions)])
    messages, end = [], time.monotonic() + within
    while len(messages) < count and time.monotonic() < end:
        message = consumer.poll(0.2)
        if message and not message.error():
            messages.append(message)
        elif message:
            raise AssertionError(str(message.error()))
    consumer.close()
    assert len(messages) == count, f"{len(messages)} of {count} messages within {within} s"
    return messages


@case("confluent-kafka's idempotent producer stores every record once and in order", any_broker=True)
def _(ctx):
    library, broker = confluent(), ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), partitions=3)
    failed = []
    producer = library.Producer({"bootstrap.servers": broker.brokers, "enable.idempotence": True,
                                 "compression.type": "lz4", "linger.ms": 5})
    for number in range(3000):
        producer.produce(topic, value=str(number), partition=number % 3,
                         on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(30) == 0 and not failed, failed
    messages = confluent_consume(broker, topic, 3, 3000)
    for partition in range(3):
        mine = [message for message in messages if message.partition() == partition]
        assert [int(message.value()) for message in mine] == list(range(partition, 3000, 3))
        assert [message.offset() for message in mine] == list(range(1000))


@case("confluent-kafka administers topics: create, describe, alter, add partitions, delete", any_broker=True)
def _(ctx):
    library, broker, topic = confluent(), ctx.broker(), ctx.topic()
    admin = library.admin.AdminClient({"bootstrap.servers": broker.brokers})

    def wait(futures):
        return [future.result(20) for future in futures.values()][0]

    def described():
        configs = wait(admin.describe_configs([library.admin.ConfigResource("topic", topic)]))
        return {name: entry.value for name, entry in configs.items()}

    wait(admin.create_topics([library.admin.NewTopic(topic, 2, 1, config={"retention.ms": "123456"})]))
    again = admin.create_topics([library.admin.NewTopic(topic, 2, 1)])[topic].exception(20)
    assert again.args[0].code() == library.KafkaError.TOPIC_ALREADY_EXISTS
    eventually(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 2, "2 partitions")
    assert described()["retention.ms"] == "123456"
    assert {"cleanup.policy", "max.message.bytes", "message.timestamp.type", "segment.bytes"} <= set(described())
    wait(admin.alter_configs([library.admin.ConfigResource("topic", topic, set_config={"retention.ms": "654321"})]))
    eventually(lambda: described()["retention.ms"] == "654321", "the altered config")
    wait(admin.create_partitions([library.admin.NewPartitions(topic, 5)]))
    eventually(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 5, "5 partitions")
    wait(admin.delete_topics([topic]))
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic is gone")


@case("a config that no topic has is refused, and the topic is not made", any_broker=True)
def _(ctx):
    library, broker, topic = confluent(), ctx.broker(), ctx.topic()
    admin = library.admin.AdminClient({"bootstrap.servers": broker.brokers})
    for config in ({"no.such.config": "1"}, {"retention.ms": "soon"}):
        error = admin.create_topics([library.admin.NewTopic(topic, 1, 1, config=config)])[topic].exception(20)
        assert error and error.args[0].code() == library.KafkaError.INVALID_CONFIG, error
    assert topic not in admin.list_topics(timeout=10).topics


@case("confluent-kafka's idempotent producer may mix delayed records with others")
def _(ctx):
    library, broker = confluent(), ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        reports = []
        producer = library.Producer({"bootstrap.servers": broker.brokers, "enable.idempotence": True, "linger.ms": 50})
        sent = now_ms()
        for number in range(30):
            headers = {"x-delay": "1s"} if number % 3 == 0 else {}
            producer.produce(topic, value=str(number), partition=0, headers=headers,
                             on_delivery=lambda error, message: reports.append((error, message.offset())))
        assert producer.flush(20) == 0
        took = now_ms()
        assert [error for error, _ in reports if error] == []
        messages = confluent_consume(broker, topic, 1, 30)
        values = [int(message.value()) for message in messages]
        assert values[:20] == [n for n in range(30) if n % 3], values
        assert values[20:] == list(range(0, 30, 3)), values
        for message in messages[20:]:
            check_delivery({"timestamp": message.timestamp()[1],
                            "headers": {key: text.decode() for key, text in message.headers()}}, sent + 999, took + 1001)


# --- kafka-python ---------------------------------------------------------------------------------


def kafka_python():
    try:
        import kafka
        import kafka.admin
        return kafka
    except ImportError:
        raise Skip("no kafka here: apt-get install python3-kafka") from None


def kafka_python_consume(broker, topic, count, within=20):
    library = kafka_python()
    consumer = library.KafkaConsumer(bootstrap_servers=broker.brokers, auto_offset_reset="earliest", group_id=None,
                                     enable_auto_commit=False, fetch_max_wait_ms=100)
    consumer.assign([library.TopicPartition(topic, 0)])
    messages, end = [], time.monotonic() + within
    while len(messages) < count and time.monotonic() < end:
        for found in consumer.poll(200).values():
            messages += found
    consumer.close()
    assert len(messages) == count, f"{len(messages)} of {count} messages within {within} s"
    return messages


@case("kafka-python 2.0.2 produces, and consumes what it was assigned", any_broker=True)
def _(ctx):
    library, broker = kafka_python(), ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
    for codec in (None, "gzip"):
        producer = library.KafkaProducer(bootstrap_servers=broker.brokers, compression_type=codec, acks="all")
        futures = [producer.send(topic, key=b"k", value=b"%d" % n, headers=[("a", b"b")]) for n in range(100)]
        producer.flush(20)
        assert [future.get(20).offset for future in futures] == list(range(100) if codec is None else range(100, 200))
        producer.close()
    messages = kafka_python_consume(broker, topic, 200)
    assert [int(message.value) for message in messages] == list(range(100)) * 2
    assert messages[0].headers == [("a", b"b")] and messages[0].key == b"k"


@case("kafka-python 2.0.2 administers topics", any_broker=True)
def _(ctx):
    library, broker, topic = kafka_python(), ctx.broker(), ctx.topic()
    admin = library.KafkaAdminClient(bootstrap_servers=broker.brokers)
    admin.create_topics([library.admin.NewTopic(topic, 2, 1, topic_configs={"retention.ms": "123456"})])
    eventually(lambda: topic in admin.list_topics(), "the topic is listed")
    answers = admin.describe_configs([library.admin.ConfigResource(library.admin.ConfigResourceType.TOPIC, topic)])
    entries = {entry[0]: entry[1] for answer in answers for resource in answer.resources for entry in resource[4]}
    assert entries["retention.ms"] == "123456"
    admin.create_partitions({topic: library.admin.NewPartitions(4)})
    eventually(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 4, "4 partitions")
    admin.delete_topics([topic])
    eventually(lambda: topic not in admin.list_topics(), "the topic is gone")
    admin.close()


@case("kafka-python 2.0.2 sends a delayed record and gets it when it is due")
def _(ctx):
    library, broker = kafka_python(), ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
    producer = library.KafkaProducer(bootstrap_servers=broker.brokers)
    sent = now_ms()
    delayed = producer.send(topic, b"late", headers=[("x-delay", b"1s")]).get(20)
    took = now_ms()
    assert delayed.offset < 0, f"a pending record has no offset yet, not {delayed.offset}"
    producer.send(topic, b"at once").get(20)
    producer.close()
    messages = kafka_python_consume(broker, topic, 2)
    assert [message.value for message in messages] == [b"at once", b"late"]
    check_delivery({"timestamp": messages[1].timestamp, "headers": {k: v.decode() for k, v in messages[1].headers}},
                   sent + 999, took + 1001)


# --- JavaScript -------------------------------------------------------------------------------------


@case("kafkajs produces, plain and idempotent, with and without gzip", any_broker=True)
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic, end = client.create_topic(ctx.topic()), 0
        for idempotent in (False, True):
            for codec in ("None", "GZIP"):
                messages = [{"key": "k", "value": f"{codec} {n}", "headers": {"a": "b"}} for n in range(10)]
                answer = errand("kafkajs", "produce", broker, topic, messages=messages, compression=codec, idempotent=idempotent)
                assert answer[0]["errorCode"] == 0 and int(answer[0]["baseOffset"]) == end, answer
                end += 10
        records = client.consume(topic, 40)
    assert records[-1].value == b"GZIP 9" and records[-1].header("a") == "b"
    assert [rec.offset for rec in records] == list(range(40))


@case("kafkajs administers topics", any_broker=True)
def _(ctx):
    broker = ctx.broker()
    answer = errand("kafkajs", "admin", broker, ctx.topic())
    assert answer["created"] is True and answer["again"] is False and answer["listed"] is True
    assert answer["configs"]["retention.ms"] == "123456" and answer["altered"]["retention.ms"] == "654321"
    assert answer["partitions"] == 3
    assert [each["offset"] for each in answer["offsets"]] == ["0", "0", "0"]
    assert [(each["host"], each["port"]) for each in answer["cluster"]["brokers"]] == [broker.address]
    assert answer["deleted"] is True


@case("kafkajs deletes records below an offset, and none of them is there after a kill", any_broker=True)
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    with broker.client() as client:
        client.create_topic(topic, 2)
        client.produce(topic, [wire.record(str(n)) for n in range(10)])
    answer = errand("kafkajs", "deleteRecords", broker, topic, partitions=[{"partition": 0, "offset": "4"}])
    starts = {each["partition"]: (each["low"], each["high"]) for each in answer["offsets"]}
    assert starts == {0: ("4", "10"), 1: ("0", "0")}, answer
    refused = errand("kafkajs", "deleteRecords", broker, topic, partitions=[{"partition": 0, "offset": "11"}])
    assert "error" in refused, refused
    if hasattr(broker, "restart"):
        broker.restart()
    answer = errand("kafkajs", "deleteRecords", broker, topic, partitions=[{"partition": 0, "offset": "-1"}])
    starts = {each["partition"]: (each["low"], each["high"]) for each in answer["offsets"]}
    assert starts[0] == ("10", "10"), answer


@case("kafkajs sends delayed records, and is told what is wrong with a header")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        sent = now_ms()
        answer = errand("kafkajs", "produce", broker, topic, messages=[
            {"value": "late", "headers": {"x-delay": "1s"}}, {"value": "later", "headers": {"x-delay": "PT1.2S"}}])
        took = now_ms()
        assert answer[0]["errorCode"] == 0 and answer[0]["baseOffset"] == "-2", answer
        records = client.consume(topic, 2)
        assert [rec.value for rec in records] == [b"late", b"later"]
        for rec, delay in zip(records, (1000, 1200)):
            headers = {key.decode(): text.decode() for key, text in rec.headers}
            check_delivery({"timestamp": rec.timestamp, "headers": headers}, sent + delay - 1, took + delay + 1)
        refused = errand("kafkajs", "produce", broker, topic, messages=[{"value": "x", "headers": {"x-delay": "soon"}}])
        assert refused.get("code") == wire.INVALID_RECORD or "INVALID_RECORD" in str(refused), refused


@case("@platformatic/kafka creates a topic, produces and fetches", any_broker=True)
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    created = errand("platformatic", "create", broker, topic)
    assert created[0]["name"] == topic and created[0]["partitions"] == 1
    end = 0
    for codec in ("none", "gzip", "snappy", "lz4"):
        messages = [{"key": "k", "value": f"{codec} {n}", "headers": {"a": "b"}} for n in range(5)]
        answer = errand("platformatic", "produce", broker, topic, messages=messages, compression=codec)
        if "not supported" in str(answer) or "avsc" in str(answer):
            continue  # A codec for which this build of the client wants another package.
        assert answer["offsets"] == [{"topic": topic, "partition": 0, "offset": end}], answer
        end += 5
    records = errand("platformatic", "fetch", broker, topic, count=end)["records"]
    assert [row["offset"] for row in records] == list(range(end))
    assert records[0]["value"] == "none 0" and records[0]["headers"] == {"a": "b"}
    assert end >= 10


@case("@platformatic/kafka sends a delayed record and fetches it when it is due")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
    sent = now_ms()
    answer = errand("platformatic", "produce", broker, topic, messages=[{"value": "late", "headers": {"x-delay": "1s"}}])
    took = now_ms()
    assert answer["offsets"][0]["offset"] == -1, answer
    records = errand("platformatic", "fetch", broker, topic, count=1)["records"]
    assert records[0]["value"] == "late" and records[0]["offset"] == 0
    check_delivery({"headers": records[0]["headers"]}, sent + 999, took + 1001)
