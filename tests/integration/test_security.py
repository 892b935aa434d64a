"""Logins over SASL and rules of who may do what: with the clients that people have, and by hand."""

import base64
import concurrent.futures
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import time

import wire
from harness import Skip, case, eventually, run

HANDSHAKE, AUTHENTICATE = 17, 36
UNSUPPORTED_MECHANISM, LOGIN_FAILED, TOPIC_DENIED = 33, 58, 29

USERS = ('org.apache.kafka.common.security.plain.PlainLoginModule required '
         'username="broker" password="unused" user_admin="admin-secret" user_alice="alice-secret";')
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
              "super.users": "User:admin"}


def sasl_broker(ctx, more=None, **how):
    return ctx.broker(settings={
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config":
            "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        **(more or {})}, **how)


def login(user, password, mechanism="PLAIN"):
    """Properties of librdkafka."""
    words = []
    for text in ("security.protocol=sasl_plaintext", f"sasl.mechanism={mechanism}",
                 f"sasl.username={user}", f"sasl.password={password}"):
        words += ["-X", text]
    return words


def tarry(broker, *words, **how):
    return run(broker.binary, *words, "-b", broker.brokers, **how)


def handshake(client, mechanism, version=1):
    answer = client.request(HANDSHAKE, version, wire.string(mechanism))
    return answer.i16(), answer.array(answer.string)


def authenticate(client, token):
    """(error, bytes)."""
    answer = client.request(AUTHENTICATE, 0, wire.i32(len(token)) + token)
    error = answer.i16()
    answer.string()
    size = answer.i32()
    return error, answer.take(size)


def plain(user, password):
    return f"\0{user}\0{password}".encode()


def is_ended(client):
    client.socket.settimeout(5)
    try:
        return client.socket.recv(1) == b""
    except ConnectionError:
        return True


def scram(client, user, password, mechanism="SCRAM-SHA-256", change_nonce=lambda nonce: nonce):
    """The error of the exchange's last step; the signature is checked."""
    name = mechanism[6:].replace("-", "").lower()
    assert handshake(client, mechanism)[0] == 0
    bare = f"n={user},r={base64.b64encode(os.urandom(12)).decode()}"
    error, first = authenticate(client, f"n,,{bare}".encode())
    assert error == 0
    said = dict(part.split("=", 1) for part in first.decode().split(","))
    salted = hashlib.pbkdf2_hmac(name, password.encode(), base64.b64decode(said["s"]), int(said["i"]))
    client_key = hmac.digest(salted, b"Client Key", name)
    without = f"c=biws,r={change_nonce(said['r'])}"
    message = f"{bare},{first.decode()},{without}".encode()
    signature = hmac.digest(hashlib.new(name, client_key).digest(), message, name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature))
    error, last = authenticate(client, f"{without},p={base64.b64encode(proof).decode()}".encode())
    if error == 0:
        expected = hmac.digest(hmac.digest(salted, b"Server Key", name), message, name)
        assert last == b"v=" + base64.b64encode(expected)
    return error


@case("kcat logs in by PLAIN with the right password alone")
def _(ctx):
    broker, topic = sasl_broker(ctx), ctx.topic()
    run("kcat", "-P", "-b", broker.brokers, "-t", topic, *login("alice", "alice-secret"), stdin="one\n")
    read = run("kcat", "-C", "-q", "-e", "-b", broker.brokers, "-t", topic, *login("alice", "alice-secret"))
    assert read.stdout == "one\n"
    wrong = run("kcat", "-L", "-m", "2", "-b", broker.brokers, *login("alice", "other"), check=False)
    assert wrong.returncode != 0 and "Invalid username or password" in wrong.stderr, wrong.stderr
    assert "alice-secret" not in broker.log() and "other" not in broker.log()


@case("before its login a client can do nothing but log in")
def _(ctx):
    broker = sasl_broker(ctx)
    with broker.client() as client:
        error, keys, _ = client.api_versions()
        assert error == 0 and keys[AUTHENTICATE] == (0, 2)
        client.send(wire.METADATA, 1, wire.i32(0))
        assert is_ended(client)
    with broker.client() as client:
        client.socket.sendall(wire.i32(100_000) + bytes(10))
        assert is_ended(client)
    with broker.client() as client:
        error, mechanisms = handshake(client, "OAUTHBEARER")
        assert error == UNSUPPORTED_MECHANISM and sorted(mechanisms) == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert is_ended(client)


@case("a failed login is answered late, later each time, and ends its connection")
def _(ctx):
    broker = sasl_broker(ctx, shards=1)
    took = []
    for user in ("alice", "nobody", "alice"):
        with broker.client() as client:
            assert handshake(client, "PLAIN")[0] == 0
            begun = time.monotonic()
            assert authenticate(client, plain(user, "wrong"))[0] == LOGIN_FAILED
            took.append(time.monotonic() - begun)
            assert is_ended(client)
    assert took[0] >= 0.1 and took[1] >= 0.2 and took[2] >= 0.4, took
    assert broker.log().count("audit: a login with PLAIN from 127.0.0.1:") == 3, broker.log()


@case("wrong passwords on many connections wait for one another, and a right one waits less than five seconds")
def _(ctx):
    broker = sasl_broker(ctx)

    def attempt(password):
        with broker.client() as client:
            assert handshake(client, "PLAIN")[0] == 0
            begun = time.monotonic()
            error = authenticate(client, plain("alice", password))[0]
            return error, time.monotonic() - begun
    with concurrent.futures.ThreadPoolExecutor(41) as pool:
        wrong = [pool.submit(attempt, "wrong") for _ in range(40)]
        time.sleep(0.5)
        right = pool.submit(attempt, "alice-secret")
        answers = [each.result() for each in wrong]
    assert all(error == LOGIN_FAILED for error, _ in answers), answers
    took = sorted(seconds for _, seconds in answers)
    # 0.1, 0.3, 0.7, 1.5 and 3.1 s; all others later.
    assert took[5] > 4 and took[-1] < 10, took
    assert right.result()[0] == 0 and right.result()[1] < 5.5, right.result()


@case("a client that uses SaslHandshake version 0 sends its token without a Kafka header")
def _(ctx):
    broker = sasl_broker(ctx)
    with broker.client() as client:
        assert handshake(client, "PLAIN", 0)[0] == 0
        token = plain("alice", "alice-secret")
        client.socket.sendall(wire.i32(len(token)) + token)
        assert client.read_exactly(4) == bytes(4)
        client.metadata()


@case("a user of SCRAM is there until it is deleted, also over kill -9, and the nonce has to be whole")
def _(ctx):
    broker = sasl_broker(ctx)
    admin = login("admin", "admin-secret")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        tarry(broker, "user", "add", "bob", "--mechanism", mechanism, "--password-file", "-", *admin, stdin="bob-secret\n")
    broker.kill()
    broker.start()
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        with broker.client() as client:
            assert scram(client, "bob", "bob-secret", mechanism) == 0
            client.metadata()
    for change in (lambda nonce: nonce + "x", lambda nonce: nonce[:16], lambda nonce: nonce[16:]):
        with broker.client() as client:
            assert scram(client, "bob", "bob-secret", change_nonce=change) == LOGIN_FAILED
    with broker.client() as client:
        assert scram(client, "bob", "wrong") == LOGIN_FAILED
    with broker.client() as client:
        assert scram(client, "nobody", "wrong") == LOGIN_FAILED
    # The command logs in by SCRAM too.
    listed = tarry(broker, "user", "list", *login("bob", "bob-secret", "SCRAM-SHA-512")).stdout
    assert listed == "bob\tSCRAM-SHA-256\t4096\nbob\tSCRAM-SHA-512\t4096\n", listed
    # So do those that use librdkafka, also before 2.6.1, which repeats its nonce.
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        tarry(broker, "topic", "list", *login("bob", "bob-secret", mechanism))
    tarry(broker, "user", "delete", "bob", "--mechanism", "SCRAM-SHA-256", *admin)
    with broker.client() as client:
        assert scram(client, "bob", "bob-secret") == LOGIN_FAILED


@case("a user that was added before the first start can log in")
def _(ctx):
    broker = sasl_broker(ctx, start=False)
    run(broker.binary, "user", "add", "root", "--password-file", "-", "--data", broker.data, stdin="root-secret\n")
    assert (broker.data / "users.add").stat().st_mode & 0o777 == 0o600
    broker.start()
    assert not (broker.data / "users.add").exists()
    for _ in range(2):
        with broker.client() as client:
            assert scram(client, "root", "root-secret", "SCRAM-SHA-512") == 0
        broker.kill()
        broker.start()


@case("a user may do what the rules allow, and nothing else")
def _(ctx):
    broker, topic = sasl_broker(ctx, AUTHORIZER), ctx.topic()
    admin, alice = login("admin", "admin-secret"), login("alice", "alice-secret")
    tarry(broker, "topic", "create", topic, *admin)
    tarry(broker, "topic", "create", topic + "-hidden", *admin)

    def produce(check=False):
        return run("kcat", "-P", "-b", broker.brokers, "-t", topic, *alice, "-X", "message.timeout.ms=3000",
                   stdin="one\n", check=check)

    assert produce().returncode != 0
    eventually(lambda: "User:alice" in broker.log() and "may not" in broker.log(), "the audit line")
    tarry(broker, "acl", "add", "--principal", "User:alice", "--operation", "write", "--topic", topic[:4], "--prefixed", *admin)
    tarry(broker, "acl", "add", "--principal", "User:*", "--operation", "all", "--topic", topic + "-hidden", "--deny", *admin)
    produce(check=True)
    assert tarry(broker, "topic", "list", *alice).stdout.split()[0] == topic
    assert "hidden" not in tarry(broker, "topic", "list", *alice).stdout

    def read(check=True):
        return run("kcat", "-C", "-q", "-e", "-b", broker.brokers, "-t", topic, *alice, check=check).stdout

    assert "one" not in read(check=False)
    tarry(broker, "acl", "add", "--principal", "User:alice", "--operation", "read", "--topic", topic, *admin)
    assert read() == "one\n"
    broker.kill()
    broker.start()  # At another port: that of its listener is 0.
    assert read() == "one\n"
    # Who has no right on the cluster changes no rules.
    refused = tarry(broker, "acl", "list", *alice, check=False)
    assert refused.returncode == 1 and "CLUSTER_AUTHORIZATION_FAILED" in refused.stderr, refused.stderr
    assert len(tarry(broker, "acl", "list", *admin).stdout.splitlines()) == 3
    tarry(broker, "acl", "delete", "--principal", "User:alice", "--operation", "read", "--topic", topic, *admin)
    assert "one" not in read(check=False)


@case("scheduling and cancelling have rules of their own once there is a rule for one, and a topic without any needs WRITE alone")
def _(ctx):
    broker, topic = sasl_broker(ctx, AUTHORIZER), ctx.topic()
    admin = login("admin", "admin-secret")
    tarry(broker, "topic", "create", topic, *admin)
    rule = lambda change, who, name, *more: tarry(broker, "acl", change, "--principal", who, "--operation", "write", "--topic", name, *more, *admin)
    rule("add", "User:alice", topic)
    later = str(int(time.time() * 1000) + 3_600_000)
    later_record = lambda number: wire.record("later", x_deliver_at=later, x_schedule_id=f"id{number}")
    cancel = lambda number: wire.record("", x_schedule_id=f"id{number}", x_schedule_action="cancel")
    with broker.client() as alice:
        assert handshake(alice, "PLAIN")[0] == 0 and authenticate(alice, plain("alice", "alice-secret"))[0] == 0
        alice.produce(topic, [later_record(1), later_record(2)])
        alice.produce(topic, [cancel(1)])
        rule("add", "User:bob", f"{topic}/cancel")
        refused = alice.produce(topic, [cancel(2), wire.record("now")], check=False)
        assert refused.error == TOPIC_DENIED and f"needs WRITE on the topic {topic}/cancel" in refused.message, vars(refused)
        eventually(lambda: "User:alice" in broker.log() and f"may not WRITE TOPIC {topic}/cancel: denied" in broker.log(), "the audit line")
        alice.produce(topic, [later_record(3)])
        rule("add", "User:bob", f"{topic}/", "--prefixed")
        for records in ([later_record(4)], [later_record(2)], [wire.record("replaces", x_delay="0ms", x_schedule_id="id3")]):
            refused = alice.produce(topic, records, check=False)
            assert refused.error == TOPIC_DENIED and f"{topic}/schedule" in refused.message, vars(refused)
        alice.produce(topic, [wire.record("now"), wire.record("due", x_delay="0ms")])
        broker.kill()
        broker.start()
    with broker.client() as alice:
        assert handshake(alice, "PLAIN")[0] == 0 and authenticate(alice, plain("alice", "alice-secret"))[0] == 0
        assert alice.produce(topic, [cancel(2)], check=False).error == TOPIC_DENIED
        rule("add", "User:alice", f"{topic}/cancel")
        alice.produce(topic, [cancel(2)])
        assert alice.produce(topic, [later_record(5)], check=False).error == TOPIC_DENIED
        rule("delete", "User:bob", f"{topic}/", "--prefixed")
        alice.produce(topic, [later_record(5)])
    assert broker.get(f"/topics/{topic}")["refused_batches"]["last"]["reason"] == "may_not_schedule"
    assert len(broker.pending(topic)) == 2


def due_in_a_day(broker, token):
    """What a stream of the admin's events shows of the coming day, once that is counted."""
    connection = http.client.HTTPConnection(*broker.admin, timeout=20)
    deadline = time.monotonic() + 20
    with contextlib.closing(connection):
        connection.request("GET", "/events", headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        while time.monotonic() < deadline:
            if answer.readline() != b"event: due\n":
                continue
            day = json.loads(answer.readline().removeprefix(b"data: "))["spans"][2]
            if day["total"] == 2:
                return day
    raise AssertionError("the stream shows no two records that are due within a day")


@case("reading pending records over the admin has a rule of its own once there is one, for the holders of tokens and for those without one")
def _(ctx):
    broker, theirs, ours = sasl_broker(ctx, AUTHORIZER), ctx.topic("theirs"), ctx.topic("ours")
    alice, bob = "a" * 40, "b" * 40
    holders = broker.data / "admin.tokens"
    holders.touch(mode=0o600)
    holders.write_text(f"alice operate {alice}\nbob operate {bob}\n")
    broker.restart(kill=False)
    with broker.client() as client:
        assert handshake(client, "PLAIN")[0] == 0 and authenticate(client, plain("admin", "admin-secret"))[0] == 0
        for topic in (theirs, ours):
            client.create_topic(topic)
            client.schedule(topic, "id1")
    path = f"/delayed/{theirs}/id1"
    named = (path, f"{path}/trace", f"/delayed?topic={theirs}", f"/delayed/count?topic={theirs}", f"/delayed/select?topic={theirs}&id=*")
    for each in named:
        assert broker.http("GET", each, token=bob)[0] == broker.http("GET", each, token=None)[0] == 200, each
    tarry(broker, "acl", "add", "--principal", "User:alice", "--operation", "read", "--topic", f"{theirs}/pending", *login("admin", "admin-secret"))
    broker.kill()
    broker.start()

    for each in named:
        assert broker.http("GET", each, token=alice)[0] == broker.http("GET", each)[0] == 200, each
        for token in (bob, None):
            status, answer = broker.http("GET", each, token=token)
            assert status == 403 and f"READ on the topic name {theirs}/pending" in answer["error"], (each, status, answer)
    for method, each, body in (("DELETE", path, None), ("PATCH", path, {"by": "1h"}), ("POST", f"{path}/deliver", None),
                               ("POST", f"/delayed/{theirs}/select", {"id": "*", "action": "cancel"})):
        assert broker.http(method, each, token=bob, body=body)[0] == 403, (method, each)
    for token in (bob, None):
        read = lambda what: broker.http("GET", what, token=token)[1]
        assert [record["topic"] for record in read("/delayed")["records"]] == [ours]
        assert read("/delayed/count")["total"] == read("/delayed/count?by=hour")["total"] == 1
        assert [event["topic"] for event in read("/delayed/trace?id=id1")["events"]] == [ours]
        assert read("/delayed/select?topic=*&show=0")["topics"] == {ours: 1}
        day = due_in_a_day(broker, token)
        assert list(day["counts"]) == [ours] and sum(day["other"]) == 1, day
    assert set(due_in_a_day(broker, alice)["counts"]) == {ours, theirs}

    listed = lambda token, **how: broker.cli("delayed", "list", theirs, env={"TARRY_ADMIN_TOKEN": token}, **how)
    assert "id1" in listed(alice).stdout
    refused = listed(bob, check=False)
    assert refused.returncode == 1 and "User:bob may neither read nor change" in refused.stderr, refused.stderr
    refused = listed("", check=False)
    assert refused.returncode == 1 and "a client without a token" in refused.stderr and "--data" in refused.stderr, refused.stderr
    eventually(lambda: "audit: bob with the role operate from 127.0.0.1:" in broker.log() and f"GET {path}: denied (403)" in broker.log(),
               "the audit line")
    assert broker.http("DELETE", path, token=alice)[1]["result"] == "cancelled"


@case("kafka-python logs in by SCRAM-SHA-512")
def _(ctx):
    try:
        import kafka
    except ImportError:
        raise Skip("no kafka here: apt-get install python3-kafka") from None
    broker, topic = sasl_broker(ctx), ctx.topic()
    tarry(broker, "user", "add", "carol", "--password-file", "-", *login("admin", "admin-secret"), stdin="carol-secret\n")
    producer = kafka.KafkaProducer(bootstrap_servers=broker.brokers, security_protocol="SASL_PLAINTEXT",
                                   sasl_mechanism="SCRAM-SHA-512", sasl_plain_username="carol",
                                   sasl_plain_password="carol-secret")
    assert producer.send(topic, b"one").get(10).offset == 0
    producer.close()
