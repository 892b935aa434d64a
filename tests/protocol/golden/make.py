#!/usr/bin/env python3
"""Makes golden messages of APIs in messages.schema, or checks those that are there.

Usage: make.py [--kafka 4.0.0] [--each 2] [--seed N] KEY[/VERSION]...    prints lines for messages.txt
       make.py [--kafka 4.0.0] --check                                   checks messages.txt

Random messages with the fields of our schema go through Kafka's own classes (kafka-clients, which
Maven brings from Maven Central): they read the JSON, and encode what they read.  So a field
that the schema names, types or places otherwise than Kafka is told.  Each version of the API, or
the one that is named, is made in both directions; versions that Kafka 4 dropped want --kafka 3.9.0.
Needs java (17 or later) and mvn; neither is needed to build or test Tarry.
"""

import argparse
import base64
import importlib.util
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
root = here.parents[2]
cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tarry-golden"
JARS = ("com.fasterxml.jackson.core:jackson-core:2.16.2", "com.fasterxml.jackson.core:jackson-databind:2.16.2",
        "com.fasterxml.jackson.core:jackson-annotations:2.16.2", "org.slf4j:slf4j-api:1.7.36",
        "org.slf4j:slf4j-nop:1.7.36")

parser = argparse.ArgumentParser()
parser.add_argument("--kafka", default="4.0.0")
parser.add_argument("--each", type=int, default=2, help="messages of each version and direction")
parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
parser.add_argument("--check", action="store_true")
parser.add_argument("keys", nargs="*", metavar="KEY[/VERSION]")
arguments = parser.parse_args()
if arguments.check == bool(arguments.keys):
    parser.error("give the keys of APIs, or --check")

spec = importlib.util.spec_from_file_location("generator", root / "protocol/generator.py")
generator = importlib.util.module_from_spec(spec)
sys.modules["generator"] = generator  # Its dataclasses look for it.
spec.loader.exec_module(generator)


def jars():
    for program in ("java", "mvn"):
        if not shutil.which(program):
            sys.exit(f"make.py: {program} is not installed")
    folder = cache / arguments.kafka
    for jar in (*JARS, f"org.apache.kafka:kafka-clients:{arguments.kafka}"):
        name, version = jar.split(":")[1:]
        if not (folder / f"{name}-{version}.jar").exists():
            print(f"make.py: fetching {name} {version}", file=sys.stderr)
            subprocess.run(["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={jar}",
                            f"-DoutputDirectory={folder}"], check=True, stdout=sys.stderr)
    return folder


def through_kafka(lines):
    ran = subprocess.run(["java", "-cp", f"{jars()}/*", here / "MakeGolden.java"],
                         input="".join(f"{line}\n" for line in lines), capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(ran.stderr)
    return ran.stdout.splitlines()


class Values:
    """Random values of fields, in the form of Kafka's JSON."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def text(self):
        return "".join(self.random.choices("abcdef0123456789.-_é", k=self.random.choice([0, 1, 5, 20, 130])))

    def data(self):
        return self.random.randbytes(self.random.choice([0, 1, 7, 130]))

    def primitive(self, kind):
        if kind == "f64":
            return self.random.choice([0.0, 1.0, -0.5, 1024.25, 1000000.0])
        if kind in generator.NUMBERS:
            bits = 8 * generator.NUMBERS[kind][1]
            edge = 1 << (bits - 1)
            return self.random.choice([0, 1, -1, self.random.randrange(-edge, edge)])
        if kind == "bool":
            return self.random.random() < 0.5
        if kind == "uuid":
            return base64.urlsafe_b64encode(self.random.randbytes(16)).decode().rstrip("=")
        if kind == "str":
            return self.text()
        if kind == "records":
            return ""  # Kafka's classes look into them.
        return base64.b64encode(self.data()).decode()

    def value(self, field, version):
        if field.nullable and field.nullable.has(version) and self.random.random() < 0.2:
            return None
        if not field.is_array:
            return self.fields(field.fields, version) if field.type == "struct" else self.primitive(field.type)
        count = self.random.choice([0, 1, 2])
        if field.type == "struct":
            return [self.fields(field.fields, version) for _ in range(count)]
        return [self.primitive(field.type) for _ in range(count)]

    def fields(self, fields, version):
        made = {}
        for field in fields:
            if not field.versions.has(version):
                continue
            value = self.value(field, version)
            # Kafka's JSON leaves out a tagged field that has its default.
            if field.tag is None or value != default_of(field, version):
                made[generator.lower_camel(field.name)] = value
        return made


def default_of(field, version):
    if field.is_array:
        return None if field.nullable and field.nullable.has(version) else []
    if field.default is not None:
        return {"true": True, "false": False, "null": None}.get(field.default) if field.default.isalpha() \
            else int(field.default)
    if field.nullable and field.nullable.has(version):
        return None
    return {"bool": False, "str": "", "bytes": "", "uuid": "A" * 22}.get(field.type, 0)


def make():
    apis = {api.key: api for api in generator.parse_schema((root / "protocol/messages.schema").read_text())}
    values, lines = Values(arguments.seed), []
    for wanted in arguments.keys:
        key, _, only = wanted.partition("/")
        if not key.isdecimal() or (only and not only.isdecimal()):
            sys.exit(f"make.py: {wanted}: give KEY or KEY/VERSION, as in 3 or 3/13")
        api = apis.get(int(key))
        if api is None or (only and not api.versions.has(int(only))):
            sys.exit(f"make.py: messages.schema has no API {wanted}")
        for name, letter in (("Request", "q"), ("Response", "p")):
            for version in [int(only)] if only else range(api.versions.low, api.versions.high + 1):
                for _ in range(arguments.each):
                    message = values.fields(api.messages[name], version)
                    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
                    lines.append(f"{key} {letter} {version} {text}")
    made = through_kafka(lines)
    bad = [line for line in made if line.startswith("!")]
    print("\n".join(dict.fromkeys(line for line in made if not line.startswith("!"))))
    print(f"make.py: --seed {arguments.seed} --kafka {arguments.kafka}: {len(made) - len(bad)} messages, {len(bad)} refused",
          *bad, sep="\n", file=sys.stderr)
    return bool(bad)


def check():
    golden = [line for line in (here / "messages.txt").read_text().splitlines() if line]
    made = through_kafka(line.split(" = ")[0].split(" ~ ")[0] for line in golden)
    other, passed_over = [], 0
    for line, said in zip(golden, made, strict=True):
        if said.startswith("!"):
            passed_over += "this Kafka has only versions" in said
            if "this Kafka has only versions" not in said:
                other.append(said)
        # Where "~" stands the bytes are other than those that are written.
        elif said != line and said.split(" = ", 1)[1] != line.split(" ~ ", 1)[-1]:
            other.append(f"{line}\n  Kafka: {said}")
    print("\n".join(other) or f"{len(golden) - passed_over} messages are Kafka {arguments.kafka}'s; "
          f"{passed_over} are of versions that it does not have")
    return bool(other)


sys.exit(check() if arguments.check else make())
