#!/usr/bin/env python3
"""A target that `tarry relay` may not write, on a real Kafka with ACLs: its records go to NAME.invalid, and no others wait.

Usage: acl_with_kafka.py --brokers 127.0.0.1:9092 --acls 'kafka-acls' [--binary build/release/tarry]
                         [--delivery exactly-once]

Needs a Kafka without a login, with authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer and
allow.everyone.if.no.acl.found=true, and Debian's python3-confluent-kafka.  --acls is the command of Kafka's tool for
ACLs.  It makes topics of its own, whose names begin with acl-, and leaves them.  Takes about 30 s.  Exit status 1 and
the reason when something is wrong.
"""

import argparse
import pathlib
import shlex
import subprocess
import tempfile
import time

import confluent_kafka
import confluent_kafka.admin

RECORDS = 60
MAX_WAIT = 60  # Seconds, for the relay to begin and for all records to come.


def forbid(options, topic):
    """Only somebody else may write to it, and everybody may see it."""
    for principal, operation in (("User:other", "Write"), ("User:ANONYMOUS", "Describe")):
        subprocess.run([*shlex.split(options.acls), "--bootstrap-server", options.brokers, "--add", "--allow-principal",
                        principal, "--operation", operation, "--topic", topic], check=True, stdout=subprocess.DEVNULL)


def produce(options, source, targets):
    """Records that are due at once and soon, to each target in turn; returns how many each one gets."""
    producer = confluent_kafka.Producer({"bootstrap.servers": options.brokers})
    sent = dict.fromkeys(targets, 0)
    for number in range(RECORDS):
        target = targets[number % len(targets)]
        sent[target] += 1
        producer.produce(source, str(number).encode(), None, number % 2, headers=[
            ("x-delay", b"500" if number % 3 else b"0"), ("x-deliver-to", target.encode())])
        producer.poll(0.05)
    if producer.flush(30) != 0:
        raise SystemExit("wrong: Kafka does not take the records")
    return sent


def consume(options, name, topics):
    """How many different records came to each topic, and their reasons."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": options.brokers, "group.id": name + "-reader",
                                         "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    consumer.subscribe(topics)
    came, reasons, until = {topic: set() for topic in topics}, set(), time.time() + MAX_WAIT
    while sum(map(len, came.values())) < RECORDS and time.time() < until:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            came[message.topic()].add(message.value())
            reasons |= {value.decode() for key, value in message.headers() or [] if key == "x-error"}
    consumer.close()
    return {topic: len(values) for topic, values in came.items()}, reasons


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--acls", required=True)
    parser.add_argument("--binary", default="build/release/tarry")
    parser.add_argument("--delivery", default="exactly-once")
    options = parser.parse_args()
    name = f"acl-{int(time.time())}"
    source, targets = name + ".delayed", [name, name + "-a", name + "-forbidden", name + "-b"]
    directory = pathlib.Path(tempfile.mkdtemp(prefix="relay-acl-"))
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": options.brokers})
    for future in admin.create_topics([confluent_kafka.admin.NewTopic(each, 2, 1)
                                       for each in (source, *targets)]).values():
        future.result()
    forbid(options, name + "-forbidden")
    with open(directory / "relay.log", "ab") as log:
        relay = subprocess.Popen(
            [options.binary, "relay", "--brokers", options.brokers, "--source", source, "--group", name, "--data",
             str(directory / "data"), "--admin", "127.0.0.1:0", "--deliver-to", name + "*", "--delivery",
             options.delivery], stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        if not relay.stdout.readline().startswith("relay ready"):
            raise SystemExit(f"wrong: the relay has not begun: see {directory}/relay.log")
        sent = produce(options, source, targets)
        expected = {**sent, source + ".invalid": sent[name + "-forbidden"]}
        del expected[name + "-forbidden"]
        came, reasons = consume(options, name, list(expected))
    finally:
        relay.terminate()
        relay.wait(30)
    if came != expected or not all("TOPIC_AUTHORIZATION_FAILED" in each for each in reasons):
        raise SystemExit(f"wrong: {came} instead of {expected}, with {reasons}: see {directory}/relay.log")
    print("right: records for a topic that may not be written are in NAME.invalid, and all others have come")


if __name__ == "__main__":
    main()
