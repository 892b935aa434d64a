#!/usr/bin/env python3
"""What delays by `tarry relay` cost on a Kafka that is there, each figure with its goal beside it.

    bench/relay_figures.py --brokers HOST:PORT --binary build/release/tarry [--kafka-pid PID] [--quick] [--full] [--only lag,takeover]

Starts members of its own, with a fresh group, topics and a directory for each step, and ends them and deletes the topics behind it. Needs
Debian's python3-confluent-kafka, and relay_loop beside it (built with -DTARRY_BENCH=ON) for `loop`. Figures mean something on a machine that
does nothing else; Kafka should have group.initial.rebalance.delay.ms=0. Some fifteen minutes; with --quick three, to see whether all works.

    lag       p50 and p99 at 5 000/s, exactly once and at least once, beside the floor: the same records sent straight to the target
    intake    how fast one member takes in a source that is full; its CPU, and its memory and disk with a million pending records
    delivery  how fast one member delivers what is due in one millisecond, and its CPU
    loop      the CPU of a plain consume-and-produce loop with transactions for the same records
    takeover  kill -9 of the owner of a million pending records: until each of its partitions delivers what falls due, with a standby and without
    full      with --full: memory and disk with ten million pending records

Prints a line for each figure and at the end, also after Ctrl-C, one JSON. Exit status 1: a step failed, or a promise was broken (early, lost,
twice); a missed goal is no error.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import confluent_kafka

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "relay"))
import own_broker
import with_kafka
from delay_figures import grouped, machine

PARTITIONS = 4
BYTES = 100  # Of a record's value.
SESSION = 10  # Seconds: the relay's session.timeout.ms.
SETTLE = 10  # Seconds for flushes and warm copies, before memory is looked at and before a member is killed.
END_WAIT = 15  # Seconds for a member to leave in order.
START_LIMIT = 60  # Seconds until a member is ready.


@dataclasses.dataclass
class Scale:
    lag_s: int = 30
    million: int = 1_000_000
    burst: int = 300_000
    burst_delay_s: int = 60  # All are taken in before, with the producer on the same machine.


# For a look whether everything works.
QUICK = Scale(lag_s=5, million=30_000, burst=20_000, burst_delay_s=12)


def limit_for(count):
    """Seconds that so many records may take: a fifth of the goal's rate, and a start."""
    return 60 + count / 4_000


def cpu_seconds(pid):
    """Of the process, with the threads that have ended."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def wait(what, seconds, ask):
    """What `ask` says, once that is something."""
    until = time.monotonic() + seconds
    while not (found := ask()):
        if time.monotonic() > until:
            raise RuntimeError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.05)
    return found


class Member(with_kafka.Member, own_broker.Measured):
    def __init__(self, *args):
        super().__init__(*args)
        # Before the member is ready nothing tells a port that it chose itself, and it may have much to take in until then.
        self.admin = f"127.0.0.1:{free_port()}"

    def status(self):
        """None: it does not answer yet."""
        self.check()
        answer = self.order("GET", "/status")
        return answer[1] if answer and answer[0] == 200 else None

    def look(self):
        """(monotonic time, pending records, CPU seconds); None: it does not answer yet."""
        told = self.status()
        return told and (time.monotonic(), told["delayed"]["pending"], cpu_seconds(self.process.pid))

    def kill(self):
        self.is_ended_by_us = True
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.is_ended_by_us = True
            self.process.terminate()
            try:
                self.process.wait(END_WAIT)
            except subprocess.TimeoutExpired:
                self.kill()
        self.log.close()


class Place:
    """The topics, the group and the directory of one step. What is started in it ends with it."""

    def __init__(self, run, name, delivery="exactly-once", standby=0):
        self.run, self.members = run, []
        self.group = f"figures-{run.id}-{name}"
        self.source, self.target = self.group + ".delayed", self.group
        self.member_options = argparse.Namespace(binary=run.options.binary, brokers=run.options.brokers, delivery=delivery, standby=standby, control=None)

    def __enter__(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="relay-figures-", dir=self.run.options.dir))
        try:
            for topic in (self.source, self.target):
                self.run.cli("topic", "create", topic, "--partitions", str(PARTITIONS))
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, *_):
        try:
            for member in self.members:
                member.stop()
        finally:  # Whatever has interrupted it.
            for member in self.members:
                if member.process and member.process.poll() is None:
                    member.kill()
        if kind and kind is not KeyboardInterrupt:
            for member in self.members:
                sys.stderr.write(member.log_path.read_text(errors="replace")[-1000:])
        for topic in (self.source, self.target, f"{self.group}-pending-{self.source}"):
            with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):  # It may never have been made.
                self.run.cli("topic", "delete", topic)
        shutil.rmtree(self.directory, ignore_errors=True)

    def member(self):
        member = Member(self.member_options, len(self.members), self.group, self.source, self.directory)
        self.members.append(member)
        member.start()
        return member

    def ready_members(self, count):
        """Members that are started and share all partitions."""
        members = [self.member() for _ in range(count)]

        def is_shared():
            told = [member.status() for member in members]
            return all(each and each["state"] == "running" and each["relay"]["owned"] == PARTITIONS // count for each in told)

        wait(f"{count} members that share {PARTITIONS} partitions", START_LIMIT, is_shared)
        return members

    def bench(self, *words, limit, meanwhile=lambda: None):
        """What `tarry bench delayed` measures with these words."""
        command = [self.run.options.binary, "bench", "delayed", "--json", "-b", self.run.options.brokers, "--timeout", "60s", "--topic", self.source,
                   "--target", self.target, "--size", str(BYTES), *(str(word) for word in words)]
        until = time.monotonic() + limit
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                while process.poll() is None:
                    if time.monotonic() > until:
                        raise RuntimeError(f"{' '.join(command)}: not done within {limit:.0f} s")
                    meanwhile()
                    time.sleep(0.1)
                out, said = process.communicate()
            except BaseException:
                process.kill()
                raise
        if not out.strip():
            raise RuntimeError(f"{' '.join(command)}: {said.strip()[-500:]}")
        if process.returncode != 0:
            self.run.problem(f"{' '.join(command)}: {said.strip()[-500:]}")
        return json.loads(out.splitlines()[-1])

    def fill(self, count):
        """Records that are not due while this program runs."""
        told = self.bench("--fill", "--rate", 0, "--count", count, "--delay", "2h", "--spread", "30d", limit=limit_for(count))
        if told["accepted"] != count:
            raise RuntimeError(f"only {told['accepted']} of {count} records were accepted")


class Run:
    """One run of this program: its options, its figures, and what went wrong."""

    def __init__(self, options):
        self.options, self.scale, self.id = options, QUICK if options.quick else Scale(), f"{int(time.time())}-{os.getpid()}"
        self.step, self.figures, self.problems, self.machine = "", [], [], machine()

    def say(self, name, text, goal=None, met=None, **values):
        """`met`: whether the goal is reached."""
        verdict = "" if met is None else "met" if met else "MISSED"
        print(f"{self.step:<9} {name:<58} {text:>30}" + (f"   goal: {goal:<14} {verdict}" if goal else ""), flush=True)
        self.figures.append({"step": self.step, "figure": name, "text": text, "goal": goal, "met": met, **values})

    def problem(self, what):
        print(f"{self.step:<9} FAILED: {what}", flush=True)
        self.problems.append(f"{self.step}: {what}")

    def cli(self, *words, limit=60):
        done = subprocess.run([self.options.binary, *words, "-b", self.options.brokers], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit)
        if done.returncode != 0:
            raise RuntimeError(f"tarry {' '.join(words)}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def kafka_cpu(self):
        """None: there is no such process."""
        with contextlib.suppress(OSError):
            return cpu_seconds(self.options.kafka_pid)

    @contextlib.contextmanager
    def in_step(self, name):
        """An error ends the step alone."""
        self.step, began, cpu = name, time.monotonic(), self.kafka_cpu()
        try:
            yield
        except (Exception, SystemExit) as error:  # A member that ended by itself is a SystemExit.
            self.problem(error if isinstance(error, (RuntimeError, SystemExit)) else repr(error))
        end = self.kafka_cpu()
        if None not in (cpu, end):
            self.say("Kafka's CPU in this step", f"{end - cpu:.1f} s of {time.monotonic() - began:.0f} s", seconds=end - cpu)


def at_most(figure, bound, unit):
    return {"goal": f"<= {grouped(bound)} {unit}", "met": figure <= bound}


def at_least(figure, bound, unit):
    return {"goal": f">= {grouped(bound)} {unit}", "met": figure >= bound}


def measure_lag(run, delivery, goals):
    with Place(run, delivery, delivery) as place:
        place.ready_members(1)
        told = place.bench("--rate", 5_000, "--duration", f"{run.scale.lag_s}s", "--delay", "3s", "--spread", "1s", "--floor", f"{min(run.scale.lag_s, 10)}s",
                           limit=180 + 3 * run.scale.lag_s)
    lag, floor = told["lag_ms"], (told["floor"] or {}).get("lag_ms")
    if not lag or not floor:
        raise RuntimeError(f"nothing was delivered: {told}")
    for part in ("p50", "p99"):
        goal = at_most(lag[part], goals[part], "ms") if part in goals else {}
        run.say(f"{delivery}: lag {part} at 5 000/s; the floor", f"{lag[part]:.1f} ms; {floor[part]:.1f} ms", **goal, ms=lag[part], floor_ms=floor[part])
    kinds = ("early", "lost", "twice")
    run.say(f"{delivery}: {', '.join(kinds)}, of {grouped(told['delivered'])} delivered", ", ".join(str(told[kind]) for kind in kinds), "0, 0, 0",
            all(told[kind] == 0 for kind in kinds), lag_ms=lag, floor_lag_ms=floor, accepted_per_s=told["accepted_per_s"])


def per_record_us(first, last, count):
    return (last[2] - first[2]) / count * 1e6


def measure_intake(run, name, count):
    with Place(run, name) as place:
        # Without a producer beside it, which needs more of the machine than the member.
        place.fill(count)
        member, looks = place.member(), []

        def is_taken_in():
            if look := member.look():
                looks.append(look)
            return look and look[1] >= count

        wait(f"{grouped(count)} records that are pending", limit_for(count), is_taken_in)
        time.sleep(SETTLE)
        memory = {field: member.memory_mb(field) for field in ("VmRSS", "RssAnon", "VmHWM")}
        disk = own_broker.disk_bytes(member.data) / own_broker.MIB
    first, last = next(look for look in looks if look[1] > 0), looks[-1]
    taken = last[1] - first[1]
    if taken <= 0:
        raise RuntimeError("all records were taken in before the member answered for the first time")
    rate = taken / (last[0] - first[0])
    run.say(f"intake of {grouped(count)} records by one member", f"{grouped(rate)} a second", **at_least(rate, 20_000, "/s"), per_second=rate)
    run.say("CPU of the member for each", f"{per_record_us(first, last, taken):.1f} us", us=per_record_us(first, last, taken))
    run.say(f"memory with {grouped(count)} pending: all; anonymous; its peak", f"{memory['VmRSS']}; {memory['RssAnon']}; {memory['VmHWM']} MiB",
            **at_most(memory["VmRSS"], 512, "MiB"), **memory)
    run.say(f"disk with {grouped(count)} pending", f"{disk:.0f} MiB", mib=disk)


def measure_delivery(run):
    count = run.scale.burst
    with Place(run, "delivery") as place:
        member, = place.ready_members(1)
        looks = []

        def look():
            if seen := member.look():
                looks.append(seen)

        told = place.bench("--burst", count, "--delay", f"{run.scale.burst_delay_s}s", limit=60 + run.scale.burst_delay_s + limit_for(count), meanwhile=look)
    if not told["lag_ms"]:
        raise RuntimeError(f"nothing was delivered: {told}")
    all_in = [i for i, seen in enumerate(looks) if seen[1] >= count]
    if not all_in:
        raise RuntimeError(f"only {max((seen[1] for seen in looks), default=0)} of {count} records were pending when they fell due")
    rate = told["delivered"] / (told["lag_ms"]["max"] / 1000)
    run.say(f"delivery of {grouped(told['delivered'])} records that are due at once", f"{grouped(rate)} a second", **at_least(rate, 20_000, "/s"), per_second=rate)
    first = looks[all_in[-1]]
    last = next((seen for seen in looks[all_in[-1]:] if seen[1] == 0), None)
    if not last:
        raise RuntimeError("the member still has pending records although all were delivered")
    run.say("CPU of the member for each", f"{per_record_us(first, last, count):.1f} us", us=per_record_us(first, last, count))


def measure_loop(run):
    count, loop = run.scale.burst, pathlib.Path(run.options.loop or pathlib.Path(run.options.binary).parent / "bench/relay_loop")
    if not loop.exists():
        raise RuntimeError(f"{loop} is not built: configure with -DTARRY_BENCH=ON, or pass --loop")
    with Place(run, "loop") as place:
        run.cli("bench", "produce", "--topic", place.source, "--count", str(count), "--size", str(BYTES), limit=limit_for(count))
        done = subprocess.run([loop, run.options.brokers, place.source, place.target, place.group, str(count)], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=limit_for(count))
    if done.returncode != 0:
        raise RuntimeError(f"{loop}: {done.stderr.strip()[-500:]}")
    told = json.loads(done.stdout)
    run.say("a plain loop with transactions", f"{grouped(told['records'] / told['seconds'])} a second", per_second=told["records"] / told["seconds"])
    mine = told["cpu_s"] / told["records"] * 1e6
    relay = [figure["us"] for figure in run.figures if figure["step"] in ("intake", "delivery") and "us" in figure]
    beside = f"; the relay {sum(relay):.1f} us" if len(relay) == 2 else ""
    run.say("CPU for each record" + (", and of intake and delivery together" if beside else ""), f"{mine:.1f} us{beside}", us=mine, relay_us=sum(relay) if beside else None)


class Trickle:
    """A record for each partition again and again, that is due soon, and when a consumer that reads committed has it."""

    EVERY, DELAY = 0.05, 0.3  # Seconds.

    def __init__(self, place):
        self.place, self.next = place, 0
        self.seen = {each: [] for each in range(PARTITIONS)}  # Partition -> [(due ms, seen at)]
        servers = {"bootstrap.servers": place.run.options.brokers}
        self.producer = confluent_kafka.Producer({**servers, "linger.ms": 1})
        self.consumer = confluent_kafka.Consumer({**servers, "group.id": place.group + "-reader", "isolation.level": "read_committed",
                                                  "enable.auto.commit": False, "fetch.wait.max.ms": 5})
        self.consumer.assign([confluent_kafka.TopicPartition(place.target, each, confluent_kafka.OFFSET_END) for each in range(PARTITIONS)])

    def turn(self):
        now = time.time()
        if now >= self.next:
            self.next = now + self.EVERY
            due = str(int((now + self.DELAY) * 1000)).encode()
            for partition in range(PARTITIONS):
                self.producer.produce(self.place.source, due, None, partition, headers=[("x-deliver-at", due)])
        self.producer.poll(0)
        for message in self.consumer.consume(100, 0.02):
            with contextlib.suppress(TypeError, ValueError):  # A record of another program has no time for its value.
                if not message.error():
                    self.seen[message.partition()].append((int(message.value()), time.time()))

    def first_due_after(self, partition, moment):
        """When the first record that fell due after the moment was seen; None: none was."""
        return next((seen for due, seen in self.seen[partition] if due > moment * 1000), None)

    def turn_until_all(self, partitions, moment, limit):
        """Until each of these partitions has delivered what fell due after the moment."""
        while silent := [each for each in partitions if not self.first_due_after(each, moment)]:
            if time.time() > moment + limit:
                raise RuntimeError(f"partitions {silent} have delivered nothing for {limit} s")
            self.turn()

    def close(self):
        self.producer.flush(5)
        self.consumer.close()


def measure_takeover(run, standby):
    # Each of the two members owns half of the partitions, and so half of this.
    count, word = 2 * run.scale.million, "with a standby" if standby else "without a standby"
    with Place(run, f"takeover-{standby}", standby=standby) as place:
        victim, heir = place.ready_members(2)
        place.fill(count)
        wait(f"{grouped(count)} records that are pending", limit_for(count), lambda: (told := heir.status()) and told["delayed"]["pending"] >= count)
        time.sleep(SETTLE)
        name = victim.status()["relay"]["instance"]
        lost = [each for each in heir.status()["relay"]["partitions"] if each["member"] == name]
        mine, pending = [each["partition"] for each in lost], sum(each["pending"] for each in lost)
        if not mine:
            raise RuntimeError(f"the member {name} owns no partition")
        with contextlib.closing(Trickle(place)) as trickle:
            trickle.turn_until_all(range(PARTITIONS), time.time(), START_LIMIT)
            killed = time.time()
            victim.kill()
            goal = SESSION + (3 if standby else 30)
            # The victim cannot have delivered what falls due that much later.
            since = killed + Trickle.EVERY
            trickle.turn_until_all(mine, since, 3 * goal)
            took = {each: trickle.first_due_after(each, since) - killed for each in mine}
    longest = max(took.values())
    run.say(f"take-over of {grouped(pending)} pending, {word}", f"{longest:.1f} s", **at_most(longest, goal, "s"), seconds=took, pending=pending)


def steps(run):
    million = run.scale.million
    both = {"exactly-once": {"p50": 15, "p99": 60}, "at-least-once": {"p50": 8}}
    yield from (("lag", functools.partial(measure_lag, run, delivery, goals)) for delivery, goals in both.items())
    yield "intake", lambda: measure_intake(run, "intake", million)
    yield "delivery", lambda: measure_delivery(run)
    yield "loop", lambda: measure_loop(run)
    yield from (("takeover", functools.partial(measure_takeover, run, standby)) for standby in (1, 0))
    if run.options.full:
        yield "full", lambda: measure_intake(run, "full", 10 * million)


def parse_options():
    names = ["lag", "intake", "delivery", "loop", "takeover", "full"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", required=True, metavar="HOST:PORT")
    parser.add_argument("--binary", default="build/release/tarry")
    parser.add_argument("--loop", metavar="FILE", help="relay_loop (default: bench/relay_loop beside the binary)")
    parser.add_argument("--kafka-pid", type=int, metavar="PID", help="Kafka's process, whose CPU is shown too")
    parser.add_argument("--quick", action="store_true", help="few records, to see whether all works")
    parser.add_argument("--full", action="store_true", help="also ten million pending records")
    parser.add_argument("--only", default=",".join(names), metavar="STEPS", help="(default: %(default)s)")
    parser.add_argument("--dir", default=None, help="where the members' data is (default: the directory for temporary files)")
    options = parser.parse_args()
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(names):
        parser.error(f"--only: {', '.join(sorted(unknown))}: the steps are {', '.join(names)}")
    if not os.access(options.binary, os.X_OK):
        parser.error(f"--binary {options.binary}: there is no such program")
    options.binary = os.path.abspath(options.binary)
    return options


def main():
    options = parse_options()
    # Also where a shell has let the program ignore SIGINT: members of ours do not outlive us.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    run, interrupted = Run(options), False
    told = run.machine
    print(f"{told['cores']} cores of {told['cpu']}, load {told['load'][0]:.2f}, Linux {told['kernel']}, {told['at']}", flush=True)
    try:
        for name, measure in steps(run):
            if name in options.only:
                with run.in_step(name):
                    measure()
    except KeyboardInterrupt:
        interrupted = True
    print(json.dumps({"machine": told, "quick": options.quick, "interrupted": interrupted, "problems": run.problems, "figures": run.figures}))
    return 130 if interrupted else 1 if run.problems else 0


if __name__ == "__main__":
    sys.exit(main())
