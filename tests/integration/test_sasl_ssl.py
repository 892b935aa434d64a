"""Stock clients that log in over TLS (SASL_SSL): each with a mechanism, a user and rules."""

import test_recipes
from certificates import Authority
from harness import ROOT, Skip, case, run
from node_clients import errand
from test_security import AUTHORIZER, login, tarry

PLAIN_USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="admin-secret" user_alice="alice-secret";'


def sasl_ssl_broker(ctx, more=None):
    """A broker with one listener, SASL_SSL, and the user alice of PLAIN and SCRAM who may use topics that begin with `mine`."""
    authority = Authority(ctx.directory / "ca")
    broker = ctx.broker(settings={
        "listeners": "SASL_SSL://localhost:0", "ssl.keystore.location": authority.sign("broker")[2],
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512", "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_USERS,
        "group.initial.rebalance.delay.ms": 0, **AUTHORIZER, **(more or {})})
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
