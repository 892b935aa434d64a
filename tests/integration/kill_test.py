#!/usr/bin/python3
"""Kills the real broker with -9 at random moments, also during start-up and checkpoints, while
delayed records of two clients become due and an idempotent producer writes beside them. Others are due in
up to 30 days, and some of them are replaced; an owner cancels of these and of such as are due soon. The
broker has the least memory for delayed records.

    tests/integration/kill_test.py [--binary B] [--records 10000] [--kills 100] [--seed N] [--directory D] [--lose N]

Verifies, against what the clients were told:
  lost    what was acknowledged and is neither in the log nor pending when all is over
  undone  a record that was cancelled or replaced and is there all the same, or one that is said to be
          delivered, or unknown, and is not
  twice   a record that is there more than once
  early   a record that a consumer had in hand before its due millisecond
  order   equal due times of one client in one partition that left in another order
  taken   a record that a consumer has seen and that is not in the log, at that offset, in the end
Prints its seed first and one line of JSON last; exit code 0 when all six are 0.

--lose N is the control: N records that were acknowledged are taken out of what the checker reads, and it
has to find these as lost, and no others.
"""

import argparse
import collections
import http.client
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import harness  # noqa: E402
import wire  # noqa: E402

PARTITIONS = 4


class Producer(threading.Thread):
    """An idempotent librdkafka client that retries until everything is acknowledged."""

    def __init__(self, broker, topic, name, messages, rate):
        super().__init__(daemon=True)
        import confluent_kafka
        self.name, self.topic, self.messages, self.rate = name, topic, messages, rate
        self.acknowledged, self.failed = {}, []  # Value -> wall time in ms of its acknowledgement.
        self.producer = confluent_kafka.Producer({
            "bootstrap.servers": broker.brokers, "enable.idempotence": True, "linger.ms": 5,
            "message.timeout.ms": 0, "socket.timeout.ms": 5000, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 50, "log_level": 2, "queue.buffering.max.messages": 1_000_000,
            "error_cb": lambda error: self.failed.append(str(error)) if error.fatal() else None})

    def run(self):
        started = time.monotonic()
        for count, (value, partition, headers, *key) in enumerate(self.messages()):
            self.producer.produce(self.topic, value=value, key=key[0] if key else None, partition=partition, headers=headers,
                                  on_delivery=self.told)
            self.producer.poll(0)
            ahead = count / self.rate - (time.monotonic() - started)
            if ahead > 0.01:
                self.producer.poll(ahead)
        left = self.producer.flush(120)
        if left:
            self.failed.append(f"{left} records are not acknowledged")

    def told(self, error, message):
        if error:
            self.failed.append(f"{message.value()}: {error}")
        else:
            self.acknowledged[message.key() or message.value()] = harness.now_ms()


class Owner(threading.Thread):
    """Cancels, one after the other, records that are acknowledged: what was it told?"""

    def __init__(self, broker, topic, producers, chance):
        super().__init__(daemon=True)
        self.broker, self.topic, self.producers, self.chance = broker, topic, producers, chance
        self.told, self.going = {}, True  # Name -> the result; "?" when the broker was killed meanwhile.

    def run(self):
        asked = {producer: 0 for producer in self.producers}
        while self.going:
            for producer in self.producers:
                names = list(producer.acknowledged)
                for name in names[asked[producer]:]:
                    asked[producer] += 1
                    # A replaced one is left to its replacement.
                    if self.going and self.chance.random() < 0.2 and not is_replaced(name):
                        self.cancel(name)
            time.sleep(0.01)

    def cancel(self, name):
        try:
            number = int(name.split(b"-")[1])
            status, told = self.broker.http("DELETE", f"/delayed/{self.topic}/{name.decode()}?partition={number % PARTITIONS}")
            self.told[name] = told.get("result", "?") if status in (200, 404) and isinstance(told, dict) else "?"
        except (OSError, http.client.HTTPException):
            self.told[name] = "?"
            time.sleep(0.02)


def is_replaced(name):
    """Of the records that are due in days every fifth is replaced by one with its id."""
    return name.startswith(b"far") and (name.endswith(b"+") or int(name.split(b"-")[1]) % 5 == 0)


def all_pending(broker, topic):
    """The keys of the records that are pending, of those that have a key."""
    keys, after = [], ""
    while True:
        page = broker.get(f"/delayed?topic={topic}&limit=1000" + (f"&after={after}" if after else ""))
        keys += [row["key"].encode() for row in page["records"] if row["key"]]
        after = page["next"]
        if not after:
            return keys


class Consumer(threading.Thread):
    """Reads one partition as it grows and notes when each record was first in hand."""

    def __init__(self, broker, topic, partition):
        super().__init__(daemon=True)
        self.broker, self.topic, self.partition = broker, topic, partition
        self.seen, self.going, self.problem = {}, True, None  # Offset -> (value, due or None, arrived ms).

    def run(self):
        offset, client = 0, None
        while self.going:
            try:
                client = client or self.broker.client(timeout=5)
                fetched = client.fetch(self.topic, offset, self.partition, max_wait=200)
                arrived = harness.now_ms()
                if fetched.error:
                    if fetched.error == wire.OFFSET_OUT_OF_RANGE:
                        self.problem = f"offset {offset} of partition {self.partition} was seen and is gone"
                        return
                    raise OSError(f"error {fetched.error}")
                for each in fetched.batches():
                    for rec in each.records:
                        due = rec.header("x-scheduled-for")
                        self.seen[rec.offset] = (rec.value, int(due) if due else None, arrived)
                        offset = rec.offset + 1
            except (wire.ConnectionEnded, OSError):
                if client:
                    client.close()
                client = None
                time.sleep(0.02)


def producers_of(broker, topic, records, seconds, chance, due_of):
    """Two clients' delayed records, plain ones beside them, records with an owner, and those that are far away."""
    def delayed(name, own):
        def messages():
            for number in range(records // 2):
                value = f"{name}-{number:06}".encode()
                # Many share a due time: they are multiples of 20 ms.
                due = int(harness.now_ms() + own.uniform(300, 6000)) // 20 * 20
                due_of[value] = due
                yield value, number % PARTITIONS, {"x-deliver-at": str(due)}
        return messages

    def beside():
        for number in range(records):
            yield f"beside-{number:06}".encode(), number % PARTITIONS, None

    def paid():
        for value, partition, headers in delayed("paid", random.Random(chance.random()))():
            yield value, partition, {**headers, "x-schedule-id": value.decode()}

    def far():
        own, body = random.Random(chance.random()), b"." * 1000
        replaced = collections.deque()
        for number in range(records):
            if number % 5 == 0:
                replaced.append(number)
            for number, more in [(number, b"")] + ([(replaced.popleft(), b"+")] if len(replaced) > 20 else []):
                name = b"far-%06d" % number
                yield body, number % PARTITIONS, {"x-deliver-at": str(int(harness.now_ms() + own.uniform(3_600_000, 30 * 86_400_000))),
                                                  "x-schedule-id": name.decode()}, name + more

    rate = records / 2 / seconds
    return [Producer(broker, topic, "a", delayed("a", random.Random(chance.random())), rate),
            Producer(broker, topic, "b", delayed("b", random.Random(chance.random())), rate),
            Producer(broker, topic, "beside", beside, records / seconds),
            Producer(broker, topic, "paid", paid, rate), Producer(broker, topic, "far", far, 1.2 * records / seconds)]


def kill_often(broker, kills, seconds, chance):
    """Returns the kills, those of them in a start, and the slowest start in ms."""
    slowest, done, in_start = 0, 0, 0
    while done < kills:
        time.sleep(chance.uniform(0.02, 2 * (seconds + 5) / kills))
        broker.kill()
        done += 1
        if chance.random() < 0.25 and done < kills:  # Once more while it starts.
            broker.process = broker.spawn()
            time.sleep(chance.uniform(0, 0.05))
            broker.kill()
            done, in_start = done + 1, in_start + 1
        broker.start(shards=chance.choice([1, 2, 2, 3]))
        slowest = max(slowest, broker.start_ms)
    return done, in_start, slowest


def log_when_all_has_come(broker, topic, consumers, expected):
    """Waits for `expected` records and for the consumers; returns the records of each partition."""
    with broker.client() as client:
        # All are due within 6 s of the last; what is lost is not waited for.
        deadline = time.monotonic() + 20
        while sum(len(c.seen) for c in consumers) < expected and time.monotonic() < deadline:
            time.sleep(0.1)
        ends = [client.end_offset(topic, p) for p in range(PARTITIONS)]
        deadline = time.monotonic() + 10
        while any(max(c.seen, default=-1) + 1 < end for c, end in zip(consumers, ends)) and time.monotonic() < deadline:
            time.sleep(0.05)
        for consumer in consumers:
            consumer.going = False
            consumer.join(10)
        return {p: [rec for each in client.everything(topic, p) for rec in each.records] for p in range(PARTITIONS)}


def wrong_deliveries(log, consumers, due_of, acknowledged):
    """Returns what left early, out of order, or not as a consumer has seen it, and all lags."""
    early, order, taken = [], [], [consumer.problem for consumer in consumers if consumer.problem]
    lags = []
    for partition, recs in log.items():
        at = {rec.offset: rec.value for rec in recs}
        for offset, (value, due, arrived) in consumers[partition].seen.items():
            if at.get(offset) != value:
                taken.append((partition, offset, value))
            if value in due_of:
                lags.append(arrived - due_of[value])
                if arrived < due_of[value]:
                    early.append((value, due_of[value], arrived))
        last = {}
        for rec in recs:
            due = due_of.get(rec.value)
            # One that was accepted after its due time was never pending.
            if due is None or rec.header("x-schedule-handle") is None or acknowledged.get(rec.value, due) >= due:
                continue
            client, number = rec.value.split(b"-")
            if last.get((client, due), -1) > int(number):
                order.append((partition, rec.offset, rec.value))
            last[client, due] = int(number)
    return early, order, taken, sorted(lags)


def torture(binary, directory, records, kills, seed, seconds, tell=print, lose=0):
    """Runs it; returns the report as a dict."""
    chance = random.Random(seed)
    tell(f"seed {seed}: {records} delayed records of two clients, {kills} kills, in {directory}")
    settings = {"tarry.checkpoint.interval.ms": 150, "tarry.delay.memory.bytes": 16 << 20}
    broker = harness.Broker(binary, directory, settings=settings).start()
    with broker.client() as client:
        topic = client.create_topic("killed", partitions=PARTITIONS)
    due_of = {}

    producers = producers_of(broker, topic, records, seconds, chance, due_of)
    owner = Owner(broker, topic, producers[-2:], random.Random(chance.random()))
    consumers = [Consumer(broker, topic, partition) for partition in range(PARTITIONS)]
    for thread in producers + consumers + [owner]:
        thread.start()

    started = time.monotonic()
    done, in_start, slowest = kill_often(broker, kills, seconds, chance)
    for thread in producers:
        thread.join(180)
    owner.going = False
    owner.join(30)
    failed = [text for producer in producers for text in producer.failed]
    expected = sum(len(producer.acknowledged) for producer in producers[:-1])
    expected -= sum(told == "cancelled" and name.startswith(b"paid") for name, told in owner.told.items())
    log = log_when_all_has_come(broker, topic, consumers, expected)

    counted = collections.Counter(rec.key or rec.value for recs in log.values() for rec in recs)
    in_log = dict(counted)
    counted.update(all_pending(broker, topic))
    acknowledged = {}
    for producer in producers:
        acknowledged.update(producer.acknowledged)
    taken_out = chance.sample(sorted(name for name in acknowledged if counted[name]), lose)
    for name in taken_out:
        counted[name] = 0
    # What ended otherwise than by its delivery.
    ended = {name for name, told in owner.told.items() if told == "cancelled"}
    ended |= {name[:-1] for name in acknowledged if name.endswith(b"+")}
    unsure = {name for name, told in owner.told.items() if told == "?"}
    lost = [name for name in acknowledged if not counted[name] and name not in ended and name not in unsure]
    undone = [name for name in ended if counted[name]]
    undone += [(name, told) for name, told in owner.told.items()
               if told == "unknown" or told == "already_delivered" and name not in in_log]
    twice = [value for value, count in counted.items() if count > 1]
    early, order, taken, lags = wrong_deliveries(log, consumers, due_of, acknowledged)
    code = broker.stop()
    report = {
        "seed": seed, "kills": done, "kills_in_start": in_start, "acknowledged": len(acknowledged), "in_log": sum(in_log.values()),
        "pending": sum(counted.values()) - sum(in_log.values()), "cancelled": sum(told == "cancelled" for told in owner.told.values()),
        "cancelled_too_late": sum(told == "already_delivered" for told in owner.told.values()), "cancels_unanswered": len(unsure),
        "replaced": sum(name.endswith(b"+") for name in acknowledged), "lost": len(lost), "undone": len(undone), "twice": len(twice), "early": len(early), "order": len(order), "taken": len(taken),
        "producer_errors": len(failed), "slowest_start_ms": slowest, "lag_ms_p50": round(lags[len(lags) // 2], 1) if lags else None,
        "lag_ms_max": round(lags[-1], 1) if lags else None, "exit_code": code, "seconds": round(time.monotonic() - started, 1),
    }
    for name, rows in (("lost", lost), ("undone", undone), ("twice", twice), ("early", early), ("order", order), ("taken", taken), ("errors", failed)):
        if rows:
            tell(f"{name}: {rows[:10]}{' ...' if len(rows) > 10 else ''}")
    tell(json.dumps(report))
    expected = 3 * (records // 2) + 2 * records + report["replaced"]
    report["ok"] = (sorted(lost) == sorted(taken_out) and not (undone or twice or early or order or taken or failed or code)
                    and len(acknowledged) == expected)
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--binary", default=harness.ROOT / "build/release/tarry")
    parser.add_argument("--records", type=int, default=10_000, help="delayed records, of both clients together")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=float, help="how long the clients send (default: half a second a kill)")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--lose", type=int, default=0, help="a control: so many records are taken out of what is read")
    parser.add_argument("--directory", help="the data directory, which is kept (default: a temporary one, removed if all is well)")
    options = parser.parse_args()
    directory = options.directory or tempfile.mkdtemp(prefix="tarry-kill.")
    os.makedirs(directory, exist_ok=True)
    report = torture(pathlib.Path(options.binary).resolve(), directory, options.records, options.kills, options.seed,
                     options.seconds or max(5, options.kills / 2), lose=options.lose)
    if report["ok"] and not options.directory:
        shutil.rmtree(directory)
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
