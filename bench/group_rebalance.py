#!/usr/bin/env python3
"""How long a large group takes to rebalance: clients with a connection each that are all members of one
group, and one more that joins.

    bench/group_rebalance.py --broker HOST:PORT [--members 500] [--rounds 10] [--heartbeat-ms 100]

Each round measures from the newcomer's first JoinGroup until all have their assignments of the same new
generation; then it leaves, and all share once more. Heartbeats are spread evenly over their interval, as
those of clients that know nothing of one another are; a member hears of the rebalance by the next one, so
that a round takes about an interval at least. Prints one line of JSON, times in milliseconds; `client_cpu`
is how much of each this process worked for, which speaks for all members and is the leader too.
"""

import argparse
import heapq
import json
import os
import pathlib
import resource
import select
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "integration"))
import wire
from wire import i8, i16, i32, string

FIND_COORDINATOR, JOIN, HEARTBEAT, LEAVE, SYNC = 10, 11, 12, 13, 14
VERSIONS = {FIND_COORDINATOR: 1, JOIN: 5, HEARTBEAT: 3, LEAVE: 3, SYNC: 3}
COORDINATOR_LOADING, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 27, 79
SESSION_MS, REBALANCE_MS = 30_000, 60_000
TOPIC = "group-rebalance"
NO_INSTANCE = string(None)


def sized(data):
    return i32(len(data)) + data


SUBSCRIPTION = i16(0) + i32(1) + string(TOPIC) + i32(-1)


def assignment(partition):
    return i16(0) + i32(1) + string(TOPIC) + i32(1) + i32(partition) + i32(-1)


class Member:
    """One connection, with one request on its way at most."""

    def __init__(self, group, phase):
        self.group, self.phase = group, phase
        self.client = wire.Client(group.address)
        self.id, self.generation, self.assignment = "", -1, None
        self.asked = None  # The key of the request that is on its way.

    def ask(self, key, body):
        self.asked = key
        self.client.send(key, VERSIONS[key], string(self.group.name) + body)

    def join(self):
        self.assignment = None
        self.ask(JOIN, i32(SESSION_MS) + i32(REBALANCE_MS) + string(self.id) + NO_INSTANCE + string("consumer")
                 + i32(1) + string("range") + sized(SUBSCRIPTION))

    def beat(self):
        self.ask(HEARTBEAT, i32(self.generation) + string(self.id) + NO_INSTANCE)

    def answered(self):
        key, self.asked = self.asked, None
        answer = self.client.receive(key, VERSIONS[key])
        answer.i32()
        error = answer.i16()
        if key == JOIN and error == MEMBER_ID_REQUIRED:
            answer.i32(), answer.string(), answer.string()
            self.id = answer.string()
            self.join()
        elif error == REBALANCE_IN_PROGRESS:
            self.join()
        elif error:
            raise wire.KafkaError(f"request {key} of {self.id}", error)
        elif key == JOIN:
            self.generation, _, leader, self.id = answer.i32(), answer.string(), answer.string(), answer.string()
            assigned = b""
            members = answer.array(lambda: (answer.string(), answer.string(), answer.take(answer.i32()))[0])
            if leader == self.id:
                assigned = b"".join(string(each) + sized(assignment(n)) for n, each in enumerate(members))
            self.ask(SYNC, i32(self.generation) + string(self.id) + NO_INSTANCE + i32(len(members)) + assigned)
        elif key == SYNC:
            self.assignment = answer.take(answer.i32())
            self.group.beat_later(self)
        else:
            self.group.beat_later(self)


class Group:
    def __init__(self, address, name, heartbeat):
        self.address, self.name, self.heartbeat = address, name, heartbeat
        self.members, self.by_socket, self.beats, self.count = [], {}, [], 0
        self.poll = select.epoll()

    def add(self, phase):
        member = Member(self, phase)
        self.members.append(member)
        self.by_socket[member.client.socket.fileno()] = member
        self.poll.register(member.client.socket.fileno(), select.EPOLLIN)
        return member

    def beat_later(self, member):
        """At its place in the next interval."""
        now = time.perf_counter()
        passed = (now / self.heartbeat - member.phase) % 1
        self.count += 1  # Members that beat at the same time are not compared.
        heapq.heappush(self.beats, (now + (1 - passed) * self.heartbeat, self.count, member))

    def all_assigned(self):
        """Whether each has an assignment, all of one generation, and no two the same."""
        if any(each.assignment is None for each in self.members):
            return False
        assert len({each.assignment for each in self.members}) == len(self.members), "two have the same partition"
        return len({each.generation for each in self.members}) == 1

    def run(self, done, within=60):
        deadline = time.perf_counter() + within
        while not done():
            now = time.perf_counter()
            if now > deadline:
                raise SystemExit(f"not within {within} s: all {len(self.members)} members have an assignment")
            while self.beats and self.beats[0][0] <= now:
                member = heapq.heappop(self.beats)[2]
                if member in self.members and member.asked is None:
                    member.beat()
            wait = min(self.beats[0][0] - now, 1) if self.beats else 1
            for fileno, _ in self.poll.poll(max(wait, 0)):
                self.by_socket[fileno].answered()

    def leave(self, members):
        """All at once, over a connection of its own."""
        with wire.Client(self.address) as client:
            ids = b"".join(string(each.id) + NO_INSTANCE for each in members)
            answer = client.request(LEAVE, VERSIONS[LEAVE], string(self.name) + i32(len(members)) + ids)
            answer.i32()
            error = answer.i16()
            if error:
                raise wire.KafkaError("leave", error)
        for each in members:
            fileno = each.client.socket.fileno()
            self.poll.unregister(fileno)
            del self.by_socket[fileno]
            each.client.close()
            self.members.remove(each)


def wait_for_coordinator(address, name):
    """Of a Kafka that has never had a group it takes a moment."""
    with wire.Client(address) as client:
        for _ in range(100):
            answer = client.request(FIND_COORDINATOR, VERSIONS[FIND_COORDINATOR], string(name) + i8(0))
            answer.i32()
            error = answer.i16()
            if error not in (COORDINATOR_LOADING, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR):
                break
            time.sleep(0.1)
        if error:
            raise wire.KafkaError("find coordinator", error)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--broker", required=True, metavar="HOST:PORT", help="the group's coordinator")
    parser.add_argument("--members", type=int, default=500, help="members before another one joins (default: 500)")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--heartbeat-ms", type=float, default=100, help="interval between a member's heartbeats (default: 100)")
    options = parser.parse_args()
    if options.members < 1 or options.rounds < 1 or options.heartbeat_ms <= 0:
        parser.error("members, rounds and heartbeat-ms are more than 0")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    host, port = options.broker.rsplit(":", 1)
    group = Group((host, int(port)), f"{TOPIC}-{os.getpid()}", options.heartbeat_ms / 1000)
    wait_for_coordinator(group.address, group.name)
    for number in range(options.members):
        group.add(number / options.members).join()
    group.run(group.all_assigned)

    took, worked = [], []
    for _ in range(options.rounds):
        # At another moment of the interval each time, and not while the one before is still settling.
        quiet = time.perf_counter() + 3.3 * group.heartbeat
        group.run(lambda: time.perf_counter() > quiet and group.all_assigned())
        newcomer = group.add(0)
        began, cpu = time.perf_counter(), time.process_time()
        newcomer.join()
        group.run(group.all_assigned)
        took.append((time.perf_counter() - began) * 1000)
        worked.append((time.process_time() - cpu) * 1000)
        before = max(each.generation for each in group.members)
        group.leave([newcomer])
        group.run(lambda: group.all_assigned() and group.members[0].generation > before)
    group.leave(list(group.members))

    print(json.dumps({
        "members": options.members, "rounds": options.rounds, "heartbeat_ms": options.heartbeat_ms,
        "join_to_all_assigned_ms": {name: round(of(took), 1) for name, of in
                                    (("min", min), ("median", statistics.median), ("max", max))},
        "client_cpu_ms": round(statistics.median(worked), 1)}))


if __name__ == "__main__":
    main()
