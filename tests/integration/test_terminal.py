"""What people meet at a terminal: help, completion, man pages, local times, the live view, the checks."""

import fcntl
import http.server
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import threading
import time

from certificates import Authority
from harness import Skip, case, eventually, now_ms, run
from test_cli import json_lines, one_line

# Of bash, zsh and fish: how to ask for what can follow a line, and where the answer is.
BASH = """source "$1"; compopt() { :; }
COMP_LINE=$2 COMP_POINT=${#2}; COMP_WORDS=("$3"); _tarry; printf '%s\\n' "${COMPREPLY[@]}" """
ZSH = """compdef() { :; }; _files() { print files }; compadd() { print -l -- "${@[(i)--]:+${(@)@[$(( ${@[(i)--]} + 1 )),-1]}}" }
source "$1"; words=("${(@z)2}"); words[1]=$3; [[ $2 == *' ' ]] && words+=(''); CURRENT=$#words PREFIX=$words[-1]; _tarry"""
FISH = """set -gx PATH $argv[3] $PATH; source $argv[1]; complete -C "$argv[2]" """


class Terminal:
    """A program at a pseudo terminal of this size."""

    def __init__(self, command, columns=80, rows=24, env=None):
        self.seen = b""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm", **(env or {})})
            os.execv(str(command[0]), [str(word) for word in command])
        self.resize(columns, rows)
        self.status = None

    def resize(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys):
        os.write(self.master, keys.encode())

    def read(self):
        while select.select([self.master], [], [], 0)[0]:
            try:
                more = os.read(self.master, 65536)
            except OSError:  # It has ended.
                return self.text()
            if not more:
                break
            self.seen += more
        return self.text()

    def text(self):
        return self.seen.decode(errors="replace")

    def ended(self):
        self.read()
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.read()
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def shows(self, word, within=10):
        eventually(lambda: word in self.read() or self.ended() and word in self.text(), f"the terminal shows {word!r}: {self.text()[-800:]!r}", within)

    def close(self):
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.master)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def environment(broker, **more):
    return {"TARRY_BROKERS": broker.brokers, "TARRY_ADMIN": "%s:%d" % broker.admin, "TARRY_ADMIN_TOKEN": "", **more}


def at_terminal(broker, *words, columns=80, env=None):
    """What a command prints at a terminal, line by line."""
    with Terminal([broker.binary, *words], columns, 24, environment(broker, **(env or {}))) as terminal:
        eventually(terminal.ended, "it ends")
        return terminal.text().replace("\r\n", "\n").splitlines()


def lines_of(binary, *words):
    return run(binary, *words).stdout.splitlines()


@case("tarry help is the help of each command, which has two examples, and tarry man has a page for it that man reads")
def _(ctx):
    binary = ctx.options.binary
    assert lines_of(binary, "version") == lines_of(binary, "--version")
    assert lines_of(binary, "help") == lines_of(binary, "--help")
    commands = re.findall(r"^  ([\w-]+)  +\S", run(binary, "--help").stdout.split("Subcommands:")[1], re.M)
    assert {"serve", "topic", "top", "doctor", "config", "help", "version"} <= set(commands) and "man" not in commands, commands
    assert set(lines_of(binary, "man", "--list")) == set(commands) - {"help", "version"}
    for command in commands:
        shown = lines_of(binary, "help", command)
        assert shown == lines_of(binary, command, "--help")
        examples = shown[shown.index("Examples:") + 1:]
        assert sum("tarry" in line for line in examples) >= 2, shown
    one_line(run(binary, "help", "topic", "frobnicate", check=False), 2, "frobnicate")
    reader = shutil.which("groff")
    for command in [[]] + [[each] for each in lines_of(binary, "man", "--list")]:
        page = run(binary, "man", *command).stdout
        assert page.startswith(".TH TARRY") and "\n.SH EXAMPLES\n" in page, command
        if reader:
            formatted = run(reader, "-man", "-ww", "-Tutf8", stdin=page)
            assert formatted.stderr == "" and len(formatted.stdout.splitlines()) > 20, (command, formatted.stderr)


def completes(ctx, shell, *command, program_is_path=False):
    """Commands and flags, names from the broker, and none without one."""
    if not shutil.which(shell):
        raise Skip(f"{shell} is not installed")
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    broker.cli("produce", topic, "-v", "x", "--delay", "1h", "--id", "order:4711 x")
    broker.cli("produce", topic, "-v", "x", "--delay", "1h")
    broker.cli("produce", topic, "-v", "x")
    broker.cli("consume", topic, "-g", "billing:eu", "-n", "1")
    broker.cli("consume", topic, "-g", "audit", "-n", "1")
    handle = next(record["handle"] for record in broker.pending(topic) if not record["id"])
    programs = ctx.directory / "bin"
    programs.mkdir()
    (programs / "tarry").symlink_to(broker.binary)
    script = ctx.directory / f"tarry.{shell}"
    script.write_text(run(broker.binary, "completion", shell).stdout)

    def completed(line, **env):
        done = run(*command, script, line, programs / "tarry" if program_is_path else programs, env=environment(broker, HOME=str(ctx.directory), **env))
        assert done.stderr == "", (line, done.stderr)
        return [answer.split("\t")[0].replace("\\", "") for answer in done.stdout.splitlines()]

    def are(line, *wanted):
        found = completed(line)
        # bash replaces only what follows a colon or an at-sign that was typed.
        kept = len(re.match(r".*[:@]|", line.split()[-1])[0]) if shell == "bash" else 0
        assert found == [each[kept:] for each in wanted], (line, found)

    are("tarry pro", "produce")
    are("tarry topic create x --part", "--partitions")
    are(f"tarry consume {topic[:9]}", topic)
    are(f"tarry consume {topic} -g bill", "billing:eu")
    are("tarry group describe bill", "billing:eu")
    assert sorted(completed("tarry group describe ")) == ["audit", "billing:eu"], completed("tarry group describe ")
    are(f"tarry delayed get {topic} order:4", "order:4711 x")
    are(f"tarry delayed get {topic} {handle[:-1]}", handle)
    began = time.monotonic()
    assert completed("tarry consume ", TARRY_BROKERS="127.0.0.1:1") in ([], [""])
    assert time.monotonic() - began < 5


@case("bash completes commands and flags, and names of topics, groups and ids from the broker; without a broker it is silent")
def _(ctx):
    completes(ctx, "bash", "bash", "-c", BASH, "bash", program_is_path=True)


@case("zsh completes commands and flags, and names of topics, groups and ids from the broker; without a broker it is silent")
def _(ctx):
    completes(ctx, "zsh", "zsh", "-fc", ZSH, "zsh", program_is_path=True)


@case("fish completes commands and flags, and names of topics, groups and ids from the broker; without a broker it is silent")
def _(ctx):
    completes(ctx, "fish", "fish", "--no-config", "-c", FISH)


@case("at a terminal times are local and lines fit, in a pipe they are UTC and whole, and NO_COLOR has no colours")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic("a-topic-with-a-long-name")
    broker.cli("topic", "create", topic)
    due = int(now_ms()) // 1000 * 1000 + 3 * 86_400_000
    broker.cli("produce", topic, "-v", "x", "--at", str(due), "--id", "i" * 60, "-k", "k" * 40)
    zone = {"TZ": "UTC-03:30"}  # POSIX's sign: east of Greenwich.
    local = time.strftime("%Y-%m-%dT%H:%M:%S+03:30", time.gmtime(due / 1000 + 3.5 * 3600))
    for columns in (60, 80, 120, 250):
        lines = at_terminal(broker, "delayed", "list", topic, columns=columns, env={**zone, "NO_COLOR": "1"})
        assert len(lines) == 2 and all(len(line) <= columns for line in lines), (columns, lines)
        assert local in lines[1] and "in 2d23h" in lines[1] and "\x1b" not in "".join(lines), lines
    assert lines[1].count("i" * 60) == 1 and "…" not in lines[1], "there was room for all of it"
    assert "\x1b[1m" in at_terminal(broker, "delayed", "list", topic, env=zone)[0]
    piped = broker.cli("delayed", "list", topic, env=zone).stdout.split("\t")
    assert piped[2] == time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(due / 1000)) and piped[4] == "i" * 60, piped
    wordy = ctx.topic("words")
    broker.cli("topic", "create", wordy)
    broker.cli("produce", wordy, "-v", "word " * 60 + "end", "--delay", "1h", "--id", "long", "-H", "h=" + "x" * 100)
    for words in (["doctor"], ["status"], ["delayed", "get", wordy, "long"]):
        lines = at_terminal(broker, *words, columns=80, env={**zone, "NO_COLOR": "1"})
        assert all(len(line) <= 80 for line in lines) and "…" not in "".join(lines), (words, lines)
    assert len(re.findall(r"\bword\b", " ".join(lines))) == 60 and lines[-1].endswith(" end"), "the value goes on below itself"
    shown = "\n".join(at_terminal(broker, "delayed", "get", topic, "i" * 60, columns=200, env={**zone, "NO_COLOR": "1"}))
    assert re.search(rf"^due +{re.escape(local.replace('+', '.000+'))}, in 2d23h$", shown, re.M), shown
    assert "in in" not in re.sub(" +", " ", shown), shown
    explained = "\n".join(at_terminal(broker, "explain", f"x-deliver-at={due}", f"x-expire-at={due + 1000}", columns=200, env={**zone, "NO_COLOR": "1"}))
    with_ms = re.escape(local.replace("+", ".000+"))
    assert re.search(rf"^due +{with_ms} \(UTC\)$", explained, re.M) and "local time" not in explained, explained
    assert "Z" not in re.search("^expires .*$", explained, re.M)[0], explained
    by_day = at_terminal(broker, "delayed", "count", topic, "--by", "day", columns=200, env={**zone, "NO_COLOR": "1"})
    assert "T03:30:00.000+03:30" in by_day[-1], by_day
    for words in (["--from", "now", "--to", "in 4d"], ["--from", "+2d"], ["--from", "-10m"], ["--from", "10m ago"]):
        assert len(json_lines(broker.cli("delayed", "list", topic, *words, "--json"))) == 1, words
    assert broker.cli("delayed", "list", topic, "--to", "in 1h").stdout == ""
    told = json_lines(broker.cli("produce", topic, "-v", "y", "--delay", "1h", "--id", "named", "--json"))[0]
    assert told["id"] == "named" and abs(told["due_ms"] - now_ms() - 3_600_000) < 10_000, told


@case("an id that is pending in several partitions is shown with a note about the others, and a delivered one as delivered")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    broker.cli("topic", "alter", topic, "--partitions", "3", "--config", "retention.ms=2d")
    described = json_lines(broker.cli("topic", "describe", topic, "--json"))[0]
    assert len(described["partitions"]) == 3 and described["configs"]["retention.ms"]["value"] == "172800000"
    one_line(broker.cli("topic", "alter", topic, "--partitions", "2", check=False), 1, topic, "INVALID_PARTITIONS")
    for partition, delay in ((0, "2h"), (2, "1h")):
        broker.cli("produce", topic, "-p", str(partition), "-v", "x", "--delay", delay, "--id", "twice")
    got = broker.cli("delayed", "get", topic, "twice")
    assert "partition\t2\n" in got.stdout, got.stdout
    assert len(got.stderr.splitlines()) == 1 and "partition 2" in got.stderr and "another is pending in partition 0 " in got.stderr and "-p" in got.stderr, got.stderr
    broker.cli("produce", topic, "-p", "1", "-v", "x", "--delay", "3h", "--id", "twice")
    assert "others are pending in partitions 0, 1 (-p" in broker.cli("delayed", "get", topic, "twice").stderr
    assert broker.cli("delayed", "get", topic, "twice", "-p", "0").stderr == ""
    broker.cli("delayed", "deliver", topic, "twice", "-p", "0")
    one_line(broker.cli("delayed", "get", topic, "twice", "-p", "0", check=False), 1, "delivered already")
    for columns, head in ((80, "AT EVENT DUE OFFSET"), (90, "AT EVENT DUE PARTITION OFFSET")):
        traced = at_terminal(broker, "delayed", "trace", topic, "twice", columns=columns, env={"NO_COLOR": "1"})
        assert traced[0].split() == head.split() and all(len(line) <= columns and "…" not in line for line in traced), traced
        assert any("delivered" in line and line.split()[-1] == "0" for line in traced), traced
    one_line(broker.cli("delayed", "get", topic, "never", check=False), 1, "nothing is pending")
    assert "trace" not in broker.cli("delayed", "get", topic, "never", check=False).stderr
    one_line(broker.cli("delayed", "cancel", topic, "twi*", check=False), 1, "twi*: ", "a pattern goes in --id")
    slip = broker.cli("delayed", "list", topic, "--id", "twi")
    one_line(slip, 0, "no pending record has the id twi; --id is a pattern of the whole id, as in 'twi*'")
    # The id is pending, and only another condition leaves it out.
    for more in (["--from", "+2d"], ["--to", "now"], ["--key", "none"]):
        later = broker.cli("delayed", "list", topic, "--id", "twice", *more)
        assert later.stdout == later.stderr == "", (more, later)
    assert slip.stdout == "" and broker.cli("delayed", "list", topic, "--id", "no*").stderr == ""
    moved = broker.cli("delayed", "move", topic, "twice", "--by", "1h", check=False)
    rows = [row.split("\t") for row in moved.stdout.splitlines()]
    assert sorted((name, result, more.split(", ")[-1]) for name, result, more in rows) == [
        ("twice", "already_delivered", "partition 0"), ("twice", "moved", "partition 1"), ("twice", "moved", "partition 2")], rows
    assert all(more.startswith("20") for _, result, more in rows if result == "moved"), rows
    assert broker.cli("delayed", "cancel", topic, "twice", "-p", "1").stdout == "twice\tcancelled\t\n", "one partition is one row as before"
    for words in (("get",), ("cancel",)):
        one_line(broker.cli("delayed", *words, topic, "twice", "-p", "1", check=False), 1, "nothing is pending", 'its last event was "cancelled"',
                 f"tarry delayed trace {topic} twice")


@case("tarry consume says how much is pending when there is nothing to read, and does not wait when the admin does not answer")
def _(ctx):
    broker, other, topic = ctx.broker(), ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    assert broker.cli("consume", topic, "--until-end").stderr == ""
    broker.cli("produce", topic, "--delay", "30m", stdin="a\nb\nc\n")
    for words in (["--until-end"], ["--idle", "1s"], ["-g", "billing", "--until-end"]):
        read = broker.cli("consume", topic, *words)
        assert read.stdout == "" and re.fullmatch(rf"tarry: {re.escape(topic)}: 3 pending, next in 29m\n", read.stderr), (words, read.stderr)
    following = subprocess.Popen([broker.binary, "consume", topic], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **environment(broker)})
    try:
        # It waits for records, and says meanwhile why there are none.
        assert select.select([following.stderr], [], [], 20)[0], "no note within 20 s"
        note = following.stderr.readline().decode()
        assert re.fullmatch(rf"tarry: {re.escape(topic)}: 3 pending, next in 29m\n", note) and following.poll() is None, note
    finally:
        following.terminate()
        rest = following.communicate(timeout=20)
    assert rest == (b"", b"") and following.returncode == 0, (rest, following.returncode)
    for admin in ("127.0.0.1:1", "%s:%d" % other.admin):
        began = time.monotonic()
        read = broker.cli("consume", topic, "--until-end", env={"TARRY_ADMIN": admin})
        assert read.stdout == read.stderr == "" and time.monotonic() - began < 5, (admin, read.stderr)
    broker.cli("produce", topic, "-v", "now")
    read = broker.cli("consume", topic, "--until-end")
    assert (read.stdout, read.stderr) == ("now\n", "")


@case("tarry top is live at a terminal, fits it, and leaves the terminal as it was, by q and by signals")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    broker.cli("produce", topic, "-v", "x", "--delay", "1h", "--id", "the-next")
    command = [broker.binary, "top", "--every", "300ms"]
    for end, status in ((lambda top: top.type("q"), 0), (lambda top: os.kill(top.pid, signal.SIGTERM), 0), (lambda top: top.type("\x03"), 0)):
        with Terminal(command, 100, 30, environment(broker)) as top:
            before = termios.tcgetattr(top.master)
            top.shows("the-next")
            assert "\x1b[?1049h" in top.text() and "\x1b[?25l" in top.text()
            assert termios.tcgetattr(top.master)[3] != before[3], "keys come one by one"
            broker.cli("produce", topic, "-v", "x", "--delay", "59m", "--id", f"sooner-{status}")
            top.shows(f"sooner-{status}")
            top.seen = b""
            top.resize(40, 12)
            top.shows("the-next"[:4])
            time.sleep(0.5)
            drawn = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in top.read().split("\x1b[H")[-1].split("\n")]
            assert len(drawn) <= 12 and all(len(line.rstrip("\r")) <= 40 for line in drawn), drawn
            end(top)
            eventually(top.ended, "it ends")
            assert top.status == status, top.status
            assert top.text().endswith("\x1b[0m\x1b[?25h\x1b[?1049l"), top.text()[-80:]
            assert termios.tcgetattr(top.master)[3] == before[3]
    with Terminal(command, 100, 30, environment(broker)) as top:
        top.shows("the-next")
        broker.stop()
        top.shows("these figures are old")
        broker.start()


@case("tarry top --once prints columns without colours in a pipe, and figures with --json")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)
    broker.cli("produce", topic, "-v", "x", "--delay", "1h", "--id", "the-next")
    broker.cli("produce", topic, stdin="a\nb\n")
    broker.cli("consume", topic, "-g", "billing", "-n", "1")
    shown = broker.cli("top", "--once", "--every", "200ms").stdout
    assert "\x1b" not in shown and re.search(r"^pending 1, overdue 0, next in 59m$", shown, re.M), shown
    assert re.search(rf"the-next", shown) and re.search(rf"^{re.escape(topic)} +1 ", shown, re.M) and re.search(r"^billing +1 ", shown, re.M), shown
    figures = json_lines(broker.cli("top", "--json", "--every", "200ms"))[0]
    assert figures["pending"] == 1 and figures["due"][0]["name"] == "the-next" and figures["groups"] == [{"group": "billing", "state": "Empty", "lag": 1}], figures
    one_line(broker.cli("top", "--every", "1ms", check=False), 2, "--every", "1ms")
    one_line(broker.cli("top", "--once", env={"TARRY_ADMIN": "127.0.0.1:1"}, check=False), 1, "127.0.0.1:1")


@case("tarry top lists what is due next, and not the records that are stuck")
def _(ctx):
    broker = ctx.broker(shards=1)
    stuck, topic = ctx.topic(), ctx.topic("other")
    for name in (stuck, topic):
        broker.cli("topic", "create", name)
        broker.cli("produce", name, "-v", "now")
    broker.cli("produce", stuck, "-k", "k", "-v", "x", "-v", "y", "--delay", "1500ms")
    broker.cli("produce", topic, "-v", "x", "--delay", "1h", "--id", "the-next")
    assert broker.stop() == 0
    # Its partition cannot be opened, so the records stay overdue.
    log = broker.data / f"logs/{stuck}-0"
    shutil.rmtree(log)
    log.touch()
    broker.start()
    eventually(lambda: broker.get("/status")["delayed"]["overdue"] == 2, "the overdue records")
    figures, = json_lines(broker.cli("top", "--json", "--every", "200ms"))
    assert [each["name"] for each in figures["due"]] == ["the-next"] and figures["overdue"] == 2 and "appended_per_s" in figures, figures
    shown = broker.cli("top", "--once", "--every", "200ms").stdout
    assert re.search(r"^pending 3, overdue 2 for \d+s, next in 59m$", shown, re.M), shown


@case("tarry doctor distinguishes a healthy broker from one that cannot start, and changes nothing")
def _(ctx):
    broker = ctx.broker()
    checked = {row["check"]: row for row in json_lines(broker.cli("doctor", "--json"))}
    assert checked["broker"]["result"] == "ok" and checked["deliveries"]["result"] == "ok", checked
    assert str(broker.data) in checked["disk space"]["detail"] and "clock" in checked and "data directory" not in checked, checked
    assert "broker\tok\t" in broker.cli("doctor").stdout
    # The running broker's reserve counts, not that of the settings.
    broker.cli("config", "set", f"tarry.disk.reserve.bytes={1 << 60}")
    said = broker.cli("doctor", check=False)
    assert said.returncode == 1 and f"smaller than tarry.disk.reserve.bytes={1 << 60}" in said.stdout and "lower the reserve" in said.stdout, said
    broker.cli("config", "set", "--unset", "tarry.disk.reserve.bytes")

    def before_start(*words):
        return run(broker.binary, "doctor", *words, check=False, env={"TARRY_BROKERS": "", "TARRY_ADMIN": ""})

    fresh, ports = ctx.directory / "not/there", ("--set", "listeners=127.0.0.1:0", "--set", "tarry.admin.listener=127.0.0.1:0")
    done = before_start("--data", fresh, *ports)
    assert done.returncode == 0 and f"data directory\tok\t{fresh}: does not exist yet; the broker will create it\n" in done.stdout and not fresh.exists(), done
    one_line(before_start("--data", broker.data, *ports), 1, "data directory")  # A broker runs in it.
    assert "in use" in before_start("--data", broker.data, *ports).stdout
    own = before_start("--data", broker.data, "--set", f"listeners={broker.brokers}", "--set", f"tarry.admin.listener=127.0.0.1:{broker.admin[1]}")
    assert own.returncode == 0 and "broker\tok\t" in own.stdout and "\nports\t" not in own.stdout and "\ndata directory\t" not in own.stdout, own
    taken = before_start("--data", fresh, "--set", f"listeners={broker.brokers}", "--set", "tarry.admin.listener=off")
    one_line(taken, 1, "ports")
    assert broker.brokers.split(":")[1] in taken.stdout, taken.stdout
    one_line(before_start("--data", fresh, "--set", "no.such.key=1"), 1, "settings")
    one_line(before_start("--data", fresh, "--set", "novalue"), 2, "novalue")
    (ctx.directory / "file").touch()
    one_line(before_start("--data", ctx.directory / "file/data", *ports), 1, "data directory")
    half = ctx.directory / "half"
    (half / "journal").mkdir(parents=True)
    one_line(before_start("--data", half, *ports), 1, "data directory")
    one_line(broker.cli("doctor", env={"TARRY_ADMIN": "127.0.0.1:1"}, check=False), 1, "broker")
    assert "to check a start" not in broker.cli("doctor", env={"TARRY_ADMIN": "127.0.0.1:1"}, check=False).stdout
    # `tarry serve --admin` is where it will listen, doctor's whom to ask.
    for words in (("--admin", "127.0.0.1:1"), ("--admin", "127.0.0.1:1", "-b", broker.brokers)):
        assert "to check a start, name no broker" in before_start("--data", fresh, *ports, *words).stdout, words
    # A data directory is no settings: what the defaults allow says nothing of a broker that runs with others.
    admin = "%s:%d" % broker.admin
    asked = {words: {row["check"] for row in json_lines(before_start("--data", broker.data, "--admin", admin, *words, "--json"))}
             for words in ((), ("--set", "tarry.shards=1"))}
    assert not {"settings", "memory"} & asked[()] and {"settings", "memory"} <= asked["--set", "tarry.shards=1"], asked
    assert {"broker", "disk space", "permissions"} <= asked[()], asked
    assert broker.stop() == 0
    done = before_start("--data", broker.data, *ports)
    assert done.returncode == 0 and "data directory\tok\t" in done.stdout, done
    # As in a copy that no broker has used: what doctor creates as root would keep the broker's user out.
    (broker.data / ".lock").unlink()
    assert before_start("--data", broker.data, *ports).returncode == 0 and not (broker.data / ".lock").exists()
    # What a start would refuse.
    current = broker.data / "db/pending/CURRENT"
    text = current.read_text()
    current.write_text("nothing\n")
    one_line(before_start("--data", broker.data, *ports), 1, "data directory")
    assert "db/pending" in before_start("--data", broker.data, *ports).stdout
    current.write_text(text)
    broker.start()


@case("tarry doctor finds the token of a broker that runs by its settings, and without it says where it was looked for, and not to stop anything")
def _(ctx):
    broker = ctx.broker(settings={"tarry.admin.loopback.reads": "token"})
    file, elsewhere, admin = ctx.directory / "tarry.properties", ctx.directory / "elsewhere", "%s:%d" % broker.admin
    file.write_text(f"tarry.data.dir={broker.data}\nlisteners=PLAINTEXT://{broker.brokers}\ntarry.admin.listener={admin}\ntarry.admin.loopback.reads=token\n")

    def look(*words, token=""):
        done = run(broker.binary, "doctor", *words, "--json", check=False, cwd=ctx.directory,
                   env={"TARRY_BROKERS": "", "TARRY_ADMIN": "", "TARRY_ADMIN_TOKEN": token})
        rows = json_lines(done)
        assert not {"ports", "data directory"} & {row["check"] for row in rows} and "stop the process" not in done.stdout, rows
        return done, rows

    elsewhere.mkdir()
    moved = ("--config", file, "--set", f"tarry.data.dir={elsewhere}")
    right = (broker.data / "admin.token").read_text().strip()
    for words, token in ((("--config", file), ""), (("--config", file, "--admin", admin), ""), (("--config", file), right)):
        done, rows = look(*words, token=token)
        assert done.returncode == 0, (words, rows)
    for words, token, place in ((("--admin", admin), "", "tarry-data/admin.token is not there"), (moved, "", f"{elsewhere}/admin.token is not there"),
                                (("--config", file), "x" * 40, "$TARRY_ADMIN_TOKEN: it does not know this token")):
        done, rows = look(*words, token=token)
        problem, = [row for row in rows if row["result"] == "problem"]
        assert done.returncode == 1 and problem["check"] == "broker" and f"a broker runs at {admin}, but" in problem["detail"] and place in problem["detail"], (words, rows)
    assert broker.stop() == 0
    done = run(broker.binary, "doctor", "--config", file, check=False, env={"TARRY_BROKERS": "", "TARRY_ADMIN": "", "TARRY_ADMIN_TOKEN": ""})
    assert done.returncode == 0 and f"because no broker with these settings answers: nothing listens at {admin}\n" in done.stdout, done


@case("tarry doctor takes the 401 of another program for no broker")
def _(ctx):
    class Files(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="files"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files) as files:
        threading.Thread(target=files.serve_forever, daemon=True).start()
        try:
            admin = "127.0.0.1:%d" % files.server_address[1]
            for words in (("--admin", admin), ("--data", ctx.directory / "fresh", "--set", f"tarry.admin.listener={admin}", "--set", "listeners=127.0.0.1:0")):
                done = run(ctx.options.binary, "doctor", *words, "--json", check=False, cwd=ctx.directory,
                           env={"TARRY_BROKERS": "", "TARRY_ADMIN": "", "TARRY_ADMIN_TOKEN": ""})
                told = [row["detail"] for row in json_lines(done) if row["check"] == "broker"]
                assert done.returncode == 1 and f"something else answers at {admin}" in told[0] and len(told) == 1, (words, done)
                assert "a broker runs" not in done.stdout, (words, done)
        finally:
            files.shutdown()


@case("tarry doctor takes a relative directory, looks at log.dirs, and says which listener of a running broker is open to all and how many connections it serves")
def _(ctx):
    binary, nowhere = ctx.options.binary, {"TARRY_BROKERS": "", "TARRY_ADMIN": ""}
    ports = ("--set", "listeners=127.0.0.1:0", "--set", "tarry.admin.listener=off")

    def before_start(*words):
        done = run(binary, "doctor", *ports, *words, "--json", check=False, cwd=ctx.directory, env=nowhere)
        return done, [(row["check"], row["result"], row["detail"]) for row in json_lines(done)]

    done, rows = before_start("--data", "not-there")
    assert done.returncode == 0 and ("data directory", "ok", "not-there: does not exist yet; the broker will create it") in rows, done
    assert ("log directory" not in {check for check, _, _ in rows}) and [result for check, result, _ in rows if check == "disk space"] in (["ok"], ["warning"]), rows
    done, rows = before_start("--data", "not-there", "--set", "log.dirs=logs/below")
    assert done.returncode == 0 and ("log directory", "ok", "logs/below") in rows and len([1 for check, _, _ in rows if check == "disk space"]) == 1, rows
    # Root may write there, by its mode, and has no space there.
    done, rows = before_start("--data", "not-there", "--set", "log.dirs=/proc/nope")
    assert any(check in ("log directory", "disk space") and result == "problem" and "/proc/nope" in detail for check, result, detail in rows), rows
    one_line(done, 1)
    assert not (ctx.directory / "not-there").exists() and not (ctx.directory / "logs").exists()

    broker = ctx.broker(settings={"listeners": "INTERNAL://127.0.0.1:0,PLAINTEXT://0.0.0.0:0",
                                  "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT", "max.connections": 2_000_000_000})
    rows = [(row["check"], row["result"], row["detail"]) for row in json_lines(broker.cli("doctor", "--json"))]
    (result, detail), = [row[1:] for row in rows if row[0] == "access"]
    assert result == "warning" and "0.0.0.0:" in detail and "full access" in detail, rows
    (result, detail), = [row[1:] for row in rows if row[0] == "open files"]
    assert result == "warning" and "max.connections is 2000000000" in detail, rows
    rows = {row["check"]: row["result"] for row in json_lines(ctx.broker().cli("doctor", "--json"))}
    assert rows["access"] == "ok" and "open files" in rows, rows


@case("tarry doctor loads the certificates of a broker to be started, and says which listener is open to all and what the memory settings allow")
def _(ctx):
    authority, binary, fresh = Authority(ctx.directory / "ca"), ctx.options.binary, ctx.directory / "data"
    soon, later, old = (authority.sign(name, subject=f"/CN={name}", days=days)[2] for name, days in (("soon", 20), ("later", 90), ("old", 0)))

    def findings(status, listeners, admin="off", **settings):
        words = [word for key, value in {"listeners": listeners, "tarry.admin.listener": admin, **settings}.items() for word in ("--set", f"{key.replace('_', '.')}={value}")]
        done = run(binary, "doctor", "--data", fresh, *words, "--json", check=False, env={"TARRY_BROKERS": "", "TARRY_ADMIN": ""})
        assert done.returncode == status, done
        return [(row["check"], row["result"], row["detail"]) for row in json_lines(done) if row["check"] in ("certificates", "access", "memory")]

    def found(rows, check):
        return [(result, detail) for name, result, detail in rows if name == check]

    rows = findings(0, "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", ssl_keystore_location=later)
    (result, detail), = found(rows, "certificates")
    assert result == "ok" and detail.startswith("listener SSL: CN=later, valid until "), rows
    assert [result for result, _ in found(rows, "access")] == ["ok", "ok"], rows
    rows = findings(0, "SSL://0.0.0.0:0", "127.0.0.1:0", ssl_keystore_location=soon, tarry_admin_tls_keystore_location=soon)
    assert [(result, detail.split(":")[0]) for result, detail in found(rows, "certificates")] == [("warning", "listener SSL"), ("warning", "the admin")], rows
    assert all("it expires in 19d" in detail and "SIGHUP" in detail for _, detail in found(rows, "certificates")), rows
    (result, detail), = found(rows, "access")
    assert result == "warning" and "0.0.0.0" in detail and "full access" in detail, rows
    rows = findings(0, "SSL://0.0.0.0:0", ssl_keystore_location=later, ssl_client_auth="required", ssl_truststore_location=authority.certificate)
    assert found(rows, "access") == [("ok", "0.0.0.0:0: clients log in")], rows
    rows = findings(1, "SSL://127.0.0.1:0", "127.0.0.1:0", ssl_keystore_location=old, tarry_admin_tls_keystore_location=ctx.directory / "none.pem")
    (first, expired), (second, missing) = found(rows, "certificates")
    assert first == second == "problem" and "expired on" in expired and "none.pem" in missing and "tarry.admin.tls.keystore.location" in missing, rows
    assert [result for result, _ in found(findings(0, "127.0.0.1:0", tarry_memory_bytes=1 << 46), "memory")] == ["warning"]
    (result, detail), = found(findings(0, "127.0.0.1:0", tarry_shards=1, tarry_memory_bytes=16 << 20, tarry_delay_memory_bytes=16 << 20), "memory")
    assert result == "ok" and "allow 160.0 MiB" in detail, detail


@case("tarry doctor, run by root, finds the certificate and the keys that the owner of the data directory cannot read, and root leaves a user for that owner")
def _(ctx):
    if os.geteuid() != 0:
        raise Skip("only root can give files to another user")
    nobody, data, binary = 65534, ctx.directory / "data", ctx.options.binary
    certificate, keys = Authority(ctx.directory / "ca").sign("broker")[2], ctx.directory / "jwks.json"
    keys.write_text('{"keys": []}')
    for file in (certificate, keys):
        os.chmod(file, 0o600)
    data.mkdir(mode=0o700)
    os.chown(data, nobody, nobody)
    run(binary, "user", "add", "admin", "--password-file", "-", "--data", data, stdin="secret\n")
    added = os.stat(data / "users.add")
    assert (added.st_uid, added.st_gid, added.st_mode & 0o777) == (nobody, nobody, 0o600), added
    settings = {"listeners": "SASL_SSL://127.0.0.1:0", "tarry.admin.listener": "off", "ssl.keystore.location": certificate,
                "sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}"}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = run(binary, "doctor", "--data", data, *words, "--json", check=False, env={"TARRY_BROKERS": "", "TARRY_ADMIN": ""})
    rows = {row["check"]: (row["result"], row["detail"]) for row in json_lines(done)}
    for check, file in (("certificates", certificate), ("token keys", keys)):
        result, detail = rows[check]
        assert result == "problem" and str(file) in detail and "Permission denied" in detail and "the user that runs the broker" in detail, rows
    assert "does not exist" not in rows["data directory"][1], rows
    # What root itself has left there keeps the broker from its start.
    os.chown(data / "users.add", 0, 0)
    done = run(binary, "doctor", "--data", data, *words, "--json", check=False, env={"TARRY_BROKERS": "", "TARRY_ADMIN": ""})
    assert any(row["check"] == "data directory" and row["result"] == "problem" and "users.add" in row["detail"] for row in json_lines(done)), done


@case("tarry config shows what a change needs, sets and unsets it at once, and names a key that is wrong")
def _(ctx):
    broker, topic = ctx.broker(), ctx.topic()
    broker.cli("topic", "create", topic)

    def config(*keys, changed=()):
        return {row["config"]: row for row in json_lines(broker.cli("config", "get", *keys, *changed, "--json"))}

    before = config()
    assert before["num.partitions"] == {"config": "num.partitions", "value": "1", "source": "default", "changes": "live"}, before["num.partitions"]
    assert before["tarry.shards"]["changes"] == "restart"
    # --data has given it, and no file.
    assert before["tarry.data.dir"]["source"] == "start", before["tarry.data.dir"]
    assert broker.cli("config", "set", "num.partitions=3", "log.retention.ms=2d").stdout == "num.partitions=3\nlog.retention.ms=172800000\n"
    assert config("num.partitions")["num.partitions"] == {"config": "num.partitions", "value": "3", "source": "broker", "changes": "live"}
    broker.cli("topic", "create", f"{topic}-2")
    assert len(json_lines(broker.cli("topic", "describe", f"{topic}-2", "--json"))[0]["partitions"]) == 3
    assert broker.cli("config", "set", "--unset", "num.partitions").stdout == "num.partitions unset\n"
    after = config()
    assert after["num.partitions"] == before["num.partitions"] and after["log.retention.ms"]["value"] == "172800000", "the other one is kept"
    assert set(config(changed=["--changed"])) >= {"log.retention.ms"} and "num.partitions" not in config(changed=["--changed"])
    one_line(broker.cli("config", "set", "tarry.shards=2", check=False), 1, "tarry.shards", "restart")
    one_line(broker.cli("config", "set", "no.such.key=1", check=False), 1, "no.such.key")
    one_line(broker.cli("config", "set", "--unset", "num.partition", check=False), 1, "num.partition: there is no such config", "num.partitions?")
    one_line(broker.cli("config", "set", "--unset", "tarry.shards", check=False), 1, "tarry.shards", "restart")
    one_line(broker.cli("config", "set", "--topic", topic, "--unset", "no.such.key", check=False), 1, "no.such.key")
    one_line(broker.cli("config", "set", "novalue", check=False), 2, "novalue")
    one_line(broker.cli("config", "set", check=False), 2, "KEY=VALUE")
    one_line(broker.cli("config", "get", "no.such.key", check=False), 1, "no.such.key")
    broker.cli("config", "set", "--topic", topic, "tarry.delay.max.ms=30d", "retention.ms=1d")
    broker.cli("config", "set", "--topic", topic, "--unset", "retention.ms")
    shown = broker.cli("config", "get", "--topic", topic, "tarry.delay.max.ms", "retention.ms").stdout
    assert "tarry.delay.max.ms\t2592000000\ttopic\t" in shown and "retention.ms\t172800000\tbroker\t" in shown, shown
    broker.restart(kill=False)
    assert config("log.retention.ms")["log.retention.ms"]["value"] == "172800000", "it is kept over a restart"
