"""Stock clients in groups of three, of which one is killed and one joins: each record once, and all."""

import collections
import pathlib
import signal
import subprocess
import sys
import threading
import time

import node_clients
import wire
from harness import Skip, case, eventually

PARTITIONS, PART = 6, 200  # Records of each of the three parts of a run.
SETTINGS = {"group.initial.rebalance.delay.ms": 500, "group.min.session.timeout.ms": 1000}
MEMBER = pathlib.Path(__file__).resolve().parent / "clients/group_member.py"


class Member:
    """A process that prints "assigned" when it has joined, and a line for each record that it has done.

    A cooperative one says too how many of its partitions it kept: pairs (kept, had).
    """

    def __init__(self, command, records):
        self.records, self.joined, self.kept, self.errors = records, 0, [], []
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.threads = [threading.Thread(target=self.read, daemon=True),
                        threading.Thread(target=lambda: self.errors.extend(self.process.stderr), daemon=True)]
        for thread in self.threads:
            thread.start()

    def read(self):
        for line in self.process.stdout:
            if line.strip() == "assigned":
                self.joined += 1
            elif line.startswith("kept "):
                _, kept, _, had = line.split()
                self.kept.append((int(kept), int(had)))
            elif line.strip():
                self.records.append(line.split())

    def end(self, sign=signal.SIGTERM, within=20):
        if self.process.poll() is None:
            self.process.send_signal(sign)
        try:
            self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"it did not end within {within} s: {''.join(self.errors)[-2000:]}") from None
        for thread in self.threads:
            thread.join(5)


def produce(broker, topic, numbers):
    with broker.client() as client:
        for number in numbers:
            client.produce(topic, [wire.record(f"{number}")], partition=number % PARTITIONS)


def check(records, count):
    times = collections.Counter(value for _, _, value in records)
    missing = [number for number in range(count) if not times[str(number)]]
    twice = {value: n for value, n in times.items() if n > 1}
    assert not missing and not twice, f"missing {missing[:20]} ({len(missing)}), more than once {twice}"


def group_of_three(ctx, command, apart=False, look=lambda broker, group, others: None):
    """command(broker, topic, group, die_after) gives a member's command line. The one that joins takes the victim's
    place; with `apart` the two others have shared that first, and give up some of theirs. look() is called before they
    end, with those two."""
    broker = ctx.broker(settings=SETTINGS)
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), partitions=PARTITIONS)
    records, members = [], []
    dies_after = 40

    def start(die_after=0):
        members.append(Member(command(broker, topic, "three", die_after), records))
        return members[-1]

    try:
        produce(broker, topic, range(PART))
        victim = start(dies_after)
        others = [start(), start()]
        eventually(lambda: victim.process.poll() is not None, "the victim's end", within=40)
        assert victim.process.returncode == -signal.SIGKILL, "".join(victim.errors)
        produce(broker, topic, range(PART, 2 * PART))
        if apart:
            eventually(lambda: len(records) >= 2 * PART, "two members read for three", within=40)
            for each in others:
                each.kept.clear()  # Of what was before: a member that began late may have met a commit.
        joining = start()
        eventually(lambda: joining.joined, "the one that joins is in", within=40)
        if apart:
            eventually(lambda: shared_by(broker, "three") == (3, PARTITIONS), "three have all partitions", within=40)
        produce(broker, topic, range(2 * PART, 3 * PART))
        eventually(lambda: len(records) >= 3 * PART, f"{3 * PART} records", within=60)
        time.sleep(0.5)  # Time for what should not come.
        assert all(each.process.poll() is None for each in (*others, joining))
        check(records, 3 * PART)
        look(broker, "three", others)
    except AssertionError as error:
        said = "\n".join("".join(each.errors)[-600:] for each in members)
        raise AssertionError(f"{error}\n{len(records)} records\n{said}") from None
    finally:
        failed = [each for each in members if not quietly_end(each)]
    assert not failed, "".join(failed[0].errors)[-2000:]


def shared_by(broker, group):
    """(members, partitions that they have) once the group is stable, else None."""
    status = broker.get(f"/groups/{group}")
    shares = [sum(len(each["partitions"]) for each in member["assigned"]) for member in status["members"]]
    return (len(shares), sum(shares)) if status["state"] == "Stable" else None


def quietly_end(member):
    try:
        member.end()
        return True
    except AssertionError:
        return False


def python_member(library, module):
    try:
        __import__(module)
    except ImportError:
        raise Skip(f"no {module} here: scripts/install_deps --tests") from None
    return lambda broker, topic, group, die_after: [sys.executable, MEMBER, library, broker.brokers, topic, group, die_after]


@case("three of confluent-kafka in a group, one killed and one joining: each record once")
def _(ctx):
    group_of_three(ctx, python_member("confluent", "confluent_kafka"))


@case("three of confluent-kafka in a cooperative group, one killed and one joining: each record once, and the remaining members keep some partitions")
def _(ctx):
    # A commit in mid-rebalance makes librdkafka 2.0.2 give up all it has (librdkafka issue 4059): one joins while nothing comes.
    def look(broker, group, others):
        assert broker.get(f"/groups/{group}")["assignor"] == "cooperative-sticky"
        kept = [pair for each in others for pair in each.kept]
        assert kept and all(some for some, _ in kept), f"(kept, of so many): {kept}"

    group_of_three(ctx, python_member("confluent-cooperative", "confluent_kafka"), apart=True, look=look)


@case("three of kafka-python in a group, one killed and one joining: each record once")
def _(ctx):
    group_of_three(ctx, python_member("kafka-python", "kafka"))


@case("three of kafkajs in a group, one killed and one joining: each record once")
def _(ctx):
    group_of_three(ctx, lambda *words: node_clients.member("kafkajs", *words))


@case("three of @platformatic/kafka in a group, one killed and one joining: each record once", alone=True)
def _(ctx):
    group_of_three(ctx, lambda *words: node_clients.member("platformatic", *words))


@case("three of kcat -G in a group, one killed and one joining: each record once")
def _(ctx):
    broker = ctx.broker(settings=SETTINGS)
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), partitions=PARTITIONS)
    records, members = [], []

    def start():
        members.append(Member(["kcat", "-b", broker.brokers, "-G", "cats", "-u", "-q", "-f", "%p %o %s\n",
                               "-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=3000",
                               "-X", "heartbeat.interval.ms=300", "-X", "fetch.wait.max.ms=100",
                               "-X", "auto.commit.interval.ms=50", topic], records))

    def committed():
        return {each["partition"]: each["committed"] for each in broker.get("/groups/cats")["offsets"]}

    def printed():
        return {p: max(int(offset) for partition, offset, _ in records if int(partition) == p) + 1 for p in range(PARTITIONS)}

    try:
        for _ in range(3):
            start()
        produce(broker, topic, range(PART))
        eventually(lambda: len(records) >= PART, f"{PART} records", within=40)
        eventually(lambda: shared_by(broker, "cats") == (3, PARTITIONS), "three have all partitions", within=40)
        # It prints and commits later, by time: what it had not committed another one would print again.
        eventually(lambda: committed() == printed(), "all that is printed is committed", within=40)
        members[0].end(signal.SIGKILL)
        produce(broker, topic, range(PART, 2 * PART))
        start()
        eventually(lambda: len(records) >= 2 * PART, f"{2 * PART} records", within=40)
        produce(broker, topic, range(2 * PART, 3 * PART))
        eventually(lambda: len(records) >= 3 * PART, f"{3 * PART} records", within=40)
        time.sleep(0.5)  # Time for what should not come.
        check(records, 3 * PART)
        assert [each.process.poll() for each in members] == [-signal.SIGKILL, None, None, None]
    except AssertionError as error:
        said = "\n".join("".join(each.errors)[-600:] for each in members)
        raise AssertionError(f"{error}\n{len(records)} records\n{said}") from None
    finally:
        for each in members:
            quietly_end(each)


@case("a group continues with its generation and its offsets after kill -9 of the broker")
def _(ctx):
    broker = ctx.broker(settings=SETTINGS)
    command = python_member("confluent", "confluent_kafka")
    with broker.client() as client:
        topic = client.create_topic(ctx.topic(), partitions=PARTITIONS)
    records = []
    members = [Member(command(broker, topic, "stays", 0), records) for _ in range(2)]
    try:
        produce(broker, topic, range(PART))
        eventually(lambda: len(records) >= PART, f"{PART} records", within=40)
        joined = [each.joined for each in members]
        broker.restart()
        produce(broker, topic, range(PART, 2 * PART))
        eventually(lambda: len(records) >= 2 * PART, f"{2 * PART} records", within=40)
        check(records, 2 * PART)
        assert [each.joined for each in members] == joined, "it was not the same generation"
    finally:
        for each in members:
            quietly_end(each)
