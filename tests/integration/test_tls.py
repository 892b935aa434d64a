"""Several listeners, and TLS on them: with the clients that people have, and with those that mean harm."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time

import wire
from certificates import Authority
from harness import ROOT, HealthyClient, Skip, case, eventually, run
from node_clients import errand
from test_settings import alter, described


class TlsClient(wire.Client):
    """The same client over TLS."""

    def __init__(self, address, context, timeout=30):
        super().__init__(address, timeout)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")


def trusting(authority, certificate=None):
    context = ssl.create_default_context(cafile=authority.certificate)
    if certificate:
        context.load_cert_chain(certificate)
    return context


def tls_broker(ctx, both, more=None, **how):
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "ssl.keystore.location": both, **(more or {})}
    return ctx.broker(settings=settings, **how)


def address_told(client):
    """The address of the one broker in Metadata, version 1."""
    answer = client.request(wire.METADATA, 1, wire.i32(0))
    assert answer.i32() == 1
    answer.i32()
    return answer.string(), answer.i32()


def refused(broker):
    """What a broker says that does not start."""
    process = broker.spawn()
    process.wait(20)
    assert process.returncode == 1, broker.log()
    line = broker.log().strip().splitlines()[-1]
    process.stdout.close()
    return line


@case("each listener advertises the address that its clients can reach")
def _(ctx):
    broker = ctx.broker(settings={
        "listeners": "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0,OWN://localhost:0",
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,OWN:PLAINTEXT",
        "advertised.listeners": "EXTERNAL://broker.example:19093,INTERNAL://inside.example:0",
        "inter.broker.listener.name": "INTERNAL"})
    assert list(broker.listeners) == ["INTERNAL", "EXTERNAL", "OWN"] and broker.listeners["INTERNAL"] == broker.address
    for name, told in (("INTERNAL", ("inside.example", broker.address[1])), ("EXTERNAL", ("broker.example", 19093)),
                       ("OWN", ("127.0.0.1", broker.listeners["OWN"][1]))):
        with wire.Client(broker.listeners[name]) as client:
            assert address_told(client) == told, name
            answer = client.request(10, 0, wire.string("group"))  # FindCoordinator
            assert answer.i16() == 0
            answer.i32()
            assert (answer.string(), answer.i32()) == told, name
    status = broker.get("/status")["listeners"]
    own = broker.listeners["OWN"][1]
    assert status["advertised"] == f"INTERNAL://inside.example:{broker.address[1]},EXTERNAL://broker.example:19093,OWN://127.0.0.1:{own}", status
    assert status["kafka"] == broker.brokers, status
    assert status["listeners"] == ",".join(f"{name}://{host}:{port}" for name, (host, port) in broker.listeners.items()), status


@case("--listen together with listeners, and an impossible listener, are refused in one line that names it")
def _(ctx):
    for settings, words in (({"listeners": "SSL://127.0.0.1:0"}, "ssl.keystore.location"),
                            ({"listeners": "OTHER://127.0.0.1:0"}, "listener.security.protocol.map"),
                            ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "PLAINTEXT is given twice")):
        assert words in refused(ctx.broker(start=False, settings=settings)), settings
    both = ctx.broker(start=False, arguments=["--set", "listeners=PLAINTEXT://127.0.0.1:1"])
    line = refused(both)
    assert "--listen" in line and "listeners=PLAINTEXT://127.0.0.1:1" in line, line


@case("a wrong key, a wrong password, an expired certificate and a missing file are each named at the start")
def _(ctx):
    authority = Authority(ctx.directory / "ca")
    key, certificate, both = authority.sign("broker")
    other_key, _, _ = authority.sign("other")
    secret_key, secret_certificate, secret = authority.sign("secret", password="hunter2")
    _, _, expired = authority.sign("expired", days=0)
    mixed, empty = ctx.directory / "mixed.pem", ctx.directory / "empty.pem"
    mixed.write_text(other_key.read_text() + certificate.read_text())
    empty.write_text("nothing\n")
    for settings, words in (({"ssl.keystore.location": mixed}, "does not belong to the first certificate"),
                            ({"ssl.keystore.location": secret}, "ssl.key.password is not given"),
                            ({"ssl.keystore.location": secret, "ssl.key.password": "wrong"}, "is not its password"),
                            ({"ssl.keystore.location": expired}, "expired on Jan  1 00:00:00 2021"),
                            ({"ssl.keystore.location": "/no/such.pem"}, "No such file"),
                            ({"ssl.keystore.location": empty}, "there is no certificate"),
                            ({"ssl.keystore.location": certificate}, "there is no private key"),
                            ({"ssl.keystore.location": both, "ssl.client.auth": "required"}, "ssl.truststore.location"),
                            ({"ssl.keystore.location": both, "ssl.keystore.type": "JKS"}, "PEM")):
        line = refused(ctx.broker(start=False, settings={"listeners": "SSL://127.0.0.1:0", **settings}))
        assert words in line and "hunter2" not in line and "wrong" not in line, line
    started = ctx.broker(settings={"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": secret, "ssl.key.password": "hunter2"})
    with TlsClient(started.address, trusting(authority)) as client:
        client.api_versions()
    # In a file the PEM itself may stand in the configuration, each line ended by \n.
    file = ctx.directory / "inline.properties"
    escaped = {name: path.read_text().replace("\n", "\\n") for name, path in (("key", key), ("certificate.chain", certificate))}
    file.write_text("".join(f"ssl.keystore.{name}={text}\n" for name, text in escaped.items()))
    inline = ctx.broker(settings={"listeners": "SSL://127.0.0.1:0"}, arguments=["--config", str(file)])
    with TlsClient(inline.address, trusting(authority)) as client:
        client.api_versions()


@case("TLS 1.2 and 1.3 give the same records as plain text, small and large, and older versions are refused")
def _(ctx):
    authority = Authority(ctx.directory / "ca")
    broker = tls_broker(ctx, authority.sign("broker")[2])
    topic = ctx.topic()
    values = [bytes([n % 251]) * size for n, size in enumerate((1, 100, 16_000, 16_384, 20_000, 300_000, 900_000))]
    with broker.client() as plain:
        plain.create_topic(topic, 2)
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = trusting(authority)
            context.minimum_version = context.maximum_version = version
            with TlsClient(broker.listeners["SSL"], context) as client:
                for partition in (0, 1):
                    for value in values:
                        client.produce(topic, [wire.record(value)], partition=partition)
                    mine, theirs = ([each.value for each in reader.consume(topic, client.end_offset(topic, partition), partition=partition)]
                                    for reader in (client, plain))
                    assert mine == theirs, (version, partition, len(mine), len(theirs))
                    assert mine[-len(values):] == values
        old = trusting(authority)
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        try:
            TlsClient(broker.listeners["SSL"], old)
            raise AssertionError("TLS 1.1 was spoken")
        except (ssl.SSLError, ConnectionError):
            pass


SUITES = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
          "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256")
UNKNOWN_TO_KERNEL = SUITES[-1]


def kernel_tls_connections(broker):
    return sum(shard["kernel_tls_connections"] for shard in broker.get("/status")["shards"])


def has_kernel_tls():
    """Here: tests/integration/kernel_tls.py is for machines that do not."""
    return pathlib.Path("/proc/net/tls_stat").exists()


@case("large answers arrive whole over TLS with every cipher, and the kernel encrypts them where it can")
def _(ctx):
    authority = Authority(ctx.directory / "ca")
    names = [f"S{n}" for n in range(len(SUITES))]
    settings = {"listeners": ",".join(["PLAINTEXT://127.0.0.1:0"] + [f"{name}://127.0.0.1:0" for name in names]),
                "listener.security.protocol.map": ",".join(f"{name}:SSL" for name in names), "ssl.keystore.location": authority.sign("broker")[2]}
    settings |= {f"listener.name.{name.lower()}.ssl.cipher.suites": suite for name, suite in zip(names, SUITES)}
    broker, topic = ctx.broker(settings=settings), ctx.topic()
    values = [os.urandom(500_000) for _ in range(8)]
    with broker.client() as plain:
        plain.create_topic(topic, 1)
        for value in values:
            plain.produce(topic, [wire.record(value)])
    for name, suite in zip(names, SUITES):
        with TlsClient(broker.listeners[name], trusting(authority)) as client:
            assert [each.value for each in client.consume(topic, len(values))] == values, suite
            expected = 1 if has_kernel_tls() and suite != UNKNOWN_TO_KERNEL else 0
            assert kernel_tls_connections(broker) == expected, (suite, kernel_tls_connections(broker))
        eventually(lambda: kernel_tls_connections(broker) == 0, "the connection has ended")


@case("a client of TLS 1.3 that asks for new keys gets them, or the end of its connection where the kernel has the old")
def _(ctx):
    authority = Authority(ctx.directory / "ca")
    broker = tls_broker(ctx, authority.sign("broker")[2])
    host, port = broker.listeners["SSL"]
    request = struct.pack(">hhih", wire.API_VERSIONS, 0, 123_456_789, -1)
    # At the beginning of a line K is a command of s_client's.
    client = subprocess.Popen(["openssl", "s_client", "-connect", f"{host}:{port}", "-CAfile", authority.certificate, "-tls1_3"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    patience = threading.Timer(30, client.kill)
    patience.start()
    come = b""

    def comes(what):
        nonlocal come
        while what not in come:
            more = os.read(client.stdout.fileno(), 10_000)
            assert more, come
            come += more
    try:
        eventually(lambda: broker.get("/status")["connections"] == 1, "its handshake")
        by_kernel = kernel_tls_connections(broker)
        assert by_kernel == (1 if has_kernel_tls() else 0)
        os.write(client.stdin.fileno(), b"K\n")
        comes(b"KEYUPDATE")
        with contextlib.suppress(BrokenPipeError):  # It may have ended.
            os.write(client.stdin.fileno(), struct.pack(">i", len(request)) + request)
        if by_kernel:
            eventually(lambda: "the client asks for new TLS keys (KeyUpdate)" in broker.log(), "a line in the log")
            client.wait(20)
        else:
            comes(struct.pack(">i", 123_456_789))
    finally:
        patience.cancel()
        client.kill()
        client.wait()
        client.stdin.close()
        client.stdout.close()


@case("a client needs a certificate where ssl.client.auth=required, and may have one where it is requested")
def _(ctx):
    authority, stranger = Authority(ctx.directory / "ca"), Authority(ctx.directory / "other", "stranger")
    broker = ctx.broker(settings={
        "listeners": "STRICT://127.0.0.1:0,OPEN://127.0.0.1:0", "listener.security.protocol.map": "STRICT:SSL,OPEN:SSL",
        "ssl.keystore.location": authority.sign("broker")[2], "ssl.truststore.location": authority.certificate,
        "listener.name.strict.ssl.client.auth": "required", "listener.name.open.ssl.client.auth": "requested"})
    alice = authority.sign("alice")[2]
    mallory = stranger.sign("mallory")[2]

    def served(name, certificate):
        try:
            with TlsClient(broker.listeners[name], trusting(authority, certificate), timeout=10) as client:
                client.api_versions()
            return True
        except OSError:
            return False
    assert served("STRICT", alice) and served("OPEN", alice) and served("OPEN", None)
    assert not served("STRICT", None) and not served("STRICT", mallory) and not served("OPEN", mallory)
    refused = r"audit: a connection from 127\.0\.0\.1:\d+ on listener {} is refused: the client{}"
    for listener, why in (("STRICT", r" sent no certificate \(ssl\.client\.auth=required\)"),
                          ("STRICT", "'s certificate is not accepted"), ("OPEN", "'s certificate is not accepted")):
        eventually(lambda: re.search(refused.format(listener, why), broker.log()), "an audit line that says why")


@case("new certificates are used after SIGHUP and after IncrementalAlterConfigs, and bad ones change nothing")
def _(ctx):
    authority = Authority(ctx.directory / "ca")
    pem = ctx.directory / "broker.pem"
    pem.write_text(authority.sign("first")[2].read_text())
    broker = tls_broker(ctx, pem)

    def subject():
        with socket.create_connection(broker.listeners["SSL"], timeout=10) as connection:
            with trusting(authority).wrap_socket(connection, server_hostname="localhost") as tls:
                return dict(pair[0] for pair in tls.getpeercert()["subject"])["commonName"]
    assert subject() == "first"
    with TlsClient(broker.listeners["SSL"], trusting(authority)) as old, broker.client() as client:
        pem.write_text(authority.sign("second")[2].read_text())
        broker.process.send_signal(signal.SIGHUP)
        eventually(lambda: subject() == "second", "the certificate that was given with SIGHUP")
        old.api_versions()  # A connection keeps what it began with.
        pem.write_text("nothing\n")
        broker.process.send_signal(signal.SIGHUP)
        eventually(lambda: "listener SSL keeps its current certificate" in broker.log(), "a line in the log")
        assert subject() == "second"
        third = authority.sign("third")[2]
        error, message = alter(client, {"listener.name.ssl.ssl.keystore.location": str(ctx.directory / "none.pem")})
        assert error == 40 and "No such file" in message, (error, message)
        assert subject() == "second"
        assert alter(client, {"listener.name.ssl.ssl.keystore.location": str(third)}) == (0, None)
        eventually(lambda: subject() == "third", "the certificate that a client has set")
        third.write_text(authority.sign("fourth")[2].read_text())
        assert alter(client, {"listener.name.ssl.ssl.keystore.location": str(third)}) == (0, None)
        eventually(lambda: subject() == "fourth", "the certificate of a path that is set again")
        assert alter(client, {"listener.name.ssl.ssl.key.password": "hunter2"}) == (0, None)
        assert described(client, "listener.name.ssl.ssl.key.password")[0] is None
    assert "hunter2" not in broker.log()


@case("an address gets no more connections than max.connections.per.ip")
def _(ctx):
    broker = ctx.broker(settings={"max.connections.per.ip": 2})
    with broker.client() as first, broker.client() as second:
        first.api_versions(), second.api_versions()
        with socket.create_connection(broker.address, timeout=10) as third:
            assert third.recv(1) == b""
        eventually(lambda: re.search(r"audit: a connection from 127\.0\.0\.1:\d+ is refused: .*max\.connections\.per\.ip", broker.log()), "the log says why")

    def again():
        try:
            with broker.client() as client:
                return bool(client.api_versions())
        except ConnectionError:
            return False
    eventually(again, "a connection after one has ended")


# --- Clients that people have ---------------------------------------------------------------------------


def records_by(*words, stdin=None, within=60):
    return run(*words, stdin=stdin, within=within).stdout.split()


@case("kcat and Tarry's own commands over TLS, with a certificate of the client")
def _(ctx):
    authority = Authority(ctx.directory / "ca")
    key, certificate, _ = authority.sign("alice")
    broker = ctx.broker(settings={"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": authority.sign("broker")[2],
                                  "ssl.client.auth": "required", "ssl.truststore.location": authority.certificate})
    topic = ctx.topic()
    options = []
    for option in ("security.protocol=ssl", f"ssl.ca.location={authority.certificate}", f"ssl.certificate.location={certificate}",
                   f"ssl.key.location={key}"):
        options += ["-X", option]
    broker.cli("topic", "create", topic, *options)
    run("kcat", "-P", "-b", broker.brokers, "-t", topic, *options, stdin="one\ntwo\n")
    broker.cli("produce", topic, "-v", "three", *options)
    assert records_by("kcat", "-C", "-b", broker.brokers, "-t", topic, "-e", "-q", *options) == ["one", "two", "three"]
    assert broker.cli("consume", topic, "--until-end", "--format", "%s\\n", *options).stdout.split() == ["one", "two", "three"]


@case("kafka-python and kafkajs over TLS")
def _(ctx):
    authority = Authority(ctx.directory / "ca")
    broker = tls_broker(ctx, authority.sign("broker")[2])
    topic = ctx.topic()
    with broker.client() as client:
        client.create_topic(topic)
    address = "localhost:%d" % broker.listeners["SSL"][1]
    answer = errand("kafkajs", "tls", broker, topic, brokers=[address], ca=authority.certificate.read_text(), messages=[{"value": "js"}])
    assert [each["value"] for each in answer["records"]] == ["js"], answer
    try:
        import kafka
    except ImportError:
        raise Skip("no kafka here: apt-get install python3-kafka") from None
    producer = kafka.KafkaProducer(bootstrap_servers=address, security_protocol="SSL", ssl_cafile=str(authority.certificate))
    producer.send(topic, b"python").get(timeout=20)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, bootstrap_servers=address, security_protocol="SSL", ssl_cafile=str(authority.certificate),
                                   auto_offset_reset="earliest", group_id=None, consumer_timeout_ms=20_000)
    assert [next(consumer).value for _ in range(2)] == [b"js", b"python"]
    consumer.close()


@case("the lines of docs/security.md make a certificate, start a broker with it and speak to it")
def _(ctx):
    text = (ROOT / "docs/security.md").read_text().split("### Try it")[1].split("###")[0]
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    at = next(n for n, line in enumerate(lines) if line.startswith("tarry serve"))
    work = ctx.directory / "tour"
    work.mkdir()

    def shell(script):
        return run("bash", "-ec", f"cd {work}\n" + "\n".join(script)).stdout
    shell(lines[:at])
    settings = dict(word.split("=", 1) for word in re.findall(r"--set (\S+)", lines[at]))
    assert settings["listeners"] == "SSL://localhost:9093"
    broker = ctx.broker(settings={"listeners": "SSL://localhost:0", "ssl.keystore.location": settings["ssl.keystore.location"].replace("$PWD", str(work))})
    tool = str(broker.binary.resolve())
    said = shell([re.sub("^tarry ", tool + " ", line).replace("localhost:9093", "localhost:%d" % broker.address[1]) for line in lines[at + 1:]])
    assert said.split()[0] == "hello" and "greetings" in said.split()[1:], said


@case("the admin over TLS: HTTPS only, a Secure cookie, and a new certificate after SIGHUP")
def _(ctx):
    authority = Authority(ctx.directory / "ca")
    pem = ctx.directory / "admin.pem"
    pem.write_text(authority.sign("first")[2].read_text())
    broker = ctx.broker(settings={"tarry.admin.tls.keystore.location": pem})

    def admin():
        return http.client.HTTPSConnection("localhost", broker.admin[1], context=trusting(authority), timeout=10)
    connection = admin()
    for path in ("/status", "/metrics", "/"):
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200 and answer.read(), path
    token = (broker.data / "admin.token").read_text().strip()
    connection.request("POST", "/login", json.dumps({"token": token}), {"Origin": "https://localhost:%d" % broker.admin[1]})
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 204 and answer.getheader("Set-Cookie").endswith("; Secure"), (answer.status, answer.getheaders())
    connection.request("POST", "/login", json.dumps({"token": token}), {"Origin": "http://localhost:%d" % broker.admin[1]})
    assert connection.getresponse().status == 403
    with socket.create_connection(broker.admin, timeout=10) as plain:
        plain.sendall(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP/1.1 200" not in plain.recv(4096)
    pem.write_text(authority.sign("second")[2].read_text())
    broker.process.send_signal(signal.SIGHUP)

    def subject():
        fresh = admin()
        fresh.connect()
        name = dict(pair[0] for pair in fresh.sock.getpeercert()["subject"])["commonName"]
        fresh.close()
        return name
    eventually(lambda: subject() == "second", "the admin's new certificate")


@case("the commands ask an admin with TLS, check its certificate, and send no token where it is not accepted")
def _(ctx):
    authority, other = Authority(ctx.directory / "ca"), Authority(ctx.directory / "other", "other-authority")
    broker = ctx.broker(settings={"tarry.admin.tls.keystore.location": authority.sign("admin")[2]})
    at = "https://localhost:%d" % broker.admin[1]
    ask = lambda *words, check=True, **env: broker.cli(*words, check=check, env={"TARRY_ADMIN": at, "TARRY_BROKERS": broker.brokers, **env})
    topic = ctx.topic()
    with broker.client() as client:
        client.create_topic(topic)
        client.produce(topic, [wire.record("v", x_delay="1h", x_schedule_id="one")])
    assert "pending" in ask("status", "--admin-ca", authority.certificate).stdout
    # A change carries the token, and by the variable the authority is known as well.
    ask("delayed", "cancel", topic, "one", TARRY_ADMIN_CA=str(authority.certificate))
    with_token = lambda path: ssl_get(authority, broker, path)
    assert with_token(f"/delayed?topic={topic}")["records"] == []
    for words in ((), ("--admin-ca", other.certificate), ("--admin-ca", ctx.directory / "absent")):
        refused = ask("status", "--json", *words, check=False)
        assert refused.returncode != 0 and ("not accepted" in refused.stderr or "--admin-ca" in refused.stderr), refused.stderr
    plain = broker.cli("status", check=False)
    assert plain.returncode != 0, plain.stdout


def ssl_get(authority, broker, path):
    connection = http.client.HTTPSConnection("localhost", broker.admin[1], context=trusting(authority), timeout=10)
    connection.request("GET", path)
    return json.loads(connection.getresponse().read())


# --- Clients that mean harm -----------------------------------------------------------------------------


def client_hello():
    """The bytes that a client begins with."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        context.wrap_bio(incoming, outgoing).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


@case("half a ClientHello, garbage, plain text and TLS on the wrong port end alone, in a bounded number of lines")
def _(ctx):
    authority = Authority(ctx.directory / "ca")
    broker = tls_broker(ctx, authority.sign("broker")[2])
    hello = client_hello()
    with HealthyClient(broker, ctx.topic()):
        silent = [socket.create_connection(broker.listeners["SSL"]) for _ in range(20)]
        halves = [socket.create_connection(broker.listeners["SSL"]) for _ in range(20)]
        for each in halves:
            each.sendall(hello[:len(hello) // 2])
        for bytes_sent in (b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 100, b"\xff" * 5000):
            for _ in range(25):
                with socket.create_connection(broker.listeners["SSL"], timeout=10) as connection:
                    connection.sendall(bytes_sent)
                    try:
                        while connection.recv(4096):
                            pass
                    except ConnectionError:
                        pass
        for _ in range(50):
            with socket.create_connection(broker.address, timeout=10) as connection:
                connection.sendall(hello)
                assert connection.recv(10) == b""
        began = time.monotonic()
        for each in silent + halves:
            each.settimeout(20)
            try:
                assert each.recv(10) == b""
            except ConnectionError:
                pass
            each.close()
        assert time.monotonic() - began < 15
    log = broker.log()
    assert "its TLS handshake did not end within 10000 ms" in log and "the client does not speak TLS" in log, log
    told = [line for line in log.splitlines() if "the client speaks TLS" in line]
    assert 1 <= len(told) <= broker.shards and "PLAINTEXT" in told[0], told
    assert log.count("\n") < 60, log
    with TlsClient(broker.listeners["SSL"], trusting(authority)) as client:
        client.api_versions()


@case("a client that renegotiates is not served for it, and hundreds of handshakes at once delay no other client")
def _(ctx):
    authority = Authority(ctx.directory / "ca")
    broker = tls_broker(ctx, authority.sign("broker")[2])
    host = "%s:%d" % broker.listeners["SSL"]
    answer = subprocess.run(["openssl", "s_client", "-connect", host, "-tls1_2", "-CAfile", str(authority.certificate), "-legacy_renegotiation"],
                            input=b"R\n", capture_output=True, timeout=20)
    assert b"no renegotiation" in answer.stderr + answer.stdout, answer
    good, bad = [], []

    def connect(count):
        for _ in range(count):
            try:
                with TlsClient(broker.listeners["SSL"], trusting(authority)) as client:
                    good.append(client.api_versions())
            except (OSError, AssertionError) as failed:
                bad.append(failed)
    with HealthyClient(broker, ctx.topic()):
        threads = [threading.Thread(target=connect, args=(15,)) for _ in range(20)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
    assert len(good) == 300 and not bad, (len(good), bad[:3])
