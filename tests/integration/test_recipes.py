"""The programs of docs/recipes.md in all their languages and the README's tour, against the broker; and that the pages show what is run."""

import concurrent.futures
import fcntl
import html
import importlib.machinery
import json
import os
import re
import shutil
import signal
import subprocess
import textwrap
import time
import xml.etree.ElementTree

import node_clients
from harness import ROOT, Skip, case, eventually, now_ms, run

RECIPES = ROOT / "docs/recipes"
BUILT = ROOT / "build/recipes"
# No waiting for more members; the groups of these programs have one.
SETTINGS = {"group.initial.rebalance.delay.ms": 0}

# Program: (partitions of its topics by the ends of their names, its arguments, what it prints in any order,
# (end of the topic's name, key) of the records that are delivered in the end, in any order).
PROGRAMS = {
    "reminders": (
        {"": 3}, ["SECONDS"],
        ["visit-1: your visit is today", "visit-2: your visit was moved to today"],
        [("", "visit-1"), ("", "visit-2")]),
    "cancel_if_unpaid": (
        {"": 3}, ["SECONDS000"],
        ["order-1: not paid in time, cancelled", "order-1: paid too late, to be refunded"],
        2 * [("", "order-1")] + 4 * [("", "order-2")]),
    "recurring_reports": (
        {"": 3}, ["* * * * * *"],
        ["sales: report 1", "sales: report 2", "sales: no more reports"],
        None),  # A third run may come before the cancel.
    "rate_limit": (
        {"": 1, ".paced": 1}, ["10", "300"],
        [f"mail {i}" for i in range(1, 6)] + ["the rate was kept"],
        [(end, f"customer-{i}") for i in range(1, 6) for end in ("", ".paced")]),
    "debounce": (
        {"": 3}, ["SECONDS000"],
        ["page-1: index version 5", "page-2: index version 1"],
        [("", "page-1"), ("", "page-2")]),
    "retry": (
        {"": 3, ".retry": 3, ".dead": 3}, ["100"],
        ["order 1: done at try 1", "order 2: try 1 failed, again later", "order 2: done at try 2",
         "order 3: try 1 failed, again later", "order 3: try 2 failed, again later", "order 3: try 3 failed, put aside",
         "nonsense: try 1 failed, put aside"],
        [("", "order 1"), ("", "order 2"), ("", "order 3"), ("", "nonsense"), (".retry", "order 2"),
         (".retry", "order 3"), (".retry", "order 3"), (".dead", "order 3"), (".dead", "nonsense")]),
}
# After retry, on its topics.
DEAD_LETTERS = ["order 3: put back (tries: 3; the bank does not answer)", "nonsense: put back (tries: 1; not an order)"]
# Murmur2, as in Java's default partitioner: all languages agree on where a key lives.
PARTITIONS = {"order-1": 1, "visit-1": 1, "visit-2": 2, "page-1": 0, "page-2": 0}


# What is to be cancelled or replaced has to be pending when the client has come so far: a JVM that starts
# while the machine is busy takes seconds for its first record.
SECONDS, AT_ONCE = {"java": (5, 30)}, {"java": 3}


def need(*tools):
    for tool in tools:
        if not shutil.which(tool):
            raise Skip(f"no {tool} here")


def once(name, sources, build):
    """Runs build(directory) when `sources` differ from those of the last time."""
    directory = BUILT / name
    directory.mkdir(parents=True, exist_ok=True)
    wanted = "".join(f"{path.relative_to(RECIPES)}\n{path.read_text()}" for path in sorted(sources))
    with open(directory / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        marker = directory / ".built"
        if not marker.exists() or marker.read_text() != wanted:
            build(directory)
            marker.write_text(wanted)
    return directory


def python(program):
    return ["/usr/bin/python3", RECIPES / "python" / f"{program}.py"]


def node(program):
    need("node", "npm")
    node_clients.install()
    # Beside the node_modules of the tests' own clients.
    copies = node_clients.INSTALLED / "recipes"
    copies.mkdir(exist_ok=True)
    shutil.copyfile(RECIPES / "node" / f"{program}.mjs", copies / f"{program}.mjs")
    return ["node", copies / f"{program}.mjs"]


def go(program):
    need("go")
    sources = RECIPES / "go"
    # Go compiles its standard library too when it builds for the first time. Without optimization that takes three quarters of the time.
    directory = once("go", list(sources.rglob("*.go")) + [sources / "go.mod", sources / "go.sum"], lambda directory: run(
        "env", "-C", sources, "go", "build", "-mod=readonly", "-buildvcs=false", "-gcflags=all=-N -l", "-ldflags=-s -w", "-o", f"{directory}/", "./...",
        within=600))
    return [directory / program]


def java(program):
    need("java", "javac", "mvn")
    sources = RECIPES / "java"

    def build(directory):
        shutil.copytree(sources, directory, dirs_exist_ok=True)
        # Without the second compiler Maven takes half of the time.
        run("mvn", "-q", "-B", "-f", directory / "pom.xml", "compile", "dependency:copy-dependencies", "-DincludeScope=runtime", within=300,
            env={"MAVEN_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"})

    directory = once("java", list(sources.rglob("*.java")) + [sources / "pom.xml"], build) / "target"
    name = "".join(word.capitalize() for word in program.split("_"))
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto",
            "-cp", f"{directory}/classes:{directory}/dependency/*", name]


def records(broker, topic):
    """What is in the topic: (partition, key, headers)."""
    said = broker.cli("consume", topic, "--until-end", "--json").stdout
    return [(rec["partition"], rec["key"], {each["name"]: each["value"] for each in rec["headers"]})
            for rec in map(json.loads, said.splitlines())]


def follow(ctx, language):
    command = {program: language(program) for program in [*PROGRAMS, "dead_letters"]}
    # A broker of their own for those that share groups with programs below, or kill it.
    broker, other = ctx.broker(settings=SETTINGS), ctx.broker(settings=SETTINGS)

    def others():
        time_over_while_down(ctx, other, command["cancel_if_unpaid"])
        unusual_records(ctx, other, command)

    def one(program):
        ends, arguments, lines, delivered = PROGRAMS[program]
        # Once more with more time, if the machine was too busy for the first delays.
        for seconds in SECONDS.get(language.__name__, (2, 20)):
            topic = ctx.topic(program)
            for end, partitions in ends.items():
                broker.cli("topic", "create", topic + end, "--partitions", partitions)
            words = [each.replace("SECONDS", str(seconds)) for each in arguments]
            done = run(*command[program], broker.brokers, topic, *words, within=240)
            if sorted(done.stdout.splitlines()) == sorted(lines) or words == arguments:
                break
        assert sorted(done.stdout.splitlines()) == sorted(lines), f"{program}: {done.stdout}{done.stderr}"
        found = [(end, partition, key) for end in ends for partition, key, _ in records(broker, topic + end)]
        if delivered is not None:
            assert sorted((end, key) for end, _, key in found) == sorted(delivered), (program, found)
        for _, partition, key in found:
            assert partition == PARTITIONS.get(key, partition), (program, key, partition)
        if program == "retry":
            done = run(*command["dead_letters"], broker.brokers, topic, 2, 50, within=240)
            assert sorted(done.stdout.splitlines()) == sorted(DEAD_LETTERS), done.stdout + done.stderr
            run("sleep", "0.2")
            back = [(key, headers) for _, key, headers in records(broker, topic + ".retry") if "retry-tries" not in headers]
            assert sorted(key for key, _ in back) == ["nonsense", "order 3"], back
            assert all(headers["x-schedule-id"] == headers["retry-origin"] for _, headers in back), back

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE.get(language.__name__, len(PROGRAMS) + 1)) as pool:
        for each in [pool.submit(others), *(pool.submit(one, program) for program in PROGRAMS)]:
            each.result()
    assert broker.get("/status")["delayed"]["pending"] == 0, broker.get("/delayed")


def unusual_records(ctx, broker, command):
    """Headers of others with names like ours, headers and values that are missing or no text: nothing is lost and nothing stops."""
    import confluent_kafka
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.brokers, "log_level": 2})
    topic = ctx.topic("unusual")
    for end in ("", ".retry", ".dead"):
        broker.cli("topic", "create", topic + end)
    # Debian's client for Python ends with a fault of its own after it has read a header without a value.
    nothing = b"" if command["retry"][0] == "/usr/bin/python3" else None
    theirs = [("origin", b"warehouse"), ("tries", b"many"), ("error", nothing), ("retry-origin", b"x"), ("retry-tries", b"2"),
              ("X-Schedule-Id", b"theirs"), ("X-Schedule-Note", b"theirs")]
    # A record without a value is hopeless too.
    for end, key, value, headers in (("", "first", "nonsense", theirs), (".retry", "second", None, [("retry-tries", b"-9")])):
        producer.produce(topic + end, key=key, value=value, headers=headers)
    producer.flush()
    run(*command["retry"], broker.brokers, topic, 100, within=60)
    dead = {key: headers for _, key, headers in records(broker, topic + ".dead")}
    for key, origin in (("first", f"{topic}/0/0"), ("second", f"{topic}.retry/0/0")):
        assert (dead[key]["retry-origin"], dead[key]["retry-tries"]) == (origin, "1"), dead
    assert (dead["first"]["origin"], dead["first"]["tries"]) == ("warehouse", "many") and not dead["first"]["error"], dead

    assert not [name for name in dead["first"] if name.lower().startswith("x-schedule")], dead
    # The broker reads names in any case: an id of theirs beside ours would be refused, and would stop what is behind it.
    topic = ctx.topic("copied")
    for end in ("", ".retry", ".dead"):
        broker.cli("topic", "create", topic + end)
    broker.cli("topic", "alter", topic, "--config", "tarry.delay.enable=false")
    for key, value in (("third", "nonsense"), ("fourth", "order 2")):  # One for the dead letters, one for the retry topic.
        producer.produce(topic, key=key, value=value, headers=[("X-SCHEDULE-ID", b"theirs"), ("X-Deliver-At", b"9999999999999"), ("x-count", b"3")])
    producer.flush()
    run(*command["retry"], broker.brokers, topic, 100, within=60)
    dead = {key: headers for _, key, headers in records(broker, topic + ".dead")}
    assert set(dead["third"]) == {"retry-origin", "retry-tries", "retry-error"}, dead
    # Too large for the topics that it is sent to: one for the retry topic, one for the dead letters.
    topic = ctx.topic("large")
    broker.cli("topic", "create", topic)
    for end in (".retry", ".dead"):
        broker.cli("topic", "create", topic + end, "--config", "max.message.bytes=1000")
    for key, value in (("fifth", "order 2"), ("sixth", "nonsense")):
        producer.produce(topic, key=key, value=value, headers=[("note", os.urandom(2000).hex())])  # Clients compress.
    producer.flush()
    run(*command["retry"], broker.brokers, topic, 100, within=60)
    dead = {key: headers for _, key, headers in records(broker, topic + ".dead")}
    for offset, (key, value, why) in enumerate((("fifth", "order 2", "the bank does not answer"), ("sixth", "nonsense", "not an order"))):
        assert dead[key] == {"retry-origin": f"{topic}/0/{offset}", "retry-tries": "1", "retry-cut": value,
                             "retry-error": f"too large to be sent on: {why}"}, dead
    said = [json.loads(line) for line in broker.cli("consume", topic + ".dead", "--until-end", "--json").stdout.splitlines()]
    assert [each["value"] for each in said if each["key"] in ("fifth", "sixth")] == [None, None], said

    # What the topics take is not too large, though the clients' own limits would be lower (1 000 000 bytes in Python and Go).
    topic = ctx.topic("wide")
    for end in ("", ".retry", ".dead"):
        broker.cli("topic", "create", topic + end)
    large = confluent_kafka.Producer({"bootstrap.servers": broker.brokers, "message.max.bytes": 2_000_000, "log_level": 2})
    for end, key, value in (("", "seventh", "order 2"), (".dead", "eighth", "nonsense")):
        large.produce(topic + end, key=key, value=value, headers=[("note", os.urandom(520_000).hex())])
    large.flush()
    run(*command["retry"], broker.brokers, topic, 100, within=60)
    run(*command["dead_letters"], broker.brokers, topic, 1, 0, within=60)
    eventually(lambda: {"seventh", "eighth"} <= {key for _, key, _ in records(broker, topic + ".retry")}, "both are sent on")

    # Dead letters that another program put there.
    topic = ctx.topic("foreign")
    for end in (".retry", ".dead"):
        broker.cli("topic", "create", topic + end)
    producer.produce(topic + ".dead", key="no value")
    producer.produce(topic + ".dead", key="no text", value=b"\xff\x00", headers=[("empty", nothing), ("X-Scheduled-For", b"1"), ("X-Schedule-ID", b"theirs")])
    producer.flush()
    run(*command["dead_letters"], broker.brokers, topic, 2, 0, within=60)
    eventually(lambda: len(records(broker, topic + ".retry")) == 2, "both are back")
    said = [json.loads(line) for line in broker.cli("consume", topic + ".retry", "--until-end", "--json").stdout.splitlines()]
    assert {each["key"]: each["value"] for each in said} == {"no value": None, "no text": "/wA="}, said


def start_service(broker, command, topic, file):
    with open(f"{file}.out", "a") as out, open(f"{file}.err", "a") as err:
        # A shell that runs the tests in the background has them ignore Ctrl-C, and a JVM keeps to that.
        return subprocess.Popen([str(word) for word in ("env", "--default-signal=INT", *command, broker.brokers, topic, 600_000, file)],
                                stdout=out, stderr=err)


def stop_service(broker, command, program, file, by=signal.SIGTERM):
    """The program leaves its group, whose next member need not wait for a timeout."""
    program.send_signal(by)
    # A JVM that a signal has ended says so, also after its hooks.
    assert program.wait(40) == (128 + by if command[0] == "java" else 0), (program.returncode, open(f"{file}.err").read())
    assert broker.get("/groups/order-timeouts")["state"] == "Empty", broker.get("/groups/order-timeouts")


def time_over_while_down(ctx, broker, command):
    """Orders that were paid in time are kept and the others cancelled once, although service and broker were down when the time was over."""
    import confluent_kafka
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.brokers, "partitioner": "murmur2_random", "log_level": 2})

    def shop(event, *orders):
        for order in orders:
            producer.produce(topic, key=order, value=event)
        assert producer.flush(20) == 0

    topic, file = ctx.topic(), ctx.directory / "orders"
    broker.cli("topic", "create", topic, "--partitions", 3)
    said = lambda: open(f"{file}.out").read().splitlines()
    paid, unpaid = [f"paid-{i}" for i in range(6)], [f"unpaid-{i}" for i in range(5)] + ["@home"]
    # Orders that cannot be ids, and events of others, stop nothing.
    shop("placed", "x" * 300, "", b"M\xfcller", b"M\xf6ller", *paid, *unpaid, paid[0])
    shop("shipped", paid[0])
    producer.produce(topic, key=paid[0])
    program = start_service(broker, command, topic, file)
    try:
        eventually(lambda: len(broker.pending(topic)) == 12, "it has placed all orders", within=60)
        shop("paid", paid[0])  # Cancelled while all is well.
        eventually(lambda: len(broker.pending(topic)) == 11, "it has cancelled one", within=60)
        stop_service(broker, command, program, file)
        put_aside = [re.sub(r"\d+", "N", line) for line in said()]
        assert put_aside == ["an order of N bytes, put aside"] * 4, said()

        shop("paid", *paid)  # The first one again.
        over = int(now_ms()) + 1000
        assert "11" in broker.cli("delayed", "move", topic, "--id", "order/*", "--at", over).stdout
        broker.kill()
        time.sleep(max(0, over + 100 - now_ms()) / 1000)
        broker.start()
        program = start_service(broker, command, topic, file)
        eventually(lambda: len(said()) == 15, "it has handled all timeouts", within=60)
        shop("paid", unpaid[0])
        eventually(lambda: len(said()) == 16, "it has seen the late payment", within=60)
        stop_service(broker, command, program, file, by=signal.SIGINT)  # Ctrl-C.
    finally:
        program.kill()
        program.wait()
    assert sorted(said()[4:]) == sorted([f"{order}: paid, nothing to do" for order in paid[1:]] + [f"{unpaid[0]}: paid too late, to be refunded"]
                                        + [f"{order}: not paid in time, cancelled" for order in unpaid]), said()


@case("the recipe in Node ends at SIGTERM also while its group is joining")
def _(ctx):
    command = node("cancel_if_unpaid")
    broker, topic = ctx.broker(settings={"group.initial.rebalance.delay.ms": 5000}), ctx.topic()
    broker.cli("topic", "create", topic)
    program = subprocess.Popen([str(word) for word in (*command, broker.brokers, topic, 600_000)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        eventually(lambda: any(each["group"] == "order-timeouts" and each["state"] == "PreparingRebalance" for each in broker.get("/groups")["groups"]),
                   "it joins", within=60)
        program.terminate()
        said = program.communicate(timeout=20)
    finally:
        program.kill()
        program.wait()
    assert program.returncode == 0 and said[0] == b"", (program.returncode, said)


def ends_without_a_broker(ctx, language):
    import confluent_kafka
    command, broker, topic, file = language("cancel_if_unpaid"), ctx.broker(settings=SETTINGS), ctx.topic(), ctx.directory / "orders"
    broker.cli("topic", "create", topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.brokers, "log_level": 2})
    for i in range(3000):
        producer.produce(topic, key=str(i), value="placed")
    assert producer.flush(20) == 0
    program = start_service(broker, command, topic, file)
    try:
        eventually(lambda: len(broker.pending(topic)) >= 5, "it works", within=60)
        broker.kill()
        # By then it waits for a record or a commit that nobody acknowledges. Between two records it may end as if nothing was wrong.
        time.sleep(1)
        program.terminate()
        assert program.wait(40) != 0, open(f"{file}.err").read()
    finally:
        program.kill()
        program.wait()


# Without a limit, commits in Python and sends in Go wait for ever.
for language in (python, go):
    case(f"the recipe in {language.__name__.capitalize()} that cannot send its record ends, also after SIGTERM, when the broker is gone")(
        lambda ctx, language=language: ends_without_a_broker(ctx, language))


for language in (python, node, go, java):
    case(f"every recipe in {language.__name__.capitalize()} does what docs/recipes.md says")(
        lambda ctx, language=language: follow(ctx, language))


@case("a record with a wrong header is a dead letter, and the commands of docs/recipes.md show it and send it back")
def _(ctx):
    broker = ctx.broker(settings=SETTINGS)
    section = (ROOT / "docs/recipes.md").read_text().split("\n## A wrong header\n")[1].split("\n## ")[0]
    programs = ctx.directory / "bin"
    programs.mkdir()
    (programs / "tarry").symlink_to(broker.binary)
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "TARRY_BROKERS": broker.brokers, "TARRY_ADMIN": "%s:%d" % broker.admin}
    shown, repaired = [run("bash", "-ec", textwrap.dedent(block), env=env).stdout.splitlines()
                       for block in re.findall(r"(?:^    .*\n)+", section, re.M)]
    assert shown[:2] == ["bookings created", "bookings altered"], shown
    assert shown[2].startswith('1 record accepted, as a dead letter to bookings.invalid: x-delay: "soon" is not a duration'), shown
    assert shown[3].startswith('4711: confirm the booking (x-delay=soon,x-error=x-delay: "soon" is not a duration; '), shown
    assert repaired[0] == "1 record accepted, to be delivered later", repaired
    pending = broker.pending("bookings")
    assert [(each["key"], each["value_bytes"]) for each in pending] == [("4711", len("confirm the booking"))], pending
    assert 0 < pending[0]["due_ms"] - now_ms() <= 600_000, pending
    assert broker.get("/topics/bookings")["dead_letters"]["total"] == 1


# Runs a recipe that ends when it is about to commit a record with this value. It leaves its group, because the group would
# otherwise wait for it for 45 seconds.
CRASH = """
import confluent_kafka, runpy, sys
class Crashing(confluent_kafka.Consumer):
    def commit(self, record, **how):
        if record.value() == b"order 2":
            self.close()
            raise SystemExit("crashed")
        return super().commit(record, **how)
confluent_kafka.Consumer = Crashing
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0])
"""


@case("a retry that crashes between produce and commit is pending once, however often that happens")
def _(ctx):
    broker, topic = ctx.broker(settings=SETTINGS), ctx.topic()
    for end in ("", ".retry", ".dead"):
        broker.cli("topic", "create", topic + end)
    for _ in range(3):
        done = run("/usr/bin/python3", "-c", CRASH, python("retry")[1], broker.brokers, topic, 600_000, check=False)
        assert done.returncode == 1 and "crashed" in done.stderr and "order 2: try 1 failed, again later" in done.stdout, done
    assert [each["id"] for each in broker.pending(f"{topic}.retry")] == [f"{topic}/0/1"], broker.pending(f"{topic}.retry")
    told = json.loads(broker.cli("delayed", "trace", f"{topic}.retry", f"{topic}/0/1", "--json").stdout.splitlines()[0])
    assert [each["event"] for each in told["events"]].count("replaced") == 2, told


def half_of_a_character(ctx, language):
    broker, topic = ctx.broker(settings=SETTINGS), ctx.topic()
    for end in ("", ".retry", ".dead"):
        broker.cli("topic", "create", topic + end)
    *before, program = language("retry")
    text = program.read_text()
    changed = re.sub(r"""(ValueError|Hopeless)\((['"])not an order['"]\)""", r"\1(\2half \\ud83d, not an order\2)", text)
    assert changed != text and "half \\ud83d" in changed, changed
    # Beside the program, whose modules it needs.
    other = program.with_name(f"half_{program.name}") if language is node else ctx.directory / program.name
    other.write_text(changed)
    try:
        run(*before, other, broker.brokers, topic, 100, within=60)
    finally:
        other.unlink()
    dead = {key: headers for _, key, headers in records(broker, topic + ".dead")}
    assert dead["nonsense"]["retry-error"] in ("half ?, not an order", "half \ufffd, not an order"), dead


for language in (python, node):
    case(f"the retry recipe in {language.__name__.capitalize()} sends a reason with half of a character as text, and goes on")(
        lambda ctx, language=language: half_of_a_character(ctx, language))


@case("docs/recipes.md links every program, shows only lines that a program has, and gives their own commands")
def _(ctx):
    page = (ROOT / "docs/recipes.md").read_text()
    programs = [path for path in RECIPES.rglob("*") if path.suffix in (".py", ".mjs", ".go", ".java")
                and "node_modules" not in path.parts]
    assert len(programs) == 4 * (len(PROGRAMS) + 1), programs
    texts = {path.suffix[1:]: "" for path in programs}
    for path in programs:
        assert f"(recipes/{path.relative_to(RECIPES)})" in page, f"docs/recipes.md has no link to {path.name}"
        texts[path.suffix[1:]] += path.read_text()
    for kind, block in re.findall(r"^```(\w+)\n(.*?)^```", page, re.M | re.S):
        ending = {"python": "py", "js": "mjs"}.get(kind, kind)
        flat = re.sub(r"^ +", "", texts[ending], flags=re.M)
        shown = re.sub(r"^ +", "", textwrap.dedent(block), flags=re.M)
        for piece in shown.split("...\n"):
            assert piece in flat, f"no program has this:\n{piece}"
    assert os.path.exists(ROOT / "docs/recipes/go/go.sum")
    created = lambda text: {name for names in re.findall(r"for \w+ in ([^;]+);|topic create (\w\S*)", text) for name in " ".join(names).split()}
    readme = (ROOT / "README.md").read_text()
    assert {"shop", "orders.retry"} <= created(readme) and {"checkout", "mails"} <= created(page), (created(readme), created(page))
    assert not created(readme) & created(page), f"after the tour these exist already: {created(readme) & created(page)}"
    # Each command starts at the root, also after the one above it.
    assert re.findall(r"^    \(cd docs/recipes/(\w+) && ", page, re.M) == ["python", "node", "go", "java"] and "    cd docs" not in page


def record_tour():
    return importlib.machinery.SourceFileLoader("record_tour", str(ROOT / "scripts/record_tour")).load_module()


@case("README's tour delivers each record when it is due, never delivers the cancelled one, and its recording shows its commands")
def _(ctx):
    tour = record_tour()
    events = tour.play(ctx.options.binary)
    typed = {text[2:]: seconds for seconds, _, text in events if text.startswith("$ ")}
    came = [(text, seconds) for seconds, pane, text in events if pane == "consumer" and not text.startswith(("$ ", "tarry: "))]
    assert [text for text, _ in came] == ["hello: at once", "hello: three seconds later", "order-1: not paid in time",
                                          *3 * ["tick: every second"]], events
    for delay, value in ((3, "three seconds later"), (5, "--id order-1"), (1, "every second")):
        sent = next(seconds for command, seconds in typed.items() if value in command)
        due = next(seconds for text, seconds in came if value.removeprefix("--id ") in text)
        assert delay <= due - sent < delay + 3, (value, sent, due)
    listed = [text for _, pane, text in events if pane == "sender" and text.startswith("shop ") and "order" in text]
    assert len(listed) == 1 and "order-1" in listed[0], listed
    assert [text for _, _, text in events if "try" in text and text.startswith("order 3")] == [
        "order 3: try 1 failed, again later", "order 3: try 2 failed, again later", "order 3: try 3 failed, put aside"], events
    xml.etree.ElementTree.fromstring(tour.draw(events))
    recording = (ROOT / "docs/tour.svg").read_text()
    for command in typed:
        assert html.escape(f"$ {command}") in recording, f"scripts/record_tour has to record it again: {command}"


# Commands of README outside of its tour, and what checks them.
CHECKED = {
    "scripts/build": "the case below",
    "apt-get install python3-confluent-kafka": "scripts/install_deps --tests",
    "export PATH=$PWD/build/release:$PATH": "record_tour, which has the binary in its path",
    "tarry serve": "record_tour, at other ports",
    "scripts/package && apt-get install ./build/package/tarry_*.deb": "test_package.py",
}


@case("each command of README is played in its tour or checked elsewhere, and the first one says how long the build takes, and fails with it")
def _(ctx):
    tour = record_tour()
    readme = (ROOT / "README.md").read_text()
    building, *played = tour.blocks(readme)
    played = {command for block in played for command in block}
    shown = {re.sub(r"\s+# .*", "", line.strip()) for line in re.findall(r"^    (?=\S).*", re.sub(r"^```.*?^```", "", readme, flags=re.M | re.S), re.M)}
    assert shown - played == set(CHECKED), (shown - played) ^ set(CHECKED)
    assert building[0] == "scripts/build" and building[-1] == "tarry serve", building
    # The packages of the tour's program are those that the tests install.
    assert "python3-confluent-kafka" in (ROOT / "scripts/install_deps").read_text()
    scripts, programs = ctx.directory / "scripts", ctx.directory / "programs"
    scripts.mkdir()
    programs.mkdir()
    for name in ("build", "common.sh"):
        shutil.copy(ROOT / "scripts" / name, scripts)
    stubs = {scripts / "install_deps": "echo installed", programs / "cmake": "mkdir -p build/release && touch build/release/build.ninja",
             programs / "ninja": "for n in $(seq 20); do echo \"[$n/20 $n.5] thing\"; done; exit ${STATUS:-0}"}
    for path, text in stubs.items():
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
    env = {"PATH": f"{programs}:{os.environ['PATH']}"}
    done = run(scripts / "build", env=env).stdout
    assert "installed" in done and "release: 2 of 20, about 23 s left" in done and "release: 20 of 20\n" in done and "done: build/release/tarry" in done, done
    failed = run(scripts / "build", env={**env, "STATUS": "1"}, check=False)
    assert failed.returncode == 1 and "done:" not in failed.stdout, failed
    assert run(scripts / "build", "release", env=env, check=False).returncode == 2


@case("the picture of tarry top has due records, topics and groups with lag, and each line that names figures is worded as the program words it")
def _(ctx):
    tour = record_tour()
    screen = tour.watch_top(ctx.options.binary)
    lines = ["".join(text for _, text in line) for line in screen]
    assert len(lines) <= tour.TOP_ROWS and all(len(line) <= tour.COLUMNS for line in lines), lines
    assert any("order-4711" in line for line in lines) and any(line.startswith("orders ") for line in lines), lines
    assert re.search(r"^billing +\d[\d ]* +Empty", "\n".join(lines), re.M) and re.search(r"^mailer +\d+ +Stable +1$", "\n".join(lines), re.M), lines
    assert any((33, "billing") == (style, text.split()[0]) for line in screen for style, text in line if text.strip()), screen
    words = lambda texts: {word for text in texts for word in re.findall(r"[A-Za-z]{3,}", text)}
    drawn = xml.etree.ElementTree.parse(ROOT / "docs/top.svg").getroot()
    shown = ["".join(each.itertext()) for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    heads = [line for line in lines if line.isupper() or line.startswith(("pending ", "lag of ", "memory ", lines[2][:5]))]
    # On a machine that is held up something is overdue for a moment, and the head says for how long.
    missing = words(heads) - words(shown) - {"for"}
    assert not missing, f"scripts/record_tour --top has to draw it again: {missing}"
    xml.etree.ElementTree.fromstring(tour.draw_top(screen))


@case("each claim about another broker in the tables of docs/comparison.md has a source, in its cell or on a name of its row")
def _(ctx):
    page = (ROOT / "docs/comparison.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for title in ("What each can do", "If you have Kafka already")
            for line in page.split(f"\n## {title}\n")[1].split("\n## ")[0].splitlines() if line.startswith("| ")]
    others = [row for row in rows if row[0] and not row[0].startswith("**Tarry**")]
    assert len(others) >= 12, rows
    without = [(row[0], cell) for row in others for cell in row[1:]
               if "](https://" not in row[0] + cell and not re.fullmatch("no|none found|not proposed", cell)]
    assert not without, without


@case("scripts/docs builds the documentation as a site without a warning, and each of its links has a target")
def _(ctx):
    for picture in sorted((ROOT / "docs").glob("*.svg")):
        xml.etree.ElementTree.parse(picture)
        assert not re.search(r"(?:href|src)=.http|@import", picture.read_text()), f"{picture.name} loads something"
    for name in ("timeline", "keys", "tour", "top"):
        assert "prefers-color-scheme: dark" in (ROOT / f"docs/{name}.svg").read_text(), name
    need("mkdocs")
    said = run(ROOT / "scripts/docs").stdout
    assert "every link has a target" in said, said
    page = (ROOT / "build/site/recipes.html").read_text()
    assert "recipes/python/retry.py" in page and "index.html#the-headers" in page
