"""The admin over HTTP as browsers and attackers use it: event streams, sessions, names, files of the page."""

import contextlib
import http.client
import json
import socket
import time

from harness import HealthyClient, case, eventually


def ask(broker, method, path, headers=None, body=None, host="127.0.0.1"):
    """(status, headers, text), without a token."""
    connection = http.client.HTTPConnection(host, broker.admin[1], timeout=20)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers or {}, body=body)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()


class Stream:
    """GET /events on a connection of its own."""

    def __init__(self, broker, headers="", buffer=None):
        self.socket = socket.socket()
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(20)
        self.socket.connect(("127.0.0.1", broker.admin[1]))
        host = "127.0.0.1:%d" % broker.admin[1]
        self.file = self.socket.makefile("rb")
        self.socket.sendall(f"GET /events HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n".encode())

    def status(self):
        return int(self.file.readline().split()[1])

    def event(self, name):
        """The data of the next event of that name."""
        for line in self.file:
            if line.strip() == b"event: " + name.encode():
                return json.loads(self.file.readline()[len("data: "):])
        raise AssertionError(f"the stream ended before the event {name}")

    def close(self):
        self.file.close()  # It would keep the connection open.
        self.socket.close()


@case("a thousand event streams: a few are served, the others are refused, and clients still work")
def _(ctx):
    broker = ctx.broker()
    with HealthyClient(broker, ctx.topic()):
        codes = []
        for _ in range(20):  # The operating system's queue of connections is shorter than a thousand.
            some = [Stream(broker) for _ in range(50)]
            codes += [stream.status() for stream in some]
            if len(codes) == 50:
                kept = [stream for stream, code in zip(some, codes) if code == 200]
            for stream in some:
                if stream not in kept:
                    stream.close()
        assert len(codes) == 1000 and codes.count(200) >= 32 and set(codes) == {200, 503}, codes
        assert codes[:50].count(200) == 32, codes[:50]
        assert ask(broker, "GET", "/healthz")[0] == 200
        for stream in kept:
            assert stream.event("status")["state"] == "running"
            stream.close()

        def served():
            stream = Stream(broker)
            with contextlib.closing(stream):
                return stream.status() == 200

        eventually(served, "a stream again, once the others are gone")


@case("an event stream shows pending records as they come, and due ones")
def _(ctx):
    broker = ctx.broker()
    topic = ctx.topic()
    broker.cli("topic", "create", topic)
    stream = Stream(broker)
    with contextlib.closing(stream):
        assert stream.status() == 200
        assert stream.event("status")["delayed"]["pending"] == 0
        broker.cli("produce", topic, "-v", "a", "--delay", "30s")
        broker.cli("produce", topic, "-v", "b", "--delay", "30m")
        deadline = time.monotonic() + 15
        while True:
            due = stream.event("due")
            spans = {span["span"]: span for span in due["spans"]}
            if due["total"] == 2 and spans["minute"]["total"] == 1 and spans["hour"]["total"] == 2:
                break
            assert time.monotonic() < deadline, due
        assert sum(spans["day"]["counts"][topic]) == 2 and sum(spans["month"]["counts"][topic]) == 2, due
        assert due["later"] == 0 and due["overdue"] == 0, due


@case("a stream that is not read does not keep the broker from stopping")
def _(ctx):
    broker = ctx.broker()
    streams = [Stream(broker, buffer=1) for _ in range(10)]
    time.sleep(0.5)
    assert broker.stop() == 0
    for stream in streams:
        stream.close()


@case("a browser logs in once off loopback: its cookie reads, and changes nothing")
def _(ctx):
    broker = ctx.broker(start=False)
    broker.admin = ("0.0.0.0", 0)
    broker.start()
    for path in ("/", "/page/chart.min.js", "/healthz", "/session"):
        assert ask(broker, "GET", path)[0] == 200, path
    assert ask(broker, "GET", "/events")[0] == 401
    began = time.monotonic()
    assert ask(broker, "POST", "/login", body='{"token": "wrong"}')[0] == 401
    assert time.monotonic() - began > 0.9, "a wrong token is answered at once"
    for file in ("admin.token", "admin.read.token"):
        token = (broker.data / file).read_text().strip()
        code, headers, _ = ask(broker, "POST", "/login", body=json.dumps({"token": token}))
        assert code == 204 and "HttpOnly" in headers["Set-Cookie"], headers
        cookie = headers["Set-Cookie"].split(";")[0]
        assert ask(broker, "GET", "/status", {"Cookie": cookie})[0] == 200
        assert ask(broker, "DELETE", "/delayed/t/x", {"Cookie": cookie})[0] == 401
        stream = Stream(broker, f"Cookie: {cookie}\r\n")
        with contextlib.closing(stream):
            assert stream.status() == 200 and stream.event("status")["state"] == "running"


@case("through a tunnel the admin answers to the names that its settings allow")
def _(ctx):
    broker = ctx.broker(settings={"tarry.admin.allowed.hosts": "localhost,tarry.example.com:8443"})
    for host, code in (("localhost:9000", 200), ("tarry.example.com:8443", 200), ("tarry.example.com", 421),
                       ("127.0.0.1:9000", 421), ("evil.example", 421)):
        assert ask(broker, "GET", "/status", {"Host": host})[0] == code, host
