#!/usr/bin/env python3
"""Kills, stops and restarts members of `tarry relay` on a real Kafka under load, and counts what consumers see.

Usage: with_kafka.py --brokers 127.0.0.1:9092 [--binary build/release/tarry] [--members 3] [--rounds 10]
                     [--rate 300] [--partitions 12] [--seed N] [--delivery exactly-once] [--standby N]
                     [--kafka COMMAND] [--control MECHANISM]

Needs a Kafka that nobody else uses for this, and Debian's python3-confluent-kafka.  It makes topics of its
own, whose names begin with soak-, and leaves them.  A round is one disturbance: kill -9 or SIGTERM, also with an
emptied data directory, after which the member is started again; SIGSTOP for 1 to 12 s, or now and then for 35 s,
which is longer than the group waits; or one more member joins, or leaves.  In some rounds two members are
disturbed at once.  With --kafka, which starts a Kafka on the address in --brokers and whose process is the
broker's, `kill -9` of Kafka is one more: it is started again after 0 to 8 s, and members have to go on without a
restart of theirs.  Meanwhile pending records are cancelled and delivered by requests to any member's admin.

As a consumer with read_committed sees it: every record once, none early, none that was cancelled
CANCEL_MARGIN before it was due or by a request that was answered, and in the order of its due times for each
partition and source.  After a disturbance each partition delivers again within MAX_OUTAGE, and no member ends by
itself.  The lag
of undisturbed records is measured first.  Exit status 1 when something is wrong, 3 when Kafka has lost
offsets, or the markers of a transaction that it had decided: then the records after it can never be read.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import confluent_kafka
import confluent_kafka.admin

CANCEL_MARGIN = 3.0  # Seconds, from the acknowledgement to the due time.
# Seconds without a delivery, in a partition that always has something due, after the last disturbance.  A group waits
# for a member that does not join again for max.poll.interval.ms, which is 30 s, and for one that died for
# session.timeout.ms, which is 10 s.
MAX_OUTAGE = 60
# The same while members are killed one after another: a partition may be assigned to one that is dead already, again
# and again, and each time the group waits for its session's end.
MAX_OUTAGE_IN_ALL = 120
# A Kafka that has gone back from what it had acknowledged is started again so often, each time after so many seconds.
MAX_KAFKA_STARTS = 4
STALE_TIME = 15
KAFKA_HAS_LOST = 3  # The exit status.
CALM_EVERY = 5  # Rounds: behind so many the next one waits until each partition delivers.
LONG_STOP = 35  # Seconds; more than max.poll.interval.ms.
ORDER_EVERY = 0.1  # Seconds, between two requests to an admin.
MAX_QUEUE_WAIT = 0.1  # Seconds, for room among the records that a producer has not sent.


def now():
    return time.time()


class Member:
    def __init__(self, options, index, group, source, directory):
        self.options, self.index, self.group, self.source = options, index, group, source
        self.data = directory / f"member-{index}"
        self.log_path = directory / f"member-{index}.log"
        self.log = open(self.log_path, "ab")
        self.process, self.is_ended_by_us, self.started_at = None, True, 0
        self.admin = "127.0.0.1:0"  # Port 0: the ready line says which one it has.

    def start(self):
        self.started_at = self.log_path.stat().st_size
        command = [self.options.binary, "relay", "--brokers", self.options.brokers, "--source", self.source, "--group",
                   self.group, "--data", str(self.data), "--admin", self.admin, "--delivery",
                   self.options.delivery, "--standby", str(self.options.standby), "--same-partition"]
        if self.options.control:
            command = [self.options.binary, self.options.control, self.options.brokers, self.source, self.group,
                       str(self.data)]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        self.is_ended_by_us = False

    def end(self, how):
        self.check()
        self.is_ended_by_us = True
        self.process.send_signal(how)
        self.process.wait(60)

    def check(self):
        if not self.is_ended_by_us and self.process.poll() is not None:
            raise SystemExit(f"member {self.index} has ended by itself with status {self.process.returncode}: see "
                             f"{self.log_path}")

    def admin_address(self):
        """None: it is not known yet."""
        if not self.admin.endswith(":0"):
            return self.admin
        with open(self.log_path, "rb") as log:
            log.seek(self.started_at)
            ready = re.search(rb"relay ready .*admin=(\S+)", log.read())
        return ready.group(1).decode() if ready else None

    def order(self, method, path):
        """The status and the answer of its admin; None: it gave none."""
        address = self.admin_address()
        if self.is_ended_by_us or not address:
            return None
        try:
            request = urllib.request.Request(
                f"http://{address}{path}", method=method,
                headers={"Authorization": "Bearer " + (self.data / "admin.token").read_text().strip()})
            with urllib.request.urlopen(request, timeout=15) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, {}
        except (OSError, ValueError):  # It was killed, or stands still.
            return None


class Kafka:
    """The broker, started by a command that stays in the foreground."""

    def __init__(self, options, directory):
        self.options, self.log = options, open(directory / "kafka.log", "ab")
        self.process = None

    def start(self):
        self.process = subprocess.Popen(shlex.split(self.options.kafka), stdout=self.log, stderr=self.log)
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.options.brokers,
                                                   "log_level": 0})
        until = now() + 180  # A busy machine takes its time.
        while True:
            try:
                admin.list_topics(timeout=2)
                return
            except confluent_kafka.KafkaException:
                if now() > until or self.process.poll() is not None:
                    raise

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait(60)


class Sender:
    """Produces at a rate, on a thread, and notes what was acknowledged.

    An idempotent producer that fails for good takes nothing more, so it is replaced.  A record that it had and that
    was not acknowledged is perhaps in the source and perhaps not; it is never sent again, and not judged."""

    def __init__(self, options, source, seed, make_producer=confluent_kafka.Producer):
        self.options, self.source, self.random = options, source, random.Random(seed)
        self.make_producer = make_producer
        self.has_failed = False
        self.replaced = 0  # How many producers have failed.
        self.producer = self.new_producer()
        self.records = {}  # Value -> {due, cancelled, replaced}
        self.pending = {}  # (partition, id) -> value
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def new_producer(self):
        def failed(error):
            # It comes from the producer's poll(), where it must not be replaced.
            self.has_failed = self.has_failed or error.fatal()

        self.has_failed = False
        return self.make_producer({"bootstrap.servers": self.options.brokers, "linger.ms": 2,
                                   "enable.idempotence": True, "error_cb": failed})

    def replace_producer(self, why):
        self.replaced += 1
        print(f"the producer has failed and is replaced: {why}", flush=True)
        # The reports of what it had say that nothing of it was acknowledged.
        self.producer.purge()
        self.producer.flush(1)
        self.producer = self.new_producer()

    def run(self):
        count, begun = 0, now()
        while not self.over.is_set():
            while count < (now() - begun) * self.options.rate and not self.over.is_set():
                self.send(count)
                count += 1
            self.producer.poll(0.005)
            if self.has_failed:
                self.replace_producer("a fatal error")
        self.producer.flush(60)

    def produce(self, *args, **kwargs):
        """Hands one record over, once; false when the end came before there was room."""
        while not self.over.is_set():
            try:
                self.producer.produce(*args, **kwargs)
                return True
            except BufferError:
                self.producer.poll(MAX_QUEUE_WAIT)
            except confluent_kafka.KafkaException as error:
                # The record was not taken.  What is not fatal is a mistake of this script.
                if not self.has_failed and not error.args[0].fatal():
                    raise
                self.replace_producer(error)
        return False

    def send(self, count):
        value = str(count)
        partition = self.random.randrange(self.options.partitions)
        sent = now()
        delay = self.random.choice([0.05, 0.5, 2, 5, 8]) * self.random.random()
        entry = {"partition": partition, "due": int(sent * 1000) + int(delay * 1000), "ended": None, "acked": None,
                 "order": None}
        headers = [("x-deliver-at", str(entry["due"]).encode())]
        key = (partition, f"id-{self.random.randrange(40)}")
        kind = self.random.random()
        if kind < 0.15:
            headers.append(("x-schedule-id", key[1].encode()))
        elif kind < 0.20:
            headers = [("x-schedule-id", key[1].encode()), ("x-schedule-action", b"cancel")]
            entry["is_cancel"] = True
        replaced = self.pending.pop(key, None) if kind < 0.20 else None
        if kind < 0.15:
            self.pending[key] = value
        self.records[value] = entry

        def acknowledged(error, message):
            if error:
                return
            entry["acked"], entry["order"] = now(), message.offset()
            if replaced is not None:
                self.records[replaced]["ended"] = now()

        if replaced is not None:
            self.records[replaced]["may_end"] = True
        self.produce(self.source, value.encode(), None, partition, on_delivery=acknowledged, headers=headers,
                     timestamp=int(sent * 1000))


class Orders:
    """Cancels and delivers pending records by requests, on a thread, while they become due and members are disturbed."""

    def __init__(self, options, source, seed, sender, members):
        self.source, self.sender, self.members = source, sender, members
        self.random = random.Random(seed + 1)
        self.told = {}  # What the answers were -> how often.
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.run) for _ in range(2)]

    def run(self):
        while not self.over.wait(ORDER_EVERY):
            if choice := self.choose():
                self.order(*choice)

    def choose(self):
        """One of the last records, that is due soon."""
        values = list(self.sender.records)[-1000:]
        for value in self.random.sample(values, min(20, len(values))):
            entry = self.sender.records[value]
            if (entry["acked"] and not entry.get("is_cancel") and not entry.get("may_end") and
                    not entry.get("ordered") and -0.1 < entry["due"] / 1000 - now() < 4):
                return value, entry
        return None

    def order(self, value, entry):
        cancels = self.random.random() < 0.5
        entry["ordered"] = "asked"  # Until it is answered nobody knows what becomes of it.
        path = f"/delayed/{self.source}/@{self.source}-{entry['partition']}-{entry['order']}"
        answer = self.random.choice(self.members).order(*(("DELETE", path) if cancels else ("POST", path + "/deliver")))
        result = answer[1].get("result", answer[0]) if answer else "no answer"
        self.told[result] = self.told.get(result, 0) + 1
        if result == ("cancelled" if cancels else "delivered"):
            entry["ordered"] = result


class Reader:
    """Reads the target, read committed, on a thread."""

    def __init__(self, options, target):
        self.consumer = confluent_kafka.Consumer({
            "bootstrap.servers": options.brokers, "group.id": f"soak-reader-{os.getpid()}-{target}",
            "isolation.level": "read_committed", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 5,
            "enable.auto.commit": False})
        self.consumer.assign([confluent_kafka.TopicPartition(target, each, 0) for each in range(options.partitions)])
        self.seen = {}  # Value -> [(partition, offset, time seen, time due by the header)]
        self.last = {}  # Partition -> the time of its last record.
        self.longest = {}  # Partition -> its longest time without a record since it was asked.
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over.is_set():
            for message in self.consumer.consume(500, 0.01):
                if message.error():
                    continue
                due = int(dict(message.headers() or [])["x-scheduled-for"])
                self.note(message.partition())
                self.seen.setdefault(message.value().decode(), []).append(
                    (message.partition(), message.offset(), now(), due))
        self.consumer.close()

    def note(self, partition):
        gap = now() - self.last.get(partition, now())
        self.longest[partition] = max(self.longest.get(partition, 0), gap)
        self.last[partition] = now()

    def longest_outage(self):
        """The longest time that a partition has been without a record since this was asked, and which one."""
        gaps = {partition: max(self.longest.get(partition, 0), now() - last)
                for partition, last in list(self.last.items())}
        self.longest = {}
        partition = max(gaps, key=gaps.get, default=None)
        return (gaps[partition], partition) if gaps else (0, None)


def lag_text(name, reader, sender):
    lags = sorted((places[0][2] - max(places[0][3] / 1000, sender.records[value]["acked"] or 0)) * 1000
                  for value, places in list(reader.seen.items()) if value in sender.records)
    if not lags:
        return f"{name}: nothing came"
    at = lambda part: lags[min(len(lags) - 1, int(len(lags) * part))]
    return f"{name}: {len(lags)} records, lag ms p50 {at(.5):.1f} p99 {at(.99):.1f} max {lags[-1]:.0f}"


def find_wrong(records, seen):
    """What a consumer saw that it should not have, and the other way round, by kind."""
    wrong = {"lost": [], "twice": [], "early": [], "cancelled": [], "disordered": [], "strange": []}
    for value, entry in records.items():
        if entry["acked"] is None:
            continue
        places = seen.get(value, [])
        if len(places) > 1:
            wrong["twice"].append(value)
        if ordered := entry.get("ordered"):  # When it is due and whether it comes is what the order said.
            if places and ordered == "cancelled":
                wrong["cancelled"].append(value)
            elif not places and ordered == "delivered":
                wrong["lost"].append(value)
            continue
        if places and places[0][2] * 1000 < entry["due"]:
            wrong["early"].append(value)
        if entry.get("is_cancel"):
            if places:
                wrong["strange"].append(value)
        elif entry.get("may_end"):
            if places and entry["ended"] and entry["ended"] + CANCEL_MARGIN < entry["due"] / 1000:
                wrong["cancelled"].append(value)
        elif not places:
            wrong["lost"].append(value)
    partitions = {}
    for value, places in seen.items():
        if value not in records:
            wrong["strange"].append(value)
            continue
        entry = records[value]
        if entry["acked"] is None or entry.get("ordered"):  # Its place is not known.
            continue
        partitions.setdefault(places[0][0], []).append((places[0][1], entry["due"], entry["order"] or 0, value))
    for places in partitions.values():
        places.sort()
        last = None
        for _, due, order, value in places:
            # One that was sent after another was delivered may be due earlier.
            if last and (due, order) < last and records[value]["due"] / 1000 > (
                    records[value]["acked"] or 0) + CANCEL_MARGIN:
                wrong["disordered"].append(value)
            last = max(last or (due, order), (due, order))
    return wrong


def check_the_checker():
    """Each kind of wrong is found, and nothing else, in a run that is right but for one thing."""
    def run(change):
        records = {str(i): {"partition": 0, "due": 1_000_000 + i * 1000, "ended": None, "acked": 900.0, "order": i}
                   for i in range(5)}
        records["3"].update(may_end=True, ended=950.0)  # Cancelled long before it is due.
        seen = {str(i): [(0, i, 1000.0 + i + 0.01, 1_000_000 + i * 1000)] for i in range(5) if i != 3}
        change(records, seen)
        return {kind for kind, values in find_wrong(records, seen).items() if values}

    def swap(_, seen):
        seen["1"], seen["2"] = [(0, 2, 1003.0, 0)], [(0, 1, 1003.0, 0)]

    for change, kinds in [
            (lambda records, seen: None, set()),
            (lambda records, seen: seen.pop("1"), {"lost"}),
            (lambda records, seen: seen["1"].append((0, 9, 1001.5, 0)), {"twice"}),
            (lambda records, seen: records["1"].update(ordered="cancelled"), {"cancelled"}),
            (lambda records, seen: (records["1"].update(ordered="delivered"), seen.pop("1")), {"lost"}),
            (lambda records, seen: (records["1"].update(ordered="asked"), seen.pop("1")), set()),
            (lambda records, seen: seen.update({"1": [(0, 1, 1000.5, 0)]}), {"early"}),
            (lambda records, seen: seen.update({"3": [(0, 3, 1003.5, 0)]}), {"cancelled"}),
            (lambda records, seen: seen.update({"x": [(0, 7, 1009.0, 0)]}), {"strange"}),
            (swap, {"disordered"})]:
        assert run(change) == kinds, (run(change), kinds)
    print("the checker finds each kind of wrong")


def check_the_sender():
    """A producer that fails for good, in poll() or in produce(), is replaced, and each record is handed over once."""
    class FatalError:
        def fatal(self):
            return True

    class FakeProducer:
        made = []

        def __init__(self, properties):
            self.failed, self.taken, self.is_dead, self.is_full = properties["error_cb"], [], False, True
            self.number = len(self.made)
            self.made.append(self)

        def produce(self, source, value, *_, **__):
            if self.is_dead:
                raise confluent_kafka.KafkaException(FatalError())
            if len(self.taken) == 3 and self.is_full:
                self.is_full = False
                raise BufferError("queue full")
            self.taken.append(int(value))
            # The first one dies without a word, the second one says so in poll().
            self.is_dead = self.number == 0 and len(self.taken) == 5

        def poll(self, _):
            if self.number == 1 and len(self.taken) >= 5:
                self.is_dead = True
                self.failed(FatalError())

        def purge(self):
            pass

        def flush(self, _):
            pass

    options = argparse.Namespace(brokers="", rate=1_000_000, partitions=2)
    sender = Sender(options, "source", 1, FakeProducer)
    for count in range(20):
        sender.send(count)
        sender.producer.poll(0)
        if sender.has_failed:
            sender.replace_producer("said so")
    assert sender.replaced == 2, sender.replaced
    assert [count for each in FakeProducer.made for count in each.taken] == list(range(20)), FakeProducer.made
    print("the sender replaces a producer that has failed, and sends each record once")


def verdict(sender, reader, delivery):
    wrong = find_wrong(sender.records, reader.seen)
    counts = "  ".join(f"{name} {len(values)}" for name, values in wrong.items())
    print(f"{len(sender.records)} sent by {sender.replaced + 1} producers, {len(reader.seen)} delivered:  {counts}")
    for name, values in wrong.items():
        for value in values[:5]:
            print(f"  {name}: {value} {sender.records.get(value)} {reader.seen.get(value)}")
    if delivery == "at-least-once":
        del wrong["twice"], wrong["disordered"]
    return not any(wrong.values())


def committed_offsets(options, source, group):
    """The source offsets that Kafka has for the group."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": options.brokers, "group.id": group,
                                         "isolation.level": "read_uncommitted"})
    until = now() + MAX_OUTAGE
    while True:
        try:
            offsets = [each.offset for each in consumer.committed(
                [confluent_kafka.TopicPartition(source, each) for each in range(options.partitions)], timeout=5)]
            consumer.close()
            return offsets
        except confluent_kafka.KafkaException:  # The coordinator is loading.
            if now() > until:
                raise


def disturb_kafka(options, kafka, source, group, reader, chance):
    """Kills the broker; returns how long it took from its start to the next delivery."""
    before = committed_offsets(options, source, group)
    kafka.end(signal.SIGKILL)
    time.sleep(chance.uniform(0, 8))
    kafka.start()
    started = now()
    # Seen with Kafka 4.3.1, about once in ten kills: its coordinator has the state of 16 384 records, and the log has
    # the rest.  The next start mends it; until then the members must believe nothing.
    tries = 0
    while True:
        after = committed_offsets(options, source, group)
        if all(new >= old for old, new in zip(before, after)):
            break
        print(f"Kafka has gone back from offsets that it had acknowledged: {before} -> {after}; it is killed once more",
              flush=True)
        tries += 1
        if tries == MAX_KAFKA_STARTS:
            sys.exit(KAFKA_HAS_LOST)
        time.sleep(STALE_TIME)
        kafka.end(signal.SIGKILL)
        kafka.start()
        started = now()
    seen = len(reader.seen)
    while len(reader.seen) == seen:
        if now() - started > MAX_OUTAGE:
            raise SystemExit(f"nothing was delivered for {MAX_OUTAGE} s after Kafka's start")
        time.sleep(0.05)
    return now() - started


DISTURBANCES = ["kill -9"] * 4 + ["stop and continue"] * 4 + ["SIGTERM"] * 3 + [
    "SIGTERM, emptied", "SIGTERM, emptied", "kill -9, emptied", "kill -9, emptied", "long stop"]


# With a control: what it takes to see that the mechanism is missing.  A member that stands still for longer than its
# session, and less than transaction.timeout.ms (15 s), may still commit what it has begun.  With no-waiting the session
# is 6 s, so that the others have its partitions while its transaction is open, and most of the time one is.
CONTROL_DISTURBANCES = {"none": ["kill -9", "stop past the session"], "no-fencing": ["stop past the session"],
                        "tombstones": ["kill -9"], "no-waiting": ["stop in a transaction"],
                        "waiting": ["stop in a transaction"]}


def disturb(member, how, waits):
    stops = {"stop and continue": waits[0], "stop past the session": 10.5 + waits[0] / 4,
             "stop in a transaction": 9 + waits[0] / 6, "long stop": LONG_STOP}
    if how in stops:
        member.process.send_signal(signal.SIGSTOP)
        time.sleep(stops[how])
        member.process.send_signal(signal.SIGCONT)
        return
    member.end(signal.SIGKILL if how.startswith("kill") else signal.SIGTERM)
    if how.endswith("emptied"):
        shutil.rmtree(member.data, ignore_errors=True)
    time.sleep(waits[1])
    member.start()


def disturb_members(options, members, extra, chance):
    """Disturbs one member, or two at once, or has one more join or leave; returns what it did."""
    disturbances = CONTROL_DISTURBANCES.get(options.control, DISTURBANCES)
    if chance.random() < 0.1 and not options.control:
        joins = extra.is_ended_by_us
        extra.start() if joins else extra.end(signal.SIGTERM)
        return "one more member joins" if joins else "the additional member leaves"
    victims = chance.sample(members, 2 if len(members) > 1 and chance.random() < 0.3 else 1)
    plans = [(member, chance.choice(disturbances), (chance.uniform(1, 12), chance.uniform(0, 3)))
             for member in victims]
    failed = []

    def run(plan):
        try:
            disturb(*plan)
        except (SystemExit, Exception) as error:  # Whatever it is ends the run.
            failed.append(error)

    threads = [threading.Thread(target=run, args=(plan,)) for plan in plans]
    for number, thread in enumerate(threads):
        if number > 0:
            time.sleep(chance.uniform(0, 4))
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return " and ".join(f"{how}: member {member.index}" for member, how, *_ in plans)


def has_lost_markers(members):
    """Seen with Kafka 4.3.1, killed while it wrote them: it says that the transaction is complete, and partitions have it open."""
    told = [member.order("GET", "/status") for member in members]
    return any(answer and "stays open though its producers were fenced" in json.dumps(answer[1]) for answer in told)


def wait_for_calm(options, reader, members):
    """Waits until each partition has delivered again; returns how long that took."""
    begun = now()
    while True:
        silent = [each for each in range(options.partitions) if reader.last.get(each, 0) < begun]
        if not silent:
            return now() - begun
        if now() - begun > MAX_OUTAGE:
            if has_lost_markers(members):
                print(f"Kafka has lost the markers of a transaction in the way of the partitions {silent}", flush=True)
                sys.exit(KAFKA_HAS_LOST)
            raise SystemExit(f"partitions {silent} have delivered nothing for {MAX_OUTAGE} s after a disturbance")
        time.sleep(0.05)


def rounds(options, kafka, source, members, extra, reader, chance):
    reader.longest_outage()
    longest = 0
    for number in range(options.rounds):
        if kafka and chance.random() < options.kafka_part:
            done = f"kill -9: Kafka; deliveries {disturb_kafka(options, kafka, source, members[0].group, reader, chance):.1f} s after its start"
        else:
            done = disturb_members(options, members, extra, chance)
        if number % CALM_EVERY == CALM_EVERY - 1:
            done += f"; all partitions deliver after {wait_for_calm(options, reader, [*members, extra]):.1f} s"
        time.sleep(chance.uniform(1, 6))
        outage, partition = reader.longest_outage()
        longest = max(longest, outage)
        print(f"{number + 1}: {done}; longest outage {outage:.1f} s, of partition {partition}", flush=True)
        if outage > MAX_OUTAGE_IN_ALL:
            raise SystemExit(f"partition {partition} had no delivery for {outage:.1f} s")
        for member in [*members, extra]:
            member.check()
    print(f"the longest outage of a partition was {longest:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--binary", default="build/release/tarry")
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--rate", type=int, default=300)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--calm", type=float, default=10, help="seconds at the beginning without a disturbance")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--delivery", default="exactly-once")
    parser.add_argument("--standby", type=int, default=0)
    parser.add_argument("--kafka", help="the command that starts Kafka in the foreground; it is then killed too")
    parser.add_argument("--kafka-part", type=float, default=0.1, help="the share of the rounds that kill Kafka")
    parser.add_argument("--control", choices=list(CONTROL_DISTURBANCES), help="--binary is relay_control, whose members lack this mechanism: the exit status is 0 if that is noticed; none and waiting lack nothing, and have to be right")
    parser.add_argument("--check-checker", action="store_true", help="checks, without Kafka, that the verdict finds every kind of error and that the sender goes on when a producer fails")
    if "--check-checker" in sys.argv[1:]:
        check_the_sender()
        return check_the_checker()
    options = parser.parse_args()
    # Also where a shell has let the program ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    stuck = None  # Why the rounds ended before their time.
    chance = random.Random(options.seed)
    name = f"soak-{int(now())}"
    source, target = name + ".delayed", name
    directory = pathlib.Path(tempfile.mkdtemp(prefix="relay-soak-"))
    print(f"seed {options.seed}; topics {source}, {target}; logs in {directory}", flush=True)
    kafka = Kafka(options, directory) if options.kafka else None
    if kafka:
        kafka.start()
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": options.brokers})
    made = admin.create_topics([confluent_kafka.admin.NewTopic(topic, options.partitions, 1)
                                for topic in (source, target)])
    for future in made.values():
        future.result()
    members = [Member(options, index, name, source, directory) for index in range(options.members)]
    extra = Member(options, options.members, name, source, directory)
    reader, sender = Reader(options, target), Sender(options, source, options.seed)
    orders = Orders(options, source, options.seed, sender, members)
    try:
        for member in members:
            member.start()
        time.sleep(12)
        reader.thread.start()
        sender.thread.start()
        time.sleep(options.calm)
        print(lag_text("calm", reader, sender), flush=True)
        for thread in orders.threads:
            thread.start()
        try:
            rounds(options, kafka, source, members, extra, reader, chance)
        except KeyboardInterrupt:
            print("interrupted: the verdict is about the rounds until now", flush=True)
        except SystemExit as ended:
            stuck = ended.code
            print(f"{stuck}; the verdict is about the rounds until now", flush=True)
        orders.over.set()
        for thread in orders.threads:
            thread.join()
        sender.over.set()
        sender.thread.join()
        # What is still pending is due soon; taking over takes a while.
        before, since = -1, now()
        while now() - since < 25:
            time.sleep(1)
            if len(reader.seen) != before:
                before, since = len(reader.seen), now()
        for member in [*members, extra]:
            member.check()
    finally:
        sender.over.set()
        orders.over.set()
        for member in [*members, extra]:
            if member.process and member.process.poll() is None:
                member.process.send_signal(signal.SIGCONT)
                member.process.terminate()
                member.process.wait(60)
        reader.over.set()
        if reader.thread.ident:
            reader.thread.join()
        if kafka:
            kafka.end(signal.SIGTERM)
    print(lag_text("all", reader, sender))
    print("requests:  " + "  ".join(f"{result} {count}" for result, count in sorted(orders.told.items(), key=str)))
    is_right = verdict(sender, reader, options.delivery)
    if stuck == KAFKA_HAS_LOST:
        sys.exit(KAFKA_HAS_LOST)
    sys.exit(0 if not stuck and is_right == (options.control in (None, "none", "waiting")) else 1)


if __name__ == "__main__":
    main()
