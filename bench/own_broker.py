"""A broker that a benchmark starts for itself, and what the kernel and its admin tell about it.

    with own_broker.running(binary, shards=2) as broker:
        told = broker.bench("--rate", "20000")

It has free ports and a directory of its own, and both are gone at the end, whatever happens. `Sampler` notes its CPU and its
memory while something else runs.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

MIB = 1 << 20


def percentile(values, share):
    return values[min(len(values) - 1, int(len(values) * share))] if values else None


def disk_bytes(directory):
    """What its files take of the disk. Files come and go meanwhile."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.stat(os.path.join(folder, name)).st_blocks * 512
    return total


class Measured:
    """What the kernel tells about `process`."""

    def schedstat(self, field):
        total = 0
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            # A thread may end meanwhile, and one that is ending has an empty file.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, IndexError):
                total += int((task / "schedstat").read_text().split()[field])
        return total / 1e9

    def cpu_seconds(self):
        return self.schedstat(0)

    def waited_seconds(self):
        """For how long its threads could run and had no core."""
        return self.schedstat(1)

    def written_bytes(self):
        """What it gave the disk to write."""
        for line in pathlib.Path(f"/proc/{self.process.pid}/io").read_text().splitlines():
            if line.startswith("write_bytes:"):
                return int(line.split()[1])

    def memory_mb(self, field):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) // 1024


class Broker(Measured):
    def __init__(self, binary, directory, settings=(), shards=None):
        self.binary, self.directory, self.settings, self.shards = os.path.abspath(binary), pathlib.Path(directory), settings, shards
        self.data, self.process = self.directory / "data", None

    def start(self, shards=None):
        """Returns when it is ready, and the seconds that this took."""
        began = time.monotonic()
        words = [word for setting in self.settings for word in ("--set", setting)]
        words += ["--shards", str(shards or self.shards)] if shards or self.shards else []
        with open(self.directory / "stderr", "ab") as log:
            self.process = subprocess.Popen([self.binary, "serve", "--data", self.data, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", *words],
                                            stdout=subprocess.PIPE, stderr=log, text=True)
        words = dict(word.split("=", 1) for word in self.process.stdout.readline().split() if "=" in word)
        if "kafka" not in words:
            raise RuntimeError("the broker did not become ready")
        host, port = words["kafka"].rsplit(":", 1)
        self.address, self.admin = (host, int(port)), words["admin"]
        return time.monotonic() - began

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.process = None

    def log(self):
        path = self.directory / "stderr"
        return path.read_text(errors="replace") if path.exists() else ""

    def cli(self, *words):
        return subprocess.run([self.binary, *words, "-b", "%s:%d" % self.address], check=True, capture_output=True, text=True).stdout

    def bench_words(self, *words):
        return [self.binary, "bench", "delayed", "--json", "--timeout", "30s", "-b", "%s:%d" % self.address, "--admin", self.admin, "--data", str(self.data),
                *(str(word) for word in words)]

    def bench(self, *words):
        """What `tarry bench delayed` measures with these words."""
        done = subprocess.run(self.bench_words(*words), capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"bench delayed {' '.join(map(str, words))}: {done.stderr.strip()[-500:]}")
        return json.loads(done.stdout.splitlines()[-1])

    def fill(self, topic, count, delay, spread, *words):
        """Adds pending records to the topic, as fast as they are accepted."""
        return self.bench("--fill", "--topic", topic, "--rate", 0, "--count", count, "--delay", delay, "--spread", spread, *words)

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=60) as answer:
            return json.load(answer)

    def metrics(self):
        with urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=60) as answer:
            return answer.read().decode()


@contextlib.contextmanager
def running(binary, settings=(), shards=None, parent=None):
    """A broker that is ready. `parent`: where its directory is (default: where temporary files are)."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="tarry-bench-", dir=parent))
    broker = Broker(binary, directory, settings, shards)
    try:
        broker.start()
        yield broker
    except BaseException:
        sys.stderr.write(broker.log()[-2000:])
        raise
    finally:
        broker.kill()
        shutil.rmtree(directory)


class Sampler(threading.Thread):
    """Notes (monotonic time, CPU seconds, anonymous memory in MiB) at once, every 20 ms, and when it is left."""

    def __init__(self, broker):
        super().__init__(daemon=True)
        self.broker, self.samples, self.ended = broker, [], threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()

    def run(self):
        is_last = False
        while True:
            self.samples.append((time.monotonic(), self.broker.cpu_seconds(), self.broker.memory_mb("RssAnon")))
            if is_last:
                return
            is_last = self.ended.wait(0.02)

    def memory_max(self):
        return max(sample[2] for sample in self.samples)

    def cpu_between(self, since, until):
        """The CPU seconds between two times, as exact as the samples are."""
        before = [cpu for at, cpu, _ in self.samples if at <= since] or [self.samples[0][1]]
        return max(cpu for at, cpu, _ in self.samples if at <= until) - before[-1]
