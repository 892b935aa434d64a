"""Stock clients that log in over TLS (SASL_SSL): each with a mechanism, a user and rules."""

import base64
import json
import signal
import time

import test_recipes
from certificates import Authority, openssl
from harness import ROOT, Skip, case, eventually, run
from node_clients import errand
from test_security import AUTHORIZER, LOGIN_FAILED, authenticate, handshake, is_ended, login, tarry
from test_tls import refused

PLAIN_USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="admin-secret" user_alice="alice-secret";'


def sasl_ssl_broker(ctx, more=None, **how):
    """A broker with one listener, SASL_SSL, and the user alice of PLAIN and SCRAM who may use topics that begin with `mine`."""
    authority = Authority(ctx.directory / "ca")
    broker = ctx.broker(settings={
        "listeners": "SASL_SSL://localhost:0", "ssl.keystore.location": authority.sign("broker")[2],
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512", "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_USERS,
        "group.initial.rebalance.delay.ms": 0, **AUTHORIZER, **(more or {})}, **how)
    broker.ca = authority.certificate
    admin = [*login("admin", "admin-secret"), *tls(broker)]
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        tarry(broker, "user", "add", "alice", "--mechanism", mechanism, "--password-file", "-", *admin, stdin="alice-secret\n")
    for kind, name in (("topic", "mine"), ("group", "fetch-mine")):
        tarry(broker, "acl", "add", "--principal", "User:alice", "--operation", "all", f"--{kind}", name, "--prefixed", *admin)
    broker.admin_login = admin
    return broker


def tls(broker):
    """Properties of librdkafka, behind those of the login."""
    return ["-X", "security.protocol=sasl_ssl", "-X", f"ssl.ca.location={broker.ca}"]


def read_all(broker, topic):
    return run("kcat", "-C", "-q", "-e", "-b", broker.brokers, "-t", topic, *login("alice", "alice-secret"), *tls(broker)).stdout.split()


def java_classes():
    """The words of a Java with the client's classes; built with the recipes."""
    return test_recipes.java("reminders")[:-1]


def java_login(ctx, broker, mechanism, topic, seconds=0, user="alice", password="alice-secret"):
    """What LoginClient prints: records sent, records read, connections."""
    properties = ctx.directory / f"{mechanism}.properties"
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    properties.write_text(f"""bootstrap.servers={broker.brokers}
security.protocol=SASL_SSL
sasl.mechanism={mechanism}
sasl.jaas.config=org.apache.kafka.common.security.{module} required username="{user}" password="{password}";
ssl.truststore.type=PEM
ssl.truststore.location={broker.ca}
ssl.endpoint.identification.algorithm=https
max.block.ms=20000
""")
    done = run(*java_classes(), ROOT / "tests/integration/clients/LoginClient.java", properties, topic, seconds, check=False)
    return [int(word) for word in done.stdout.split()] if done.returncode == 0 else done.stderr


@case("kcat logs in by PLAIN over TLS, and may do what its user may")
def _(ctx):
    broker = sasl_ssl_broker(ctx)
    alice = [*login("alice", "alice-secret"), *tls(broker)]
    tarry(broker, "topic", "create", "mine", *broker.admin_login)
    tarry(broker, "topic", "create", "other", *broker.admin_login)
    run("kcat", "-P", "-b", broker.brokers, "-t", "mine", *alice, stdin="one\ntwo\n")
    assert read_all(broker, "mine") == ["one", "two"]
    refused = run("kcat", "-P", "-b", broker.brokers, "-t", "other", *alice, "-X", "message.timeout.ms=1000", stdin="one\n", check=False)
    assert refused.returncode != 0 and "authorization" in refused.stderr.lower(), refused.stderr
    wrong = run("kcat", "-L", "-m", "2", "-b", broker.brokers, *login("alice", "wrong"), *tls(broker), check=False)
    assert wrong.returncode != 0 and "Invalid username or password" in wrong.stderr, wrong.stderr
    stranger = run("kcat", "-L", "-m", "2", "-b", broker.brokers, *login("alice", "alice-secret"), "-X", "security.protocol=sasl_ssl", check=False)
    assert stranger.returncode != 0, stranger.stdout


@case("tarry produce tells the broker's reason of a refusal also where it logs in over TLS")
def _(ctx):
    broker = sasl_ssl_broker(ctx)
    tarry(broker, "topic", "create", "mine", "--config", "tarry.delay.max.ms=3600000", *broker.admin_login)
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        who = [*login("alice", "alice-secret", mechanism), *tls(broker)]
        said = tarry(broker, "produce", "mine", "-v", "x", "--delay", "2h", *who, check=False)
        assert said.returncode == 1 and "INVALID_RECORD: " in said.stderr and "tarry.delay.max.ms" in said.stderr, said.stderr
    # The second connection does not know this property, which changes nothing for librdkafka.
    said = tarry(broker, "produce", "mine", "-v", "x", "--delay", "2h", *who, "-X", "ssl.curves.list=prime256v1", check=False)
    assert said.returncode == 1 and "the broker's log has the reason" in said.stderr, said.stderr


@case("a login of tarry's commands comes from a file, and a wrong password ends them at once")
def _(ctx):
    broker = sasl_ssl_broker(ctx)
    right, wrong = ctx.directory / "right.properties", ctx.directory / "wrong.properties"
    for file, password in ((right, "admin-secret"), (wrong, "nope")):
        file.write_text(f"# admin\nsecurity.protocol=SASL_SSL\nssl.ca.location={broker.ca}\nsasl.mechanism=PLAIN\n"
                        f"sasl.username=admin\nsasl.password={password}\n")
    tarry(broker, "topic", "create", "mine", "-X", f"@{right}")
    # The properties of -X come after those of the variable.
    for env, words in (({"TARRY_CLIENT_CONFIG": str(right)}, ()), ({"TARRY_CLIENT_CONFIG": str(wrong)}, ("-X", f"@{right}"))):
        assert tarry(broker, "topic", "list", *words, env=env).stdout.split()[0] == "mine"
        assert tarry(broker, "user", "list", *words, env=env).stdout.split()[0] == "alice"
    began = time.monotonic()
    for words in (("topic", "list"), ("produce", "mine", "-v", "x"), ("consume", "mine", "--until-end")):
        said = tarry(broker, *words, "-X", f"@{wrong}", "--timeout", "20s", check=False)
        assert said.returncode == 1 and "Invalid username or password" in said.stderr and len(said.stderr.splitlines()) == 1, said
    assert time.monotonic() - began < 15, "the timeout was waited for"


@case("kafka-python logs in by both kinds of SCRAM over TLS")
def _(ctx):
    try:
        import kafka
    except ImportError:
        raise Skip("no kafka here: apt-get install python3-kafka") from None
    broker = sasl_ssl_broker(ctx)
    tarry(broker, "topic", "create", "mine", *broker.admin_login)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        how = dict(bootstrap_servers=broker.brokers, security_protocol="SASL_SSL", ssl_cafile=str(broker.ca), ssl_check_hostname=False,
                   sasl_mechanism=mechanism, sasl_plain_username="alice", sasl_plain_password="alice-secret")
        producer = kafka.KafkaProducer(**how)
        producer.send("mine", mechanism.encode()).get(timeout=20)
        producer.close()
        consumer = kafka.KafkaConsumer("mine", **how, auto_offset_reset="earliest", group_id=None, consumer_timeout_ms=20_000)
        assert next(consumer).value == b"SCRAM-SHA-256"
        consumer.close()
    assert read_all(broker, "mine") == ["SCRAM-SHA-256", "SCRAM-SHA-512"]


@case("kafkajs logs in by PLAIN and by both kinds of SCRAM over TLS")
def _(ctx):
    broker = sasl_ssl_broker(ctx)
    for mechanism in ("plain", "scram-sha-256", "scram-sha-512"):
        topic = f"mine-{mechanism}"
        tarry(broker, "topic", "create", topic, *broker.admin_login)
        answer = errand("kafkajs", "tls", broker, topic, brokers=[broker.brokers], ca=broker.ca.read_text(),
                        sasl={"mechanism": mechanism, "username": "alice", "password": "alice-secret"}, messages=[{"value": "js"}])
        assert [each["value"] for each in answer["records"]] == ["js"], answer


@case("the Java client logs in by PLAIN and by SCRAM-SHA-512 over TLS, and checks the broker's name")
def _(ctx):
    broker = sasl_ssl_broker(ctx)
    tarry(broker, "topic", "create", "mine", *broker.admin_login)
    assert java_login(ctx, broker, "SCRAM-SHA-512", "mine")[:2] == [1, 1]
    assert java_login(ctx, broker, "PLAIN", "mine")[:2] == [1, 2]
    refused = java_login(ctx, broker, "PLAIN", "mine", password="wrong")
    assert "SaslAuthenticationException" in refused and "Invalid username or password" in refused, refused


@case("a login ends after connections.max.reauth.ms, and the Java client logs in again on its connection")
def _(ctx):
    broker = sasl_ssl_broker(ctx, {"connections.max.reauth.ms": 2000}, arguments=["--log-level", "debug"])
    tarry(broker, "topic", "create", "mine", *broker.admin_login)
    sent, read, connections = java_login(ctx, broker, "SCRAM-SHA-512", "mine", seconds=5)
    assert read == sent and sent > 20, (sent, read)
    # One for the first question, one for the broker that it names.
    assert connections <= 2, connections
    logins = [line for line in broker.log().splitlines() if "has logged in as alice with SCRAM-SHA-512" in line]
    assert len(logins) > len({line.split(" has logged in")[0].split()[-1] for line in logins}), logins


# --- Tokens ---------------------------------------------------------------------------------------------


class TokenAuthority:
    """Signs tokens with openssl, RS256."""

    def __init__(self, directory, name):
        self.key, self.name = directory / f"{name}.key", name
        openssl("genrsa", "-out", self.key, "2048")

    def jwk(self):
        modulus = run("openssl", "rsa", "-in", self.key, "-noout", "-modulus").stdout.strip().split("=")[1]
        return {"kty": "RSA", "kid": self.name, "use": "sig", "alg": "RS256", "n": url64(bytes.fromhex(modulus)), "e": "AQAB"}

    def token(self, user, seconds=60, **claims):
        now = time.time()
        parts = [{"alg": "RS256", "kid": self.name, "typ": "JWT"},
                 {"sub": user, "iat": now, "exp": now + seconds, "iss": "https://id.example", "aud": "tarry", **claims}]
        text = ".".join(url64(json.dumps(part).encode()) for part in parts)
        signed, signature = self.key.with_suffix(".text"), self.key.with_suffix(".signature")
        signed.write_text(text)
        openssl("dgst", "-sha256", "-sign", self.key, "-out", signature, signed)
        return f"{text}.{url64(signature.read_bytes())}"


def url64(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def bearer(client, token):
    """The error, and what the broker said."""
    assert handshake(client, "OAUTHBEARER")[0] == 0
    return authenticate(client, f"n,,\1auth=Bearer {token}\1\1".encode())


@case("kafka-python logs in by a signed token; a forged, a late and a foreign one are refused, and new keys hold at once")
def _(ctx):
    authority, second = TokenAuthority(ctx.directory, "first"), TokenAuthority(ctx.directory, "second")
    keys = ctx.directory / "jwks.json"
    keys.write_text(json.dumps({"keys": [authority.jwk()]}))
    broker = ctx.broker(settings={
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config":
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class":
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}", "sasl.oauthbearer.expected.audience": "tarry,other",
        "sasl.oauthbearer.expected.issuer": "https://id.example", **AUTHORIZER, "super.users": "User:alice"})
    for token in (second.token("alice"), authority.token("alice", seconds=-60), authority.token("alice", aud="theirs"),
                  authority.token("alice", iss="https://other.example"), url64(b'{"alg":"none"}') + "." + url64(b'{"sub":"alice"}') + "."):
        with broker.client() as client:
            assert bearer(client, token) == (0, b'{"status":"invalid_token"}')
            assert authenticate(client, b"\1")[0] == LOGIN_FAILED
            assert is_ended(client)
    eventually(lambda: "the token has expired" in broker.log(), "the log says why")
    assert "alice" not in broker.log(), broker.log()
    with broker.client() as client:
        assert bearer(client, authority.token("alice")) == (0, b"")
        client.create_topic("topic")
    # A file that has changed is read again at the next login, on SIGHUP at once; a bad one changes nothing.
    keys.write_text("nothing")
    broker.process.send_signal(signal.SIGHUP)
    eventually(lambda: "the keys that were read earlier stay in use" in broker.log(), "a line in the log")
    keys.write_text(json.dumps({"keys": [authority.jwk(), second.jwk()]}))

    def second_is_known():
        with broker.client() as client:
            return bearer(client, second.token("alice")) == (0, b"")
    eventually(second_is_known, "the new key")
    try:
        import kafka
    except ImportError:
        raise Skip("no kafka here: apt-get install python3-kafka") from None

    class Provider(kafka.oauth.AbstractTokenProvider):
        def token(self):
            return authority.token("alice")
    producer = kafka.KafkaProducer(bootstrap_servers=broker.brokers, security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER",
                                   sasl_oauth_token_provider=Provider())
    assert producer.send("topic", b"one").get(timeout=20).offset == 0
    producer.close()


@case("without keys OAUTHBEARER is refused at the start, in a line that names the setting")
def _(ctx):
    for more, words in (({}, "sasl.oauthbearer.jwks.endpoint.url=file:///"),
                        ({"sasl.oauthbearer.jwks.endpoint.url": "https://id.example/jwks"}, "file:///etc/tarry/jwks.json"),
                        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///no/such/jwks.json"}, "No such file")):
        line = refused(ctx.broker(start=False, settings={
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "OAUTHBEARER", **more}))
        assert words in line, line
