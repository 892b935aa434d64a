"""Kafka's own tools over SASL_SSL: kafka-acls and kafka-configs, as an operator who comes from Kafka uses them."""

import shlex

import test_recipes
from harness import ROOT, case, eventually, run
from test_sasl_ssl import sasl_ssl_broker, tls
from test_security import login, tarry

JVM = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]


def tools(ctx, broker):
    """acls(words...) and configs(words...): what the tool prints; it has to succeed."""
    test_recipes.need("java", "mvn")

    def build(directory):
        run("bash", "-c", f"source scripts/kafka/node.sh && install_kafka {shlex.quote(str(directory / 'lib'))}", within=300, cwd=ROOT)

    lib = test_recipes.once("kafka-tools", [], build) / "lib"
    properties = ctx.directory / "admin.properties"
    properties.write_text(f"""security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin-secret";
ssl.truststore.type=PEM
ssl.truststore.location={broker.ca}
""")
    quiet = ctx.directory / "log4j2.properties"
    quiet.write_text("rootLogger.level=error\n")

    def tool(main):
        return lambda *words: run(*JVM, f"-Dlog4j2.configurationFile={quiet}", "-cp", f"{lib}/*", main, "--bootstrap-server", broker.brokers,
                                  "--command-config", properties, *words).stdout
    return tool("org.apache.kafka.tools.AclCommand"), tool("kafka.admin.ConfigCommand")


def kcat(broker, user, password, *words, mechanism="PLAIN", **how):
    return run("kcat", *words, "-b", broker.brokers, *login(user, password, mechanism), *tls(broker), "-X", "message.timeout.ms=2000", check=False, **how)


@case("kafka-acls adds a rule, lists it and removes it, and it holds from the next request on")
def _(ctx):
    broker = sasl_ssl_broker(ctx)
    acls, _ = tools(ctx, broker)
    tarry(broker, "topic", "create", "theirs", *broker.admin_login)
    produce = lambda: kcat(broker, "alice", "alice-secret", "-P", "-t", "theirs", stdin="one\n").returncode
    assert produce() != 0
    said = acls("--add", "--allow-principal", "User:alice", "--operation", "Write", "--operation", "Describe", "--topic", "theirs")
    assert "User:alice" in said, said
    assert produce() == 0
    listed = acls("--list", "--topic", "theirs")
    assert "principal=User:alice" in listed and "operation=WRITE" in listed and "operation=DESCRIBE" in listed, listed
    # What is done to pending records is a topic's name with a word behind it.
    acls("--add", "--allow-principal", "User:ops", "--operation", "Write", "--topic", "theirs/cancel")
    listed = acls("--list", "--topic", "theirs/cancel")
    assert "name=theirs/cancel" in listed and "principal=User:ops" in listed, listed
    # The prefixed rules of alice are for other names.
    assert "mine" not in listed, listed
    assert "name=mine" in acls("--list", "--principal", "User:alice")
    acls("--remove", "--force", "--allow-principal", "User:alice", "--operation", "Write", "--operation", "Describe", "--topic", "theirs")
    assert "User:alice" not in acls("--list", "--topic", "theirs")
    assert produce() != 0


@case("kafka-configs adds a user of SCRAM and a quota, describes and deletes them")
def _(ctx):
    broker = sasl_ssl_broker(ctx)
    _, configs = tools(ctx, broker)
    bob = ("--entity-type", "users", "--entity-name", "bob")
    configs("--alter", *bob, "--add-config", "SCRAM-SHA-512=[iterations=8192,password=bob-secret]")
    configs("--alter", *bob, "--add-config", "producer_byte_rate=1048576")
    described = configs("--describe", *bob)
    assert "SCRAM-SHA-512=iterations=8192" in described and "producer_byte_rate=1048576" in described, described
    # Names that Kafka has not: the tool shows them, and sets only its own.
    tarry(broker, "config", "set", "--user", "bob", "pending_records=7", *broker.admin_login)
    described = configs("--describe", *bob)
    assert "pending_records=7" in described and "producer_byte_rate=1048576" in described, described
    metadata = lambda: kcat(broker, "bob", "bob-secret", "-L", "-m", "3", mechanism="SCRAM-SHA-512").returncode
    assert metadata() == 0
    assert "SCRAM-SHA-512" not in configs("--describe", "--entity-type", "users", "--entity-name", "nobody")
    configs("--alter", *bob, "--delete-config", "SCRAM-SHA-512")
    eventually(lambda: metadata() != 0, "bob cannot log in any more")
    described = configs("--describe", *bob)
    assert "SCRAM-SHA-512" not in described and "producer_byte_rate=1048576" in described, described
