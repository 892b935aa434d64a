#!/usr/bin/env python3
"""The admin of `tarry relay` over three members on a real Kafka: each answers for all, one of them is killed.

Usage: admin_with_kafka.py --brokers 127.0.0.1:9092 [--binary build/release/tarry]

Needs a Kafka and Debian's python3-confluent-kafka.  It makes topics of its own, whose names begin with admin-,
and leaves them.  Takes about 40 s, most of which is the group's.  Exit status 1 and the reason when something is
wrong.
"""

import argparse
import json
import pathlib
import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import confluent_kafka
import confluent_kafka.admin

MEMBERS, PARTITIONS, IDS = 3, 6, 10  # So many ids in each partition.


class Member:
    def __init__(self, options, name, index, directory):
        self.data = directory / f"member-{index}"
        self.name = f"m{index}"
        self.log = open(directory / f"member-{index}.log", "ab")
        self.process = subprocess.Popen(
            [options.binary, "relay", "--brokers", options.brokers, "--source", name + ".delayed", "--group", name,
             "--data", str(self.data), "--instance", self.name, "--admin", "127.0.0.1:0", "--same-partition"],
            stdout=subprocess.PIPE, stderr=self.log, text=True)

    def wait_until_ready(self):
        line = self.process.stdout.readline()
        self.admin = re.search(r"admin=(\S+)", line).group(1)
        self.token = (self.data / "admin.token").read_text().strip()

    def ask(self, method, path, body=None):
        """The status and the parsed answer."""
        request = urllib.request.Request(f"http://{self.admin}{path}", method=method,
                                         headers={"Authorization": "Bearer " + self.token},
                                         data=None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


def check(is_right, *what):
    if not is_right:
        raise SystemExit("wrong: " + " ".join(str(each) for each in what))


def until(limit, what, ask):
    """Asks until the answer is true; returns how long it took."""
    begun = time.time()
    while not ask():
        check(time.time() - begun < limit, what, "is not so after", limit, "s")
        time.sleep(0.2)
    return time.time() - begun


def owners(member):
    """Which member owns each partition."""
    partitions = member.ask("GET", "/status")[1]["relay"]["partitions"]
    return {each["partition"]: each["member"] for each in partitions if each["state"] == "owned"}


def fill(options, topic):
    producer = confluent_kafka.Producer({"bootstrap.servers": options.brokers})
    for partition in range(PARTITIONS):
        for number in range(IDS):
            producer.produce(topic, f"{partition}-{number}".encode(), None, partition,
                             headers=[("x-delay", b"1h"), ("x-schedule-id", f"id-{partition}-{number}".encode())])
    check(producer.flush(30) == 0, "Kafka does not take the records")


def check_each_answers_for_all(members, topic, pending):
    for member in members:
        status, listed = member.ask("GET", f"/delayed?topic={topic}&limit=1000")
        check(status == 200 and len(listed["records"]) == pending, member.name, "lists", status, listed)
        status, counted = member.ask("GET", f"/delayed/count?topic={topic}")
        check(status == 200 and counted["total"] == pending, member.name, "counts", status, counted)


def check_orders_for_others(options, members, name, topic):
    """Each cancels, moves and delivers what another one owns; returns how many are gone."""
    by_partition = owners(members[0])
    check(len(by_partition) == PARTITIONS, "owned:", by_partition)
    check(len(set(by_partition.values())) == MEMBERS, "not all members own something:", by_partition)
    delivered = []
    for number, member in enumerate(members):
        partition = next(each for each, owner in by_partition.items() if owner != member.name)
        path = f"/delayed/{topic}/id-{partition}-"
        status, told = member.ask("DELETE", path + str(number))
        check(status == 200 and told["result"] == "cancelled", "cancel:", status, told)
        status, told = member.ask("DELETE", path + str(number))
        check(status in (200, 404) and told.get("result", "unknown") == "unknown", "cancelled twice:", status, told)
        check(member.ask("GET", path + str(number))[0] == 404, "a cancelled record is still shown")
        status, told = member.ask("PATCH", path + str(number + 3), {"by": "1h"})
        check(status == 200 and told["result"] == "moved", "move:", status, told)
        status, told = member.ask("POST", path + str(number + 6) + "/deliver")
        check(status == 200 and told["result"] == "delivered", "deliver:", status, told)
        delivered.append((partition, told["partitions"][0]["offset"], f"{partition}-{number + 6}"))
    consumer = confluent_kafka.Consumer({"bootstrap.servers": options.brokers, "group.id": name + "-reader",
                                         "isolation.level": "read_committed"})
    for partition, offset, value in delivered:
        consumer.assign([confluent_kafka.TopicPartition(name, partition, offset)])
        message = consumer.poll(20)
        check(message is not None and message.error() is None and message.value().decode() == value and
              message.offset() == offset, "delivered at", offset, "is not", value)
    consumer.close()
    return 2 * len(members)


def check_a_killed_one_is_missing(members, topic, pending):
    victim, *others = members
    theirs = {each for each, owner in owners(victim).items() if owner == victim.name}
    victim.process.kill()
    victim.process.wait()
    status, listed = others[0].ask("GET", f"/delayed?topic={topic}&limit=1000")
    missing = {each["partition"] for each in listed.get("missing", [])}
    check(status == 503 and missing == theirs, "after a kill:", status, "missing", missing, "not", theirs)
    check(all(victim.name in (each["member"] or "") for each in listed["missing"]), "named:", listed["missing"])
    check(len(listed["records"]) < pending, "the records of a dead member are shown")
    status, _ = others[1].ask("DELETE", f"/delayed/{topic}/id-{min(theirs)}-9?partition={min(theirs)}")
    check(status in (200, 503), "an order for the dead one's record:", status)
    is_cancelled = status == 200
    # The session's end, and the take-over.
    took = until(60, "all partitions are owned again",
                 lambda: all(other.ask("GET", f"/delayed/count?topic={topic}")[0] == 200 for other in others))
    print(f"a killed member's {len(theirs)} partitions were named as missing, and answered for again after {took:.1f} s")
    check_each_answers_for_all(others, topic, pending - (1 if is_cancelled else 0))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--binary", default="build/release/tarry")
    options = parser.parse_args()
    name = f"admin-{int(time.time())}"
    topic = name + ".delayed"
    directory = pathlib.Path(tempfile.mkdtemp(prefix="relay-admin-"))
    print(f"topics {topic}, {name}; logs in {directory}", flush=True)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": options.brokers})
    for future in admin.create_topics([confluent_kafka.admin.NewTopic(each, PARTITIONS, 1)
                                       for each in (topic, name)]).values():
        future.result()
    members = [Member(options, name, index, directory) for index in range(MEMBERS)]
    try:
        for member in members:
            member.wait_until_ready()
        until(60, "each member owns its part", lambda: len(set(owners(members[0]).values())) == MEMBERS and
              all(len(owners(member)) == PARTITIONS for member in members))
        fill(options, topic)
        pending = PARTITIONS * IDS
        until(30, "all are pending", lambda: members[0].ask("GET", "/status")[1]["delayed"]["pending"] == pending)
        check_each_answers_for_all(members, topic, pending)
        pending -= check_orders_for_others(options, members, name, topic)
        check_each_answers_for_all(members, topic, pending)
        check_a_killed_one_is_missing(members, topic, pending)
    finally:
        for member in members:
            if member.process.poll() is None:
                member.process.terminate()
                member.process.wait(30)
    print("right: list, count, cancel, move and deliver at each member for all, and what a dead one owns is missing")


if __name__ == "__main__":
    main()
