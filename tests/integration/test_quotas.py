"""Quotas: who uses more than it may is slowed down to it, and nobody else is."""

import json
import re
import struct
import threading
import time

import wire
from harness import case, eventually, run
from test_security import authenticate, handshake, plain, sasl_broker

DESCRIBE_QUOTAS, ALTER_QUOTAS = 48, 49
# So the first second's worth is all that may be used at once, and a case takes seconds.
SHORT = {"quota.window.num": "2", "quota.window.size.seconds": "1"}


def alter(client, entity, **limits):
    """entity: (type, name) pairs, None for the default; a limit of None is removed. The error."""
    body = wire.i32(1) + wire.i32(len(entity))
    for kind, name in entity:
        body += wire.string(kind) + wire.string(name)
    body += wire.i32(len(limits))
    for key, limit in limits.items():
        body += wire.string(key) + struct.pack(">d", limit or 0) + wire.i8(limit is None)
    answer = client.request(ALTER_QUOTAS, 0, body + wire.i8(0))
    answer.i32(), answer.i32()
    return answer.i16()


def describe(client):
    """All quotas: {((type, name), ...): {key: limit}}."""
    answer = client.request(DESCRIBE_QUOTAS, 0, wire.i32(0) + wire.i8(0))
    answer.i32()
    assert answer.i16() == 0
    answer.string()
    found = {}
    for _ in range(answer.i32()):
        entity = tuple(answer.array(lambda: (answer.string(), answer.string())))
        found[entity] = dict(answer.array(lambda: (answer.string(), struct.unpack(">d", answer.take(8))[0])))
    return found


def kcat_produce(broker, topic, records, size, client_id):
    """How long it took."""
    begun = time.monotonic()
    run("kcat", "-P", "-b", broker.brokers, "-t", topic, "-X", f"client.id={client_id}", "-X", "batch.size=20000",
        "-X", "linger.ms=1", stdin=(("x" * (size - 1)) + "\n") * records)
    return time.monotonic() - begun


@case("quotas that were answered are there after kill -9, and removed ones are not")
def _(ctx):
    broker = ctx.broker()
    alice, everybody, address = (("user", "alice"),), (("client-id", None),), (("ip", "127.0.0.1"),)
    with broker.client() as client:
        assert alter(client, alice, producer_byte_rate=1024, request_percentage=12.5) == 0
        assert alter(client, everybody, consumer_byte_rate=2048) == 0
        assert alter(client, address, connection_creation_rate=100) == 0
        assert alter(client, alice, producer_byte_rate=None) == 0
        assert alter(client, alice, of_no_use=1) == wire.INVALID_REQUEST
    broker.restart()
    with broker.client() as client:
        assert describe(client) == {alice: {"request_percentage": 12.5}, everybody: {"consumer_byte_rate": 2048},
                                    address: {"connection_creation_rate": 100}}


@case("a producer with a quota takes as long as it should, and another one beside it does not")
def _(ctx):
    broker = ctx.broker(settings=SHORT)
    with broker.client() as client:
        topic = client.create_topic(ctx.topic("quota"), partitions=4)
        assert alter(client, (("client-id", "slow"),), producer_byte_rate=200_000) == 0
    took = {}
    slow = threading.Thread(target=lambda: took.update(slow=kcat_produce(broker, topic, 200, 5000, "slow")))
    slow.start()
    took["other"] = kcat_produce(broker, topic, 200, 5000, "other")
    slow.join()
    # 1 MB: the first 200 kB at once, the rest in 4 s.
    assert 3 <= took["slow"] <= 20, took
    assert took["other"] < took["slow"] / 1.3, took
    throttled = re.findall(r'^tarry_throttled_requests_total{.*quota="producer_byte_rate"} (\d+)$',
                           broker.get("/metrics"), re.MULTILINE)
    assert sum(map(int, throttled)) > 0, throttled


@case("two consumers of one user share its quota, and get everything")
def _(ctx):
    broker = ctx.broker(settings=SHORT)
    with broker.client() as client:
        topic = client.create_topic(ctx.topic("quota"))
        for _ in range(60):
            client.produce(topic, [wire.record(b"x" * 10_000)])
        assert alter(client, (("user", "ANONYMOUS"),), consumer_byte_rate=300_000) == 0
    took, failed = [], []

    def read():
        begun = time.monotonic()
        with broker.client() as reader:
            offset = 0
            while offset < 60:
                sent = reader.send(wire.FETCH, 11, reader.fetch_body(topic, offset, partition_bytes=50_000))
                answer = reader.receive(wire.FETCH, 11)
                throttled = answer.i32()
                if throttled:
                    assert (answer.i16(), answer.i32(), answer.i32()) == (0, 0, 0), f"answer to {sent}"
                    continue
                answer.at -= 4
                for each in reader.read_fetched(answer).batches():
                    offset = each.last_offset + 1
        took.append(time.monotonic() - begun)

    def guarded():
        try:
            read()
        except Exception as error:  # noqa: BLE001  (A thread's error is the case's.)
            failed.append(error)

    readers = [threading.Thread(target=guarded) for _ in range(2)]
    for each in readers:
        each.start()
    for each in readers:
        each.join()
    assert not failed, failed
    # 1.2 MB: 300 kB at once, the rest in 3 s.
    assert 2 <= max(took) <= 20, took


@case("connections that are made faster than a listener may accept them are all served, later")
def _(ctx):
    broker = ctx.broker(settings={**SHORT, "listener.name.plaintext.max.connection.creation.rate": "5"})
    begun = time.monotonic()
    clients = [broker.client() for _ in range(15)]
    for client in clients:
        assert client.api_versions()[0] == 0
        client.close()
    # Five at once, the others in 2 s.
    assert 1.2 <= time.monotonic() - begun <= 20


@case("tarry config sets, shows and removes the quotas of users, client ids and addresses, as Kafka's own tool sees them")
def _(ctx):
    broker = ctx.broker(settings=SHORT)
    config = lambda *words, **more: broker.cli("config", *words, **more)
    assert config("get", "--user", "alice").stdout == config("get", "--any-ip").stdout
    assert config("set", "--user", "alice", "producer_byte_rate=1MiB", "request_percentage=12.5").stdout == "user alice: producer_byte_rate=1048576\nuser alice: request_percentage=12.5\n"
    config("set", "--user", "alice", "--client-id", "shop", "consumer_byte_rate=2000")
    config("set", "--any-client-id", "producer_byte_rate=300")
    config("set", "--ip", "127.0.0.1", "connection_creation_rate=1000")
    rows = lambda *words: [json.loads(line) for line in config("get", *words, "--json").stdout.splitlines()]
    assert rows("--any-client-id") == [{"client-id": None, "quota": "producer_byte_rate", "value": 300}], rows("--any-client-id")
    assert {"user": "alice", "client-id": "shop", "quota": "consumer_byte_rate", "value": 2000} in rows("--user", "alice") and len(rows("--user", "alice")) == 3
    assert rows("--user", "alice", "request_percentage") == [{"user": "alice", "quota": "request_percentage", "value": 12.5}]
    assert [row["value"] for row in rows("--ip", "127.0.0.1")] == [1000] and rows("--user", "bob") == []
    broker.restart()
    config("set", "--user", "alice", "--unset", "producer_byte_rate", "--unset", "request_percentage")
    assert [row["quota"] for row in rows("--user", "alice")] == ["consumer_byte_rate"]
    for words, code, said in ((["--user", "a", "--ip", "1.2.3.4", "x=1"], 2, "--ip"), (["--user", "a", "nonsense=1"], 1, "nonsense"), (["--user", "a", "producer_byte_rate=fast"], 2, "fast"),
                              (["--topic", "t", "--user", "a", "x=1"], 2, "--user")):
        wrong = config("set", *words, check=False)
        assert wrong.returncode == code and said in wrong.stderr and len(wrong.stderr.splitlines()) == 1, (words, wrong)


@case("how fast connections may be made is changed while the broker runs, for all listeners and for one, and the change survives a restart")
def _(ctx):
    broker = ctx.broker(settings=SHORT)

    def seconds_of(count):
        begun = time.monotonic()
        for _ in range(count):
            with broker.client() as client:
                assert client.api_versions()[0] == 0
        return time.monotonic() - begun

    for key in ("max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"):
        assert f"{key}=5" in broker.cli("config", "set", f"{key}=5").stdout
        assert seconds_of(15) >= 1, key
        broker.restart()
        assert seconds_of(15) >= 1, key
        broker.cli("config", "set", "--unset", key)
        seconds_of(10)  # The next one waits for what was before.
        assert seconds_of(15) < 1, key


@case("an address that connects faster than its quota is turned away, and let in again")
def _(ctx):
    broker = ctx.broker(settings=SHORT)
    with broker.client() as client:
        assert alter(client, (("ip", "127.0.0.1"),), connection_creation_rate=3) == 0
        served = 0
        for _ in range(10):
            with broker.client() as other:
                try:
                    served += other.api_versions()[0] == 0
                except wire.ConnectionEnded:
                    pass
        assert 3 <= served < 10, served
        assert client.api_versions()[0] == 0  # A connection that is open stays so.

    def let_in():
        try:
            with broker.client() as other:
                return other.api_versions()[0] == 0
        except wire.ConnectionEnded:
            return False

    eventually(let_in, "a connection is served again", pause=0.5)


HOUR = 3_600_000


def user_of(broker, name):
    """A connection that has logged in."""
    client = broker.client()
    assert handshake(client, "PLAIN")[0] == 0
    assert authenticate(client, plain(name, f"{name}-secret"))[0] == 0
    return client


def pending_of(broker, user):
    """(records, bytes), as /metrics has them; None: it has none."""
    found = dict(re.findall(r'^tarry_delay_user_pending_(records|bytes){user="%s"} (\d+)$' % user, broker.get("/metrics"), re.MULTILINE))
    return (int(found["records"]), int(found["bytes"])) if found else None


@case("a user who has as much pending as its quota allows is refused, another one goes on, a cancel frees room, and kill -9 keeps the count")
def _(ctx):
    broker = sasl_broker(ctx)
    at = str(int(time.time() * 1000) + HOUR)
    with user_of(broker, "admin") as admin, user_of(broker, "alice") as alice:
        topics = [admin.create_topic(ctx.topic("pending"), partitions=3) for _ in range(2)]
        assert alter(admin, (("user", "alice"), ("client-id", "c")), pending_records=5) == wire.INVALID_REQUEST
        assert alter(admin, (("client-id", "c"),), pending_bytes=5) == wire.INVALID_REQUEST
        assert alter(admin, (("user", "alice"),), pending_records=5) == 0
        for number in range(5):
            alice.produce(topics[number % 2], [wire.record(str(number), x_deliver_at=at, x_schedule_id=f"id{number}")], partition=number % 3)
        refused = alice.produce(topics[0], [wire.record("more", x_deliver_at=at)], check=False)
        assert refused.error == 6 and "user alice has 5 pending records and may have 5 (quota pending_records)" in refused.message, vars(refused)
        admin.produce(topics[0], [wire.record("another's", x_deliver_at=at)] * 9)
        alice.produce(topics[0], [wire.record("now")])
        alice.produce(topics[0], [wire.record("replaced", x_deliver_at=at, x_schedule_id="id0")])
        assert broker.http("PATCH", f"/delayed/{topics[1]}/id3", body={"due": int(at) + HOUR})[0] == 200
        assert pending_of(broker, "alice")[0] == 5
    assert broker.get(f"/topics/{topics[0]}")["refused_batches"]["last"]["reason"] == "user_max_pending"
    before = {user: pending_of(broker, user) for user in ("alice", "admin")}
    assert before["admin"][0] == 9 and before["alice"][1] > 5 * len("id0") and pending_of(broker, "ANONYMOUS") is None, before
    for shards in (None, 1, 2):
        broker.restart(shards)
        assert {user: pending_of(broker, user) for user in ("alice", "admin")} == before, shards
    with user_of(broker, "alice") as alice:
        assert alice.produce(topics[1], [wire.record("more", x_deliver_at=at)], check=False).error == 6
        # In either of the two ways; the id was written down before the kills.
        alice.produce(topics[1], [wire.record("", x_schedule_id="id1", x_schedule_action="cancel")], partition=1)
        alice.produce(topics[1], [wire.record("more", x_deliver_at=at)])
        assert broker.http("DELETE", f"/delayed/{topics[0]}/id2")[0] == 200
        alice.produce(topics[1], [wire.record("more", x_deliver_at=at)])
        assert alice.produce(topics[1], [wire.record("more", x_deliver_at=at)], check=False).error == 6
        broker.restart()
    assert pending_of(broker, "alice")[0] == 5
    with user_of(broker, "admin") as admin, user_of(broker, "alice") as alice:
        assert broker.http("DELETE", f"/topics/{topics[1]}?force=true")[0] == 200
        left = pending_of(broker, "alice")[0]
        assert left < 5
        alice.produce(topics[0], [wire.record("more", x_deliver_at=at)] * (5 - left))
        assert alice.produce(topics[0], [wire.record("more", x_deliver_at=at)], check=False).error == 6


@case("a client above its quota of pending bytes is told so and tries again until something is delivered")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic("pending"))
        assert broker.cli("config", "set", "--user", "ANONYMOUS", "pending_bytes=10KiB").stdout == "user ANONYMOUS: pending_bytes=10240\n"
        client.produce(topic, [wire.record("x" * 9000, x_delay="1500ms")])
        refused = client.produce(topic, [wire.record("y" * 2000, x_delay="1s")], check=False)
        assert refused.error == 6 and "(quota pending_bytes)" in refused.message, vars(refused)
    ran = broker.cli("produce", topic, "-v", "z" * 2000, "--delay", "100ms", "-X", "message.timeout.ms=20000")
    assert ran.returncode == 0, ran.stderr
    eventually(lambda: pending_of(broker, "ANONYMOUS") is None, "everything is delivered")
    with broker.client() as client:
        assert len(client.consume(topic, 2)) == 2
