"""A real broker in its own directory, and what the cases need around it.

A case is a function with @case("a sentence that could turn out false"). It gets a `Context`, asks
it for a broker and says what it expects with assert. When it ends, its brokers are stopped in
order; one that does not stop, or not with exit code 0, fails the case.
"""

import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import traceback

import wire

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = []


class Skip(Exception):
    """Raised by a case that cannot run here; says why."""


@dataclasses.dataclass
class Case:
    name: str
    run: object
    any_broker: bool  # True: holds for every broker that speaks Kafka's protocol.
    alone: bool  # True: measures time, or wants the machine for itself.
    idle: bool  # True: wants a quiet machine too, but leaves it quiet to others.

    def __str__(self):
        return self.name


def case(name, any_broker=False, alone=False, idle=False):
    def register(function):
        CASES.append(Case(name, function, any_broker, alone, idle))
        return function

    return register


def now_ms():
    return time.time() * 1000


def eventually(condition, what, within=10, pause=0.02):
    """Waits until condition() is true (its value is the answer)."""
    deadline = time.monotonic() + within
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what}")
        time.sleep(pause)
    return value


def run(*command, stdin=None, within=60, check=True, env=None, cwd=None):
    """Runs a program to its end; with check a failure shows what it said."""
    command = [str(word) for word in command]
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(command, input=data if data is not None else b"", capture_output=True,
                          timeout=within, env={**os.environ, **(env or {})}, cwd=cwd)
    done.stdout, done.stderr = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:] or done.stdout[-2000:]}")
    return done


class Broker:
    """The real process. kill() is -9, stop() is SIGTERM; start() again on the same directory."""

    def __init__(self, binary, directory, shards=2, settings=None, arguments=()):
        self.binary, self.directory = pathlib.Path(binary), pathlib.Path(directory)
        self.data = self.directory / "data"
        self.log_file = self.directory / "broker.log"
        self.shards, self.settings, self.arguments = shards, dict(settings or {}), list(arguments)
        self.address = self.admin = ("127.0.0.1", 0)
        self.process = None
        self.environment = {}  # Beside the one of the tests.

    def command(self, shards=None):
        # --listen is one listener, and may not be given beside others.
        listen = [] if "listeners" in self.settings else ["--listen", "%s:%d" % self.address]
        words = [self.binary, "serve", "--data", self.data, *listen,
                 "--admin", "%s:%d" % self.admin, "--shards", shards or self.shards]
        for key, value in self.settings.items():
            words += ["--set", f"{key}={value}"]
        return [str(word) for word in words + self.arguments]

    def start(self, shards=None, within=30):
        """The second start takes the ports of the first, so that clients find it again."""
        assert self.process is None, "it runs already"
        self.process = self.spawn(shards)
        line = self.read_line(within)
        ready = re.match(r"tarry ready kafka=(\S+):(\d+) admin=(off|\S+:\d+) data=(\S+) shards=(\d+) pid=(\d+) start_ms=(\d+) listeners=(\S+)$", line)
        if not ready:
            code = self.process.poll()
            self.kill()
            raise AssertionError(f"no ready line but {line!r}, exit code {code}:\n{self.log()[-2000:]}")
        self.address = (ready[1], int(ready[2]))
        if ready[3] != "off":
            host, port = ready[3].rsplit(":", 1)
            self.admin = (host, int(port))
        self.start_ms = int(ready[7])
        # NAME: (host, port), in their order.
        self.listeners = {name: (host, int(port)) for name, host, port in re.findall(r"([^,:]+)://([^,]+):(\d+)", ready[8])}
        assert int(ready[6]) == self.process.pid
        assert pathlib.Path(ready[4]) == self.data.resolve()
        return self

    def spawn(self, shards=None, env=None):
        with open(self.log_file, "ab") as log:
            return subprocess.Popen(self.command(shards), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=log, start_new_session=True,
                                    env=env if env is not None else {**os.environ, **self.environment})

    def read_line(self, within):
        deadline, line = time.monotonic() + within, b""
        descriptor = self.process.stdout.fileno()
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                break
            piece = os.read(descriptor, 4096)
            if not piece:
                self.process.wait(5)
                break
            line += piece
        return line.decode().strip()

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.process = None

    def stop(self, within=20):
        """In order; the exit code."""
        if not self.process:
            return 0
        process = self.process
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(within)
        except subprocess.TimeoutExpired:
            stacks = self.stacks()
            self.kill()
            raise AssertionError(f"SIGTERM did not stop it within {within} s\n{stacks}") from None
        process.stdout.close()
        self.process = None
        return code

    def restart(self, shards=None, kill=True):
        if kill:
            self.kill()
        else:
            assert self.stop() == 0
        return self.start(shards)

    def stacks(self):
        return "\n".join(f"{task.name} {(task / 'comm').read_text().strip()} {(task / 'wchan').read_text()}"
                         for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir())

    def log(self):
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def rss_mib(self):
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{self.process.pid}/status").read_text())[1]) / 1024

    @property
    def brokers(self):
        return "%s:%d" % self.address

    def client(self, timeout=30):
        return wire.Client(self.address, timeout)

    def http(self, method, path, token=True, headers=None, body=None):
        """(status, JSON, or the text if it is none). token: the right one, or the text given, or none."""
        headers = dict(headers or {})
        if token:
            text = (self.data / "admin.token").read_text().strip() if token is True else token
            headers["Authorization"] = f"Bearer {text}"
        connection = http.client.HTTPConnection(*self.admin, timeout=20)
        with contextlib.closing(connection):
            connection.request(method, path, headers=headers, body=None if body is None else json.dumps(body))
            answer = connection.getresponse()
            text = answer.read()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text.decode(errors="replace")

    def get(self, path):
        status, body = self.http("GET", path, token=False)
        assert status == 200, f"GET {path}: {status} {body}"
        return body

    def pending(self, topic):
        return self.get(f"/delayed?topic={topic}&limit=1000")["records"]

    def cli(self, *words, stdin=None, check=True, within=60, env=None):
        token = self.data / "admin.token"
        return run(self.binary, *words, stdin=stdin, check=check, within=within, env={
            # A client takes no port 0, which the broker has before its start.
            "TARRY_BROKERS": self.brokers if self.address[1] else "127.0.0.1:1", "TARRY_ADMIN": "%s:%d" % self.admin,
            "TARRY_ADMIN_TOKEN": token.read_text().strip() if token.exists() else "", **(env or {})})


class OtherBroker:
    """A broker that runs already and is not ours: cases with any_broker hold for it too."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.address = (host, int(port))

    brokers = Broker.brokers
    client = Broker.client
    start = stop = kill = lambda self, *_: 0

    def log(self):
        return ""


class HealthyClient:
    """Produces and reads back one record after the other, and complains when that fails or stalls."""

    def __init__(self, broker, topic, longest=5.0):
        self.broker, self.topic, self.longest = broker, topic, longest
        self.rounds, self.error, self.going = 0, None, True
        self.thread = threading.Thread(target=self.work, daemon=True)

    def __enter__(self):
        with self.broker.client() as client:
            client.create_topic(self.topic)
        self.thread.start()
        eventually(lambda: self.rounds or self.error, "the healthy client's first round")
        return self

    def __exit__(self, kind, *_):
        before = self.rounds
        if kind is None and not self.error:
            eventually(lambda: self.error or self.rounds >= before + 3, "three more rounds of the healthy client")
        self.going = False
        self.thread.join(self.longest + 5)
        if kind is None and self.error:
            raise AssertionError(f"the healthy client failed after {self.rounds} rounds: {self.error}")

    def work(self):
        try:
            with self.broker.client(timeout=self.longest) as client:
                while self.going:
                    value = b"round %d" % self.rounds
                    offset = client.produce(self.topic, [wire.Record(value)]).base_offset
                    found = client.consume(self.topic, 1, offset=offset, within=self.longest)
                    assert found[0].value == value, f"{found[0].value} is not {value}"
                    self.rounds += 1
                    time.sleep(0.02)
        except Exception as error:  # Told by the thread that waits for us.
            self.error = f"{type(error).__name__}: {error}"


class Context:
    """What one case gets. Everything it made is gone when it ends."""

    def __init__(self, options):
        self.options = options
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="tarry-test."))
        self.brokers = []
        self.unique = os.urandom(3).hex()
        self.names = 0

    def broker(self, start=True, **how):
        if self.options.against:
            return OtherBroker(self.options.against)
        directory = self.directory / f"broker{len(self.brokers)}"
        directory.mkdir()
        broker = Broker(self.options.binary, directory, **how)
        self.brokers.append(broker)
        return broker.start() if start else broker

    def topic(self, word="topic"):
        self.names += 1
        return f"{word}.{self.unique}-{self.names}"

    def close(self, failed):
        """Stops what runs; what they logged last when the case failed."""
        problem = None
        for broker in self.brokers:
            try:
                code = broker.stop()
                if code != 0 and not problem:
                    problem = f"SIGTERM: exit code {code}\n{broker.log()[-2000:]}"
            except AssertionError as error:
                problem = problem or str(error)
        tail = "\n".join(broker.log()[-1500:] for broker in self.brokers) if failed or problem else ""
        if not self.options.keep or not (failed or problem):
            shutil.rmtree(self.directory, ignore_errors=True)
        return problem, tail


@dataclasses.dataclass
class Outcome:
    case: Case
    state: str  # passed, failed, skipped
    text: str
    seconds: float


def run_case(each, options):
    started, context = time.monotonic(), None
    state, text = "passed", ""
    try:
        context = Context(options)
        each.run(context)
    except Skip as reason:
        state, text = "skipped", str(reason)
    except Exception:
        state, text = "failed", traceback.format_exc(limit=-6)
    if context:
        problem, tail = context.close(state == "failed")
        if problem and state == "passed":
            state, text = "failed", problem
        if state == "failed":
            text += f"\nthe broker's log ends so:\n{tail}" if tail else ""
            text += f"\nkept in {context.directory}" if options.keep else ""
    return Outcome(each, state, text, time.monotonic() - started)
