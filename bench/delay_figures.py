#!/usr/bin/env python3
"""Measures delayed delivery in all respects that docs/benchmarks.md lists, each figure with its goal beside it.

    bench/delay_figures.py --binary build/release/tarry [--only lag,cancel] [--full 10] [--shards 2] [--json FILE] [--quick]

Each step has brokers of its own in a temporary directory and a time limit; a step that fails is reported, and the others go on.
Prints a line per figure, and writes FILE after each step: every figure with the values that it is made of.

lag      records at 20 000/s and 50 000/s, beside the same client's records without a delay
burst    1 M records due in one millisecond; then once more, with another topic's records due meanwhile
full     accepting at few pending records and when it is filled to --full M; memory, disk and writes; kill -9 and what follows; other numbers of shards
cancel   cancels by id in due order, one per record, pipelined
drain    1 M overdue records after kill -9, while a producer is served
shards   memory with 1, 2 and 4 shards

"Goal" is what the figure should be on 2 cores that nothing else uses. A turn is measured by the clock, and so has the time for
which its thread had no core: the time that all threads waited for one is printed beside it, and the CPU time of the turn that used most.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "integration"))
import overdue
import own_broker
import wire

RECORD = 100  # Bytes of a record's value.
SOON = 1_000  # Records that fall due between kill -9 and the next start.
SOON_DELAY, SOON_SPREAD = 5, 0.5  # Seconds: from when the bench sends one until it is due.
PIECE = 10  # Millions of records that are added between two looks at the broker.


@dataclasses.dataclass
class Scale:
    million: int = 1_000_000
    cancels: int = 400_000
    repeats: int = 3  # Repeats of what takes seconds; its figure is their median.
    watch_s: int = 60  # How long a broker is watched after its start.

    def repeat(self, measure):
        return [measure(number) for number in range(self.repeats)]


# For a look whether everything works.
QUICK = Scale(million=10_000, cancels=5_000, repeats=1, watch_s=1)


def median(values):
    return statistics.median(values)


def grouped(number):
    return f"{number:,.0f}".replace(",", " ")


def listed(numbers, digits=1):
    return ", ".join(f"{number:.{digits}f}" for number in numbers)


class Run:
    """One run of this program: its options, its figures, and what is watched in every step."""

    def __init__(self, options):
        self.options, self.scale, self.step, self.figures, self.failed = options, QUICK if options.quick else Scale(), None, [], []
        self.machine, self.turns, self.delivered, self.early = machine(), {}, 0, 0

    def say(self, name, text, goal=None, met=None, **values):
        """`met`: whether the goal is reached. Each name is said once, because tables of several runs find figures by it."""
        verdict = "" if met is None else "met" if met else "MISSED"
        print(f"{self.step:<7} {name:<68} {text:>26}" + (f"   goal: {goal:<22} {verdict}" if goal else ""), flush=True)
        self.figures.append({"step": self.step, "figure": name, "text": text, "goal": goal, "met": met, **values})

    def broker(self, shards=None):
        return own_broker.running(self.options.binary, self.options.set, shards or self.options.shards, self.options.dir)

    def glance(self, broker):
        """The longest turns, which the broker forgets after four minutes."""
        status = broker.get("/status")
        step = self.turns.setdefault(self.step, {"longest_ms": 0, "longest_cpu_ms": 0, "long": 0, "of": 0, "waited_s": 0, "above_ms": 0})
        step["longest_ms"] = max([step["longest_ms"], *(shard["turn_ms"]["max"] for shard in status["shards"])])
        step["longest_cpu_ms"] = max([step["longest_cpu_ms"], *(shard["longest_turn_cpu_seconds"] * 1000 for shard in status["shards"])])
        return status["delayed"], step

    def look(self, broker):
        """All that is lost with the process: this comes before each end of one."""
        delayed, step = self.glance(broker)
        self.delivered += delayed["delivered_total"]
        self.early += delayed["early_total"]
        long, count, step["above_ms"] = long_turns(broker.metrics())
        step["long"], step["of"] = step["long"] + long, step["of"] + count
        step["waited_s"] += broker.waited_seconds()

    def say_turns(self):
        if self.step not in self.turns:
            return
        step = self.turns[self.step]
        self.say("longest turn of a shard", f"{step['longest_ms']:.1f} ms", "<= 10 ms", step["longest_ms"] <= 10, **step)
        self.say("longest turn of a shard, CPU time", f"{step['longest_cpu_ms']:.1f} ms", "<= 10 ms", step["longest_cpu_ms"] <= 10)
        self.say(f"turns above {step['above_ms']:.1f} ms; all threads waited for a core", f"{step['long']} of {grouped(step['of'])}; {step['waited_s']:.1f} s")

    def write(self):
        with open(self.options.json, "w") as file:
            json.dump({"machine": self.machine, "full_millions": self.options.full, "shards": self.options.shards,
                       "partitions": self.options.partitions, "failed": self.failed,
                       "figures": self.figures}, file, indent=1)


def long_turns(metrics):
    """How many turns took longer than 10 ms or the bucket's bound below that, of how many, and the bound in ms."""
    buckets = [(float(bound), int(count)) for bound, count in re.findall(r'^tarry_broker_turn_seconds_bucket\{le="([^"]+)"\} (\d+)', metrics, re.M)]
    bound, up_to = max(bucket for bucket in buckets if bucket[0] <= 0.0101)
    return buckets[-1][1] - up_to, buckets[-1][1], bound * 1000


def machine():
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return {"cores": os.cpu_count(), "cpu": cpu[1] if cpu else "?", "kernel": os.uname().release, "load": os.getloadavg(),
            "at": time.strftime("%Y-%m-%d %H:%M:%S")}


def check(told):
    """The bench's own verdict; a flow that broke a promise makes its figures worthless."""
    for name, flow in {"delayed": told, "floor": told.get("floor") or {}, "cancels": told.get("cancels") or {}}.items():
        if wrong := {what: flow[what] for what in ("early", "lost", "twice", "refused") if flow.get(what)}:
            raise RuntimeError(f"bench delayed: of its {name} records {wrong}")
    return told


def say_late(run, name, told):
    """A lag is not the broker's alone if a record was accepted after its due time."""
    if late := sum(each["accepted_late"] for each in told):
        run.say(f"  accepted after they were due, so judge no lag ({name})", grouped(late), "0", False)


# --- lag


def lag(run):
    with run.broker() as broker:
        for rate in (20_000, 50_000):
            told = run.scale.repeat(lambda _: check(broker.bench("--rate", rate, "--duration", "5s", "--delay", "2s", "--floor", "6s")))
            held = median([each["accepted_per_s"] for each in told])
            for quantile in ("p50", "p99", "p99.9"):
                lags = [each["lag_ms"][quantile] for each in told]
                floors = [each["floor"]["lag_ms"][quantile] for each in told]
                ratio = median([ours / floor for ours, floor in zip(lags, floors)])
                goal = ("<= 1.2 x the floor", ratio <= 1.2) if quantile != "p99.9" else ()
                run.say(f"lag at {grouped(rate)}/s, {quantile}; the floor; ratio", f"{median(lags):.1f}; {median(floors):.1f} ms; {ratio:.2f}", *goal,
                        lags=lags, floors=floors, accepted_per_s=held)
            say_late(run, f"{grouped(rate)}/s", told)
        run.look(broker)


# --- burst


def due_of(broker, topic, within=10):
    """When the first pending record of the topic is due, as soon as there is one."""
    deadline = time.monotonic() + within
    while not (records := broker.get(f"/delayed?topic={topic}&limit=1")["records"]):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic} has no pending record within {within} s")
        time.sleep(0.05)
    return records[0]["due_ms"]


def say_burst(run, name, told):
    first, every = ([each["burst"][which] for each in told] for which in ("first_ms", "all_ms"))
    again = [each["floor"]["all_ms"] for each in told]
    run.say(f"{name}: first fetchable", f"{median(first):.1f} ms", "<= 5 ms", median(first) <= 5, first_ms=first)
    run.say(f"{name}: all fetchable (read again)", f"{median(every):.0f} ms ({median(again):.0f})", "<= 1000 ms", median(every) <= 1000,
            all_ms=every, again_ms=again)
    say_late(run, name, told)


def burst(run):
    words = ("--burst", run.scale.million, "--delay", "10s")
    with run.broker() as broker:
        say_burst(run, "1 M due in one ms", run.scale.repeat(lambda _: check(broker.bench(*words))))
        told, beside = [], []
        for number in range(run.scale.repeats):
            for topic in (f"burst-{number}", f"other-{number}"):
                broker.cli("topic", "create", topic, "--partitions", "1")
            with subprocess.Popen(broker.bench_words(*words, "--topic", f"burst-{number}"), stdout=subprocess.PIPE, text=True) as bench:
                due = due_of(broker, f"burst-{number}")
                time.sleep(max(0, due / 1000 - 2 - time.time()))
                # The other topic's records are due in the second in which the burst is delivered.
                delay = due - int(time.time() * 1000) - 250
                others = ("--rate", 20_000, "--count", 2_000, "--delay", f"{delay}ms", "--spread", "1s", "--floor", 0)
                beside.append(check(broker.bench("--topic", f"other-{number}", *others)))
                told.append(check(json.loads(bench.communicate()[0])))
        say_burst(run, "with another topic's 2 000", told)
        p50, p99, most = ([each["lag_ms"][which] for each in beside] for which in ("p50", "p99", "max"))
        run.say("the other topic's lag meanwhile, p50 / p99 / max", f"{median(p50):.1f} / {median(p99):.1f} / {median(most):.1f} ms",
                "p99 <= 10 ms", median(p99) <= 10, p50_ms=p50, p99_ms=p99, max_ms=most)
        say_late(run, "the other topic", beside)
        run.look(broker)


# --- full


def filled(broker, count, *words):
    """Records a second and microseconds of the broker's CPU a record, of records that are due within 30 days."""
    began = broker.cpu_seconds()
    told = check(broker.fill("far", count, "2h", "30d", *words))
    return told["accepted_per_s"], (broker.cpu_seconds() - began) / count * 1e6


def accept(run, broker, name, goal, count, *words):
    rates, cpu = zip(*run.scale.repeat(lambda _: filled(broker, count, *words)))
    run.say(f"accepted a second, {name}", grouped(median(rates)), f">= {grouped(goal)}", median(rates) >= goal, rates=rates)
    run.say(f"CPU of the broker, {name}", f"{median(cpu):.2f} us a record", cpu_us=cpu)
    return run.scale.repeats * count


def say_ready(run, name, ready, goal, **values):
    # The goal depends on the size, and a table has runs of several.
    run.say(name, f"{ready:.2f} s", "<= 0.5 s; 1 s above 10 M", ready <= goal, **values)


def restart(run, broker, name, goal, watch_s):
    """kill -9, and what the next process does: until it is ready, until it delivers what was due meanwhile, and afterwards.
    Returns the bytes that the first process wrote to the disk."""
    filled_from = time.monotonic()
    broker.fill("soon", SOON, f"{SOON_DELAY}s", f"{SOON_SPREAD * 1000:.0f}ms")
    with wire.Client(broker.address) as client:
        before = client.end_offset("soon", 0)
    run.look(broker)
    written = broker.written_bytes()
    broker.kill()
    if time.monotonic() > filled_from + SOON_DELAY:
        raise RuntimeError(f"records that are due {SOON_DELAY} s after they are sent may have been delivered before the broker was killed")
    # All of them are overdue then; their delays begin when the bench sends them.
    time.sleep(max(0, filled_from + SOON_DELAY + SOON_SPREAD + 1 - time.monotonic()))
    began = time.monotonic()
    ready = broker.start()
    with wire.Client(broker.address) as client:
        while client.end_offset("soon", 0) == before:
            time.sleep(0.002)
    first = time.monotonic() - began
    replayed = re.findall(r"recovery replayed (\d+) records \((\d+) bytes\)", broker.log())[-1]
    say_ready(run, f"ready after kill -9, {name}", ready, goal, ready_s=ready, replayed_records=int(replayed[0]), replayed_bytes=int(replayed[1]))
    run.say(f"  first delivery, from the start; journal replayed, {name}", f"{first:.2f} s; {int(replayed[1]) / 1e6:.0f} MB", first_s=first)
    if not watch_s:
        return written
    at = broker.cpu_seconds()
    after = []
    for part in (1 / 60, 1 / 6, 1 / 2, 1):
        second = watch_s * part
        time.sleep(max(0, began + first + second - time.monotonic()))
        after.append((second, round(broker.cpu_seconds() - at, 3)))
    run.say(f"  CPU within {watch_s} s afterwards (1, 10, 30 s), {name}",
            f"{after[-1][1]:.2f} s ({listed([cpu for _, cpu in after[:-1]], 2)})", "the same at any size", cpu_s=after, cpu_until_ready_s=at)
    return written


def fill_up(run, broker, pending, until):
    """Adds records until so many are pending; a row for each piece."""
    rows = []
    while pending < until:
        count = min(PIECE * run.scale.million, until - pending)
        rate, cpu = filled(broker, count)
        pending += count
        rows.append({"pending": pending, "per_second": rate, "cpu_us": cpu, "anon_mb": broker.memory_mb("RssAnon")})
        run.glance(broker)
        print(f"        {grouped(pending)} pending, {grouped(rate)}/s, {cpu:.2f} us of CPU each, {rows[-1]['anon_mb']} MiB", flush=True)
    return rows


def say_memory(run, broker, name, anon):
    most = broker.memory_mb("VmHWM")
    run.say(f"memory at most, resident (anonymous), {name}", f"{most} MiB ({anon})", "< 512 MiB", most < 512, resident_mb=most, anon_mb=anon)


def say_disk(run, broker, written, records):
    pending, storage = broker.get("/status")["delayed"]["pending"], broker.get("/status")["storage"]
    every, of_pending = own_broker.disk_bytes(broker.data), own_broker.disk_bytes(broker.data / "db" / "pending")
    levels = [level for level in broker.get("/wheel")["levels"] if level["place"] == "disk"]
    far, plain = sum(level["records"] for level in levels), sum(level["bytes"] for level in levels)
    run.say("disk a pending record, without the journal", f"{of_pending / max(far, 1):.0f} B", "<= 160 B", of_pending / max(far, 1) <= 160,
            pending_bytes=of_pending, data_bytes=every, pending=pending, on_disk=far, level_bytes=plain, storage=storage)
    run.say("  with the journal, and everything else", f"{every / pending:.0f} B")
    run.say("written to the disk a record; times its value of 100 B", f"{written / records:.0f} B; {written / records / RECORD:.1f}", "<= 3 times",
            written / records / RECORD <= 3, written_bytes=written, records=records)


def look_as_owner(run, broker, pending):
    """What somebody sees who asks this broker what is pending."""
    began = time.monotonic()
    wheel = broker.get("/wheel")
    shown = time.monotonic() - began
    began = time.monotonic()
    hours = broker.cli("delayed", "count", "--by", "hour", "--timeout", "60s", "--admin", broker.admin, "--data", str(broker.data)).splitlines()
    counted = time.monotonic() - began
    run.say("answers of /wheel and `tarry delayed count --by hour`", f"{shown * 1000:.0f}; {counted * 1000:.0f} ms ({len(hours)} lines)", levels=wheel["levels"],
            delayed=broker.get("/status")["delayed"], hours=hours[:5])
    there = broker.get("/status")["delayed"]["pending"]
    if there != pending:
        raise RuntimeError(f"{there} records are pending, and {pending} were accepted")


def ready_goal(run):
    """Within so many seconds a broker is ready, by the size of --full."""
    return 0.5 if run.options.full <= 10 else 1


def full(run):
    million = run.scale.million
    until = run.options.full * million
    with run.broker() as broker:
        for topic, partitions in (("far", run.options.partitions), ("soon", 1)):
            broker.cli("topic", "create", topic, "--partitions", str(partitions))
        with own_broker.Sampler(broker) as sampler:
            filled(broker, million)
            pending = million + accept(run, broker, "at 1 M pending", 250_000, million)
        run.say("memory with 4 M pending, anonymous", f"{sampler.memory_max()} MiB", anon_mb=sampler.memory_max())
        restart(run, broker, "4 M pending", 0.5, run.scale.watch_s)
        few, written = pending, broker.written_bytes()
        with own_broker.Sampler(broker) as sampler:
            rows = fill_up(run, broker, pending, until)
            pending = until + accept(run, broker, "filled", 250_000, million)
            pending += accept(run, broker, "filled, with ids", 150_000, million // 2, "--id")
        say_memory(run, broker, "filling", sampler.memory_max())
        run.figures[-1]["rows"] = rows
        goal = ready_goal(run)
        written = restart(run, broker, "just filled", goal, run.scale.watch_s) - written
        # By now a checkpoint has written all records to their chunks.
        say_disk(run, broker, written + broker.written_bytes(), pending - few)
        look_as_owner(run, broker, pending)
        restart(run, broker, "filled, a minute later", goal, 0)
        other_shards(run, broker, pending)


def other_shards(run, broker, pending):
    """The same data with other numbers of shards."""
    for shards in (1, 4):
        run.look(broker)
        broker.kill()
        ready = broker.start(shards)
        waited = broker.waited_seconds()
        with own_broker.Sampler(broker) as sampler:
            rate, cpu = filled(broker, run.scale.million)
        waited = broker.waited_seconds() - waited
        pending += run.scale.million
        there = broker.get("/status")["delayed"]["pending"]
        if there != pending:
            raise RuntimeError(f"with {shards} shards {there} records are pending, and {pending} were accepted")
        name = f"{shards} shard{'s' * (shards > 1)}, all of it pending"
        say_ready(run, f"ready after kill -9, {name}", ready, ready_goal(run), ready_s=ready)
        run.say(f"accepted a second, {name}", grouped(rate), ">= 250 000", rate >= 250_000, per_second=rate)
        # Each rate is that of one run: this tells a slow broker from a busy machine.
        run.say(f"CPU of the broker; its threads waited for a core, {name}", f"{cpu:.2f} us a record; {waited:.1f} s", cpu_us=cpu, waited_s=waited)
        say_memory(run, broker, name, sampler.memory_max())
    run.look(broker)


# --- cancel


def cancelled(broker, topic, *words):
    """The answer of the bench, and the CPU seconds of the broker while it cancelled."""
    broker.cli("topic", "create", topic, "--partitions", "1")
    with own_broker.Sampler(broker) as sampler:
        told = check(broker.bench("--cancel", "--spread", "10m", "--topic", topic, *words))
    took = told["cancels"]["accepted"] / told["cancels"]["accepted_per_s"]
    # The cancels come last, and the broker does nothing afterwards: its CPU time stands still.
    last = sampler.samples[-1][1]
    ended = next(at for at, cpu, _ in sampler.samples if cpu >= last - 0.01)
    return told["cancels"], sampler.cpu_between(ended - took, ended)


def cancel(run):
    with run.broker() as broker:
        told, cpu = zip(*run.scale.repeat(lambda number: cancelled(broker, f"fast-{number}", "--rate", 0, "--count", run.scale.cancels)))
        rates = [each["accepted_per_s"] for each in told]
        each = [seconds / told["accepted"] * 1e6 for told, seconds in zip(told, cpu)]
        run.say("cancels a second, in due order, pipelined", grouped(median(rates)), ">= 100 000", median(rates) >= 100_000, rates=rates)
        run.say("CPU of the broker a cancel", f"{median(each):.1f} us", "<= 20 us", median(each) <= 20, cpu_us=each)
        # Without linger the client itself may be too slow for the higher rate.
        for rate, linger in ((20_000, 0), (100_000, 0), (100_000, 1)):
            words = ("--rate", rate, "--count", rate * 3 if run.scale.repeats > 1 else run.scale.cancels, "-X", f"linger.ms={linger}")
            told = run.scale.repeat(lambda number: cancelled(broker, f"at-{rate}-{linger}-{number}", *words)[0])
            p50, p99 = ([each["accept_ms"][which] for each in told] for which in ("p50", "p99"))
            rates = [each["accepted_per_s"] for each in told]
            name = f"{grouped(rate)}/s, linger {linger}"
            run.say(f"cancels at {name}: acknowledged after, p50 / p99", f"{median(p50):.1f} / {median(p99):.1f} ms",
                    "p99 <= 5 ms", median(p99) <= 5, p50_ms=p50, p99_ms=p99, rates=rates)
            run.say(f"  at {name}: a second", grouped(median(rates)))
        run.look(broker)


# --- drain


def drain(run):
    options = overdue.parser().parse_args(["--binary", run.options.binary, "--records", str(run.scale.million), "--spread", "5", "--within", "60",
                                             "--partitions", str(run.options.partitions)])

    def drained(_):
        with run.broker() as broker:
            told = overdue.measure(broker, options)
            run.look(broker)
            return told

    told = run.scale.repeat(drained)
    rates = [each["per_second"] for each in told]
    run.say("overdue records fetchable a second", grouped(median(rates)), ">= 500 000", median(rates) >= 500_000, rates=rates, told=told)
    for which, what in (("ready_s", "ready"), ("first_s", "first"), ("all_s", "all")):
        run.say(f"  {what}, from the start", f"{median([each[which] for each in told]):.2f} s")
    p50, p99 = ([each["produce_ms"][which] for each in told] for which in ("p50", "p99"))
    run.say("  the producer's acknowledgements meanwhile, p50 / p99", f"{median(p50):.1f} / {median(p99):.1f} ms", p50_ms=p50, p99_ms=p99)
    cpu = [each["cpu_s"] / run.scale.million * 1e6 for each in told]
    run.say("  CPU of the broker since its start", f"{median(cpu):.2f} us a record", cpu_us=cpu)
    run.say("  memory at most, resident", f"{max(each['memory_max_mb'] for each in told)} MiB")


# --- shards


def shards(run):
    for number in (1, 2, 4):
        with run.broker(number) as broker:
            broker.cli("topic", "create", "far", "--partitions", str(number))
            millions = min(run.options.full, 5)
            with own_broker.Sampler(broker) as sampler:
                rate, cpu = filled(broker, millions * run.scale.million)
            name = f"{number} shard{'s' * (number > 1)}, {millions} M pending"
            say_memory(run, broker, name, sampler.memory_max())
            run.say(f"  accepted a second, {number} partition{'s' * (number > 1)}", grouped(rate), per_second=rate, cpu_us=cpu)
            run.look(broker)


# Name: (function, seconds that it may take, seconds for each million of --full).
STEPS = {"lag": (lag, 180, 0), "burst": (burst, 240, 0), "full": (full, 360, 10),
         "cancel": (cancel, 180, 0), "drain": (drain, 240, 0), "shards": (shards, 240, 0)}


def measure(run, name):
    step, limit, per_million = STEPS[name]
    limit += per_million * run.options.full
    run.step = name

    def too_long(*_):
        raise TimeoutError(f"not within {limit} s")

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(limit)
    began = time.monotonic()
    try:
        step(run)
        run.say_turns()
    except Exception as error:  # Whatever it is, the other steps go on.
        run.failed.append({"step": name, "error": f"{type(error).__name__}: {error}"})
        print(f"{name:<7} FAILED after {time.monotonic() - began:.0f} s: {type(error).__name__}: {error}", flush=True)
    finally:
        signal.alarm(0)
    print(f"{name:<7} took {time.monotonic() - began:.0f} s", flush=True)
    run.write()


def at_least_4(word):
    if int(word) < 4:
        raise argparse.ArgumentTypeError("at least 4")
    return int(word)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--only", default=",".join(STEPS), metavar="STEP,...", help="these steps (default: all)")
    parser.add_argument("--full", type=at_least_4, default=10, metavar="MILLIONS", help="pending records of the step `full` (default: 10)")
    parser.add_argument("--shards", type=int, default=None, help="of the brokers (default: the cores)")
    parser.add_argument("--partitions", type=int, default=1, help="of the topics of `full` and `drain` (default: 1)")
    parser.add_argument("--quick", action="store_true", help="everything small, 10 000 records for a million: shows that it works, and its figures mean nothing")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the brokers")
    parser.add_argument("--dir", default=None, help="where their data is (default: the directory for temporary files)")
    parser.add_argument("--json", default=os.path.join(tempfile.gettempdir(), "delay_figures.json"), metavar="FILE", help="(default: %(default)s)")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - set(STEPS):
        parser.error(f"--only: {', '.join(sorted(unknown))}: the steps are {', '.join(STEPS)}")
    # So that a broker of ours does not outlive us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run = Run(options)
    told = run.machine
    print(f"--full {options.full}: {told['cores']} cores of {told['cpu']}, load {listed(told['load'], 2)}, Linux {told['kernel']}, {told['at']}")
    for name in names:
        measure(run, name)
    run.step = "all"
    run.say("early, of all that the brokers delivered", f"{run.early} of {grouped(run.delivered)}", "0", run.early == 0, delivered=run.delivered)
    run.write()
    print(f"all values: {options.json}")
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
