"""tarry relay as far as it goes without a Kafka; tests/relay/with_kafka.py has the rest."""

import contextlib
import pathlib
import re
import signal
import socket
import subprocess

from harness import case, eventually, run
from test_cli import one_line


@case("the relay refuses a wrong option with status 2, and a cluster that it cannot use with status 1, in one line each")
def _(ctx):
    broker = ctx.broker()

    def relay(*words):
        data = ctx.directory / "relay"
        return run(ctx.options.binary, "relay", "--data", str(data), "--admin", "127.0.0.1:0", *words, check=False)

    for words in (["--delivery", "maybe"], ["--memory", "3q"], ["--group", "a/b"], ["--instance", "a b"], ["--source", ""],
                  ["-X", "no.such=1"], ["--admin", "nowhere"]):
        one_line(relay("-b", "127.0.0.1:1", *words), 2, words[0], words[1].split("=")[0])
    one_line(relay("-b", "127.0.0.1:1"), 1, "127.0.0.1:1", "nothing listens")
    # This broker has no transactions.
    one_line(relay("-b", broker.brokers), 1, "transactions are not supported")
    assert (ctx.directory / "relay/instance").read_text().startswith("m")


@case("the relay is not ended by SIGPIPE, SIGUSR1, SIGUSR2 and SIGHUP, as the broker is not")
def _(ctx):
    # A cluster that never answers.
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as cluster:
        relay = subprocess.Popen([ctx.options.binary, "relay", "--data", str(ctx.directory / "relay"), "--admin", "127.0.0.1:0",
                                  "-b", "127.0.0.1:%d" % cluster.getsockname()[1]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            status = pathlib.Path(f"/proc/{relay.pid}/status")

            def signals(which):
                found = re.search(rf"^{which}:\t(\w+)$", status.read_text(), re.M)
                return int(found[1], 16)
            wanted = sum(1 << (each - 1) for each in (signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2))
            eventually(lambda: signals("SigIgn") & wanted == wanted, "the signals are ignored")
            eventually(lambda: signals("SigCgt") & 1 << signal.SIGHUP - 1, "SIGHUP is caught")
            for each in (signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
                relay.send_signal(each)
            assert relay.poll() is None
        finally:
            relay.kill()
            relay.wait()


@case("a relay whose cluster does not answer its start ends soon after one SIGTERM, with status 0")
def _(ctx):
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as cluster:
        relay = subprocess.Popen([ctx.options.binary, "relay", "--data", str(ctx.directory / "relay"), "--admin", "127.0.0.1:0",
                                  "-b", "127.0.0.1:%d" % cluster.getsockname()[1]], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            status = pathlib.Path(f"/proc/{relay.pid}/status")
            eventually(lambda: int(re.search(r"^SigCgt:\t(\w+)$", status.read_text(), re.M)[1], 16) & 1 << signal.SIGTERM - 1,
                       "the relay takes SIGTERM")
            relay.send_signal(signal.SIGTERM)
            # By itself the first question would end after 10 s, and the process with status 1.
            log = relay.communicate(timeout=6)[1]
            assert relay.returncode == 0, (relay.returncode, log)
            assert "Kafka did not answer in time" in log, log
        finally:
            relay.kill()
            relay.wait()


@case("the checker of the soak on a real Kafka finds records that are lost, early, delivered twice or out of order")
def _(ctx):
    soak = pathlib.Path(__file__).parents[1] / "relay/with_kafka.py"
    assert "each kind" in run("/usr/bin/python3", str(soak), "--check-checker").stdout


@case("the checker of the clients beside the relay finds records that are lost, delivered twice, early or changed")
def _(ctx):
    clients = pathlib.Path(__file__).parents[1] / "relay/clients_with_kafka.py"
    assert "each kind" in run("/usr/bin/python3", str(clients), "--check-checker").stdout
