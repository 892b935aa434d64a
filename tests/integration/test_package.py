"""The package's life on a clean Debian, the container's last steps, and what Prometheus and Grafana get.

There is no systemd: the broker is started by the words of the unit, as its user, in its directory,
with its socket for notices; and no container engine: the steps of the Containerfile's last stage
are run one after the other in a root of their own."""

import gzip
import json
import posixpath
import re
import shlex
import shutil
import socket
import threading

import clean_root
import wire
from harness import ROOT, Skip, case, eventually, run
from promtool import amtool, promtool

PROPERTIES = "/etc/tarry/tarry.properties"
QUICKLY = {"DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1", "SOURCE_DATE_EPOCH": "1700000000"}
packing = threading.Lock()


def package(ctx):
    """The .deb of the binary under test, packed once for all cases, quickly rather than tightly."""
    for tool in ("dpkg-deb", "dpkg-shlibdeps", "objcopy"):
        if not shutil.which(tool):
            raise Skip(f"no {tool} here: apt-get install dpkg-dev")
    with packing:
        binary = ctx.options.binary
        folder = clean_root.PLACE / "packages"
        mark = folder / "made-of"
        made_of = f"{binary} {binary.stat().st_mtime_ns} {max(path.stat().st_mtime_ns for path in sources())}"
        if not mark.exists() or mark.read_text() != made_of:
            shutil.rmtree(folder, ignore_errors=True)
            run(ROOT / "scripts/package", "--binary", binary, "--out", folder, within=300,
                env=QUICKLY)
            mark.write_text(made_of)
        deb, = folder.glob("tarry_*.deb")
        return deb


def sources():
    return [ROOT / "scripts/package", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md"),
            *(path for path in (ROOT / "packaging").rglob("*") if path.is_file())]


def fields(deb):
    return dict(line.split(": ", 1) for line in run("dpkg-deb", "-f", deb).stdout.splitlines() if re.match(r"[\w-]+: ", line))


def names_of(dependencies):
    return [re.match(r"[\w.+-]+", each.strip())[0] for each in dependencies.split(",")]


def unit(text):
    """Key -> value of the lines of a unit; of keys that are given more than once, the first."""
    values = {}
    for line in text.splitlines():
        if re.match(r"\w+=", line):
            key, value = line.split("=", 1)
            values.setdefault(key, value)
    return values


class Service:
    """What systemd would start of the installed unit, and the notices that it would get."""

    def __init__(self, machine, environment=None):
        self.machine = machine
        told = machine.shared / "notify"
        told.unlink(missing_ok=True)
        self.notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notices.bind(str(told))
        told.chmod(0o666)
        self.notices.settimeout(30)
        parts = unit(machine.shell("cat /lib/systemd/system/tarry.service"))
        assert parts["Type"] == "notify" and parts["StateDirectory"] == "tarry", parts
        self.process = machine.spawn(*shlex.split(parts["ExecStart"]), user=parts["User"], cwd=parts["WorkingDirectory"],
                                     env={"NOTIFY_SOCKET": "/mnt/notify", **(environment or {})})
        self.ready = self.process.stdout.readline().strip()
        assert self.ready.startswith("tarry ready "), self.ready or self.process.communicate(timeout=30)[1]

    def told(self):
        return self.notices.recv(4096).decode()

    def stop(self):
        self.machine.shell("kill -TERM " + re.search(r" pid=(\d+)", self.ready)[1])
        try:
            return self.process.wait(30)
        finally:
            self.process.communicate()
            self.notices.close()


def check_installed(machine):
    """Who owns what, and that every file is what the package says."""
    def look(path):
        return machine.shell(f"stat -c '%U:%G %a' {path}").strip()

    assert look("/var/lib/tarry") == "tarry:tarry 700", look("/var/lib/tarry")
    assert look(PROPERTIES) == "root:tarry 640", look(PROPERTIES)
    passwd = machine.shell("getent passwd tarry").strip().split(":")
    assert passwd[5:] == ["/var/lib/tarry", "/usr/sbin/nologin"], passwd
    assert machine.run("dpkg", "--verify", "tarry").stdout == ""
    assert machine.exists("/etc/systemd/system/multi-user.target.wants/tarry.service"), "the service is not enabled"

    assert not machine.exists("/etc/systemd/system/timers.target.wants/tarry-backup.timer"), "the nightly copy is enabled"
    assert unit(machine.shell("cat /lib/systemd/system/tarry-backup.timer"))["OnCalendar"] == "*-*-* 02:30"

    listed = machine.shell("tarry man --list").split()
    assert {"serve", "produce", "consume", "delayed", "topic", "group", "status"} <= set(listed), listed
    for page in ["tarry", *(f"tarry-{command}" for command in listed)]:
        text = gzip.decompress((machine.shared_copy(f"/usr/share/man/man1/{page}.1.gz")).read_bytes()).decode().replace("\\-", "-")
        assert re.search(rf"^\.TH \"?{re.escape(page)}\"? ", text, re.M | re.I), f"{page}: {text[:200]}"
    for shell, path in (("bash", "/usr/share/bash-completion/completions/tarry"), ("zsh", "/usr/share/zsh/vendor-completions/_tarry"),
                        ("fish", "/usr/share/fish/vendor_completions.d/tarry.fish")):
        text = machine.shell(f"cat {path}")
        assert text == machine.shell(f"tarry completion {shell}") and "tarry" in text, f"{path}: {text[:200]}"
        if shutil.which(shell):
            run(shell, "-n", machine.shared_copy(path))
    assert "No licence has been chosen" in machine.shell("cat /usr/share/doc/tarry/copyright")
    pages = {"operating", *re.findall(r"\]\(([a-z_]+)\.md", (ROOT / "docs/operating.md").read_text())}
    assert "security" in pages and "upgrading" in pages, pages
    for page in pages:
        assert machine.exists(f"/usr/share/doc/tarry/{page}.md.gz"), f"operating.md names {page}.md, and the package lacks it"
    installed = set(machine.shell("cd /usr/share/doc/tarry && find . -type f -printf '%P\\n'").split())
    links = 0
    for page in sorted(name for name in installed if name.endswith(".md.gz")):
        text = gzip.decompress(machine.shared_copy(f"/usr/share/doc/tarry/{page}").read_bytes()).decode()
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in target:
                path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
                assert path in installed or f"{path}.gz" in installed, f"{page} links to {target}, and the package lacks it"
                links += 1
    assert links > 100 and "recipes/go/retry/main.go" in installed, (links, installed)
    for name in ("alerts.yml", "dashboard.json"):
        assert machine.shell(f"cat /usr/share/tarry/{name}") == (ROOT / "packaging" / name).read_text(), name


def back_up_as_the_unit(machine):
    """What tarry-backup.service does, as its user: a new copy, and the oldest goes."""
    text = machine.shell("cat /lib/systemd/system/tarry-backup.service")
    parts = unit(text)
    environment = dict(line.split("=", 2)[1:] for line in text.splitlines() if line.startswith("Environment="))
    copies = environment["BACKUPS"]
    machine.shell(f"install -d -o tarry -g tarry -m 700 {copies}")
    machine.shell(f"install -d -o tarry {copies}/2020-01-01T0230 {copies}/mine && touch -d 2020-01-01 {copies}/2020-01-01T0230 {copies}/mine")
    for key in ("ExecStart", "ExecStartPost"):
        # As systemd reads it.
        words = shlex.split(parts[key].replace("%%", "%").replace("$$", "$"))
        machine.run("env", *(f"{name}={value}" for name, value in environment.items()), *words, user=parts["User"])
    found = machine.shell(f"ls {copies}").split()
    assert len(found) == 2 and re.fullmatch(r"2\d{3}-\d\d-\d\dT\d{4}", found[0]) and found[1] == "mine", found
    assert "order-1" in machine.run("tarry", "dump", "pending", f"{copies}/{found[0]}").stdout
    machine.shell(f"rm -r {copies}")


def another_version(deb, folder, version):
    """The same package with another version and one more line in its settings, as a later one may have."""
    tree = folder / "tree"
    run("dpkg-deb", "-R", deb, tree)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*$", f"Version: {version}", control.read_text(), flags=re.M))
    settings = tree / PROPERTIES.lstrip("/")
    settings.write_text(settings.read_text() + "# A line of the later version.\n")
    path = folder / f"tarry_{version}.deb"
    run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", tree, path)
    return path


@case("the package installs on a clean Debian, serves by its unit, keeps data over upgrade and removal, and a purge leaves nothing")
def _(ctx):
    deb = package(ctx)
    version = fields(deb)["Version"]
    assert run(ctx.options.binary, "--version").stdout.split()[-1] == version
    assert deb.name == f"tarry_{version}_{fields(deb)['Architecture']}.deb", deb.name
    with clean_root.Machine(clean_root.base(names_of(fields(deb)["Depends"]))) as machine:
        machine.bring(deb, "tarry.deb")
        machine.run("dpkg", "-i", "/mnt/tarry.deb")
        check_installed(machine)

        service = Service(machine, {"WATCHDOG_USEC": "400000"})
        assert " data=/var/lib/tarry " in service.ready and " kafka=127.0.0.1:9092 admin=127.0.0.1:8080 " in service.ready, service.ready
        assert service.told().startswith("READY=1\nSTATUS=serving kafka=127.0.0.1:9092 "), "READY=1 is not the first notice"
        assert service.told() == "WATCHDOG=1"
        machine.run("tarry", "topic", "create", "orders")
        machine.run("tarry", "produce", "orders", "-v", "now")
        machine.run("tarry", "produce", "orders", "-v", "later", "--delay", "1h", "--id", "order-1")
        back_up_as_the_unit(machine)
        checked = machine.run("tarry", "doctor", check=False).stdout
        assert "broker\tok\t" in checked and f"settings\tok\t{PROPERTIES} can be used\n" in checked and "\nports\t" not in checked, checked
        checked = machine.run("env", "TARRY_ADMIN=127.0.0.1:8080", "tarry", "doctor", check=False).stdout
        assert f"settings\tok\t{PROPERTIES} is not checked, because $TARRY_ADMIN names the broker 127.0.0.1:8080" in checked, checked
        assert service.stop() == 0
        machine.shell("chown root: /var/lib/tarry/db")
        checked = machine.run("tarry", "doctor", check=False).stdout
        assert "data directory\tproblem\t/var/lib/tarry/db does not belong to tarry, the user that runs the service" in checked, checked
        machine.shell("chown tarry: /var/lib/tarry/db")
        owners = machine.shell("find /var/lib/tarry ! -user tarry -o -perm /077 ! -type l").strip()
        assert owners == "", f"open to others, or not the user's own: {owners}"

        machine.shell(f"sed -i s/^num.partitions=.*/num.partitions=3/ {PROPERTIES}")
        machine.bring(another_version(deb, ctx.directory, version + "+later"), "later.deb")
        machine.run("dpkg", "-i", "--force-confold", "/mnt/later.deb")
        assert "num.partitions=3" in machine.shell(f"cat {PROPERTIES}"), "the upgrade has replaced the settings"
        assert "A line of the later version" in machine.shell(f"cat {PROPERTIES}.dpkg-dist")
        assert machine.shell(f"stat -c '%U:%G %a' {PROPERTIES}").strip() == "root:tarry 640"
        service = Service(machine)
        pending = json.loads(machine.run("tarry", "delayed", "list", "orders", "--json").stdout)
        assert pending["id"] == "order-1", pending
        assert machine.run("tarry", "consume", "orders", "--until-end").stdout.split() == ["now"]
        machine.run("tarry", "delayed", "cancel", "orders", "order-1", "--data", "/var/lib/tarry")
        machine.run("tarry", "topic", "create", "by-the-settings")
        assert len(json.loads(machine.run("tarry", "topic", "describe", "by-the-settings", "--json").stdout)["partitions"]) == 3
        assert service.stop() == 0

        machine.run("dpkg", "-r", "tarry")
        assert not machine.exists("/usr/bin/tarry") and not machine.exists("/lib/systemd/system/tarry.service")
        assert machine.exists("/var/lib/tarry/meta.properties") and machine.exists(PROPERTIES)
        machine.run("dpkg", "-i", "--force-confold", "/mnt/later.deb")
        service = Service(machine)
        assert "orders" in machine.run("tarry", "topic", "list").stdout
        assert service.stop() == 0

        machine.run("dpkg", "-P", "tarry")
        left = machine.shell("find / -xdev -iname '*tarry*' ! -path '/proc/*' ! -path '/mnt*'").split()
        assert left == [], left
        assert machine.run("dpkg", "-s", "tarry", check=False).returncode != 0


@case("the package's debug symbols are those of its program")
def _(ctx):
    deb = package(ctx)
    symbols, = deb.parent.glob("tarry-dbgsym_*.deb")
    for each, folder in ((deb, "program"), (symbols, "symbols")):
        run("dpkg-deb", "-x", each, ctx.directory / folder)
    program = ctx.directory / "program/usr/bin/tarry"
    build_id = re.search(r"Build ID: (\w+)", run("readelf", "-n", program).stdout)[1]
    assert fields(symbols)["Build-Ids"] == build_id
    assert fields(symbols)["Depends"] == f"tarry (= {fields(deb)['Version']})"
    found = ctx.directory / f"symbols/usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug"
    sections = run("readelf", "-SW", program).stdout
    assert ".debug_info" not in sections and ".symtab" not in sections and ".gnu_debuglink" in sections, sections
    assert ".debug_info" in run("readelf", "-SW", found).stdout
    assert program.stat().st_size < 20e6, f"the program has {program.stat().st_size} bytes"


@case("the same program gives the same package, byte for byte, in another place, time zone and language")
def _(ctx):
    deb = package(ctx)
    (ctx.directory / "tmp").mkdir()
    run(ROOT / "scripts/package", "--binary", ctx.options.binary, "--out", ctx.directory / "again", within=300,
        env={**QUICKLY, "TMPDIR": str(ctx.directory / "tmp"), "TZ": "Asia/Tokyo", "LANG": "de_DE.UTF-8"})
    again = sorted((ctx.directory / "again").iterdir())
    assert len(again) == 2
    for path in again:
        assert path.read_bytes() == (deb.parent / path.name).read_bytes(), path.name


def final_stage(text):
    """The instructions of the last stage of a Containerfile: [(WORD, rest)], lines joined, comments gone."""
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.M)
    lines = [re.sub(r"\s+", " ", line).strip() for line in re.sub(r"\\\n", " ", text).splitlines()]
    steps = [tuple(line.split(" ", 1)) for line in lines if line]
    last = max(i for i, (word, _) in enumerate(steps) if word == "FROM")
    return steps[:last], steps[last:]


@case("every file that the Containerfile copies is there, and its first stage makes the package where the last one looks for it")
def _(ctx):
    build, final = final_stage((ROOT / "Containerfile").read_text())
    copied = [rest.split()[0] for word, rest in build + final if word == "COPY"]
    assert copied and all((ROOT / path).exists() for path in copied), copied
    commands = [rest for word, rest in build if word == "RUN"]
    assert all((ROOT / command.split()[0]).exists() for command in commands), commands
    assert "scripts/package" in commands and ("WORKDIR", "/src") in build, build
    mount = re.search(r"--mount=type=bind,from=(\w+),source=(\S+),target=(\S+)", " ".join(rest for word, rest in final if word == "RUN"))
    assert mount[1] in build[0][1].split(" AS ")[1:], (mount[0], build[0])
    assert mount[2] == "/src/build/package", "scripts/package writes build/package"
    # podman's own format of images has no HEALTHCHECK.
    for name in ("Containerfile", "docs/operating.md"):
        builds = re.findall(r"podman build.*", (ROOT / name).read_text())
        assert builds and all("--format docker" in line for line in builds), (name, builds)
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not set(copied) & set(ignored) and not {"scripts", "packaging", "docs", "CHANGELOG.md"} & set(ignored), ignored


@case("the image of the Containerfile's last stage serves as process 1 of an ordinary user, is healthy only then, and stops in order")
def _(ctx):
    deb = package(ctx)
    _, final = final_stage((ROOT / "Containerfile").read_text())
    words = {word: rest for word, rest in final}
    assert words["FROM"].endswith(f"debian:{clean_root.SUITE}-slim"), words["FROM"]
    entry, arguments = json.loads(words["ENTRYPOINT"]), json.loads(words["CMD"])
    health = json.loads(words["HEALTHCHECK"].split(" CMD ", 1)[1])
    # The command gives up after 10 s and says why; an engine that ended it at that moment would say nothing.
    assert int(re.search(r"--timeout=(\d+)s ", words["HEALTHCHECK"])[1]) > 10, words["HEALTHCHECK"]
    with clean_root.Machine(clean_root.base(names_of(fields(deb)["Depends"]))) as machine:
        for word, rest in final:
            if word == "RUN":
                mounted = re.search(r"target=(\S+)", rest)[1]
                machine.run("mkdir", "-p", mounted)
                machine.bring(deb, deb.name)
                machine.run("cp", f"/mnt/{deb.name}", mounted)
                # Only this step may use the network.
                machine.run("sh", "-c", re.sub(r"--mount=\S+ ", "", rest), network="outer", within=300)
                machine.run("rm", "-r", mounted)
        # Kubernetes refuses a name under runAsNonRoot; the number is that of the package's user.
        assert words["USER"].isdecimal() and machine.shell("id -u tarry").strip() == words["USER"], words["USER"]
        place = {"user": words["USER"], "cwd": words["WORKDIR"]}
        assert machine.run(*health, **place, check=False).returncode == 1, "healthy without a broker"
        broker = machine.spawn(*entry, *arguments, **place, init=True)
        ready = broker.stdout.readline().strip()
        assert " data=/var/lib/tarry " in ready and " pid=1 " in ready, ready or broker.communicate(timeout=30)[1]
        for port in words["EXPOSE"].split():
            assert f":{port} " in ready, (port, ready)
        assert words["VOLUME"] == "/var/lib/tarry"
        machine.run(*health, **place)
        machine.run("tarry", "topic", "create", "orders", **place)
        number, = machine.processes("/usr/bin/tarry")
        machine.shell(f"kill -TERM {number}")
        assert broker.wait(30) == 0, broker.stderr.read()
        assert "SIGTERM: stopping" in broker.communicate()[1]


def rules():
    """Name of an alert -> its rule's text."""
    text = (ROOT / "packaging/alerts.yml").read_text()
    return {part.split("\n", 1)[0].strip(): part for part in text.split("- alert:")[1:]}


def expressions():
    """What alerts and dashboard ask of Prometheus: [(where, PromQL)], Grafana's variables filled in."""
    found = []
    for name, rule in rules().items():
        expression = re.search(r"^ +expr: (?:>-\n)?(.*?)(?=^ +(?:for|labels|annotations):)", rule, re.M | re.S)[1]
        found.append((name, re.sub(r"\s+", " ", expression).strip()))

    def panels(within):
        for panel in within:
            yield panel
            yield from panels(panel.get("panels", []))

    dashboard = json.loads((ROOT / "packaging/dashboard.json").read_text())
    for panel in panels(dashboard["panels"]):
        for target in panel.get("targets", []):
            found.append((panel["title"], target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*")))
    return found


@case("alerts and dashboard ask for metrics that a broker has, by labels that they have")
def _(ctx):
    broker = ctx.broker()
    with broker.client() as client:
        topic = client.create_topic(ctx.topic())
        client.produce(topic, [wire.record("v")])
        client.produce(topic, [wire.record("bad", x_delay="soon")], check=False)
    broker.cli("produce", topic, "-v", "later", "--delay", "1h")
    broker.cli("produce", topic, "-v", "soon", "--delay", "1ms")
    broker.cli("consume", topic, "-g", "readers", "-n", "1")
    eventually(lambda: broker.get("/status")["delayed"]["delivered_total"] >= 1, "a delivery")
    metrics = broker.get("/metrics")
    labels = {"up": {"job", "instance"}}
    for name, rest in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", metrics, re.M):
        labels.setdefault(name, set()).update({"job", "instance", *re.findall(r'(\w+)="', rest)})
    # A relay needs Kafka's transactions, so none can run beside this broker.
    for source in (ROOT / "relay").glob("*.cc"):
        for name in re.findall(r'"(tarry_relay_\w+)"', source.read_text()):
            labels[name] = {"job", "instance"}
    missing = set()
    for where, expression in expressions():
        bare = re.sub(r'"[^"]*"', '""', expression)
        asked = re.findall(r"\b((?:tarry|process)_\w+|up)\b(?:\{([^}]*)\})?", bare)
        assert asked, f"{where}: no metric in {expression}"
        known = set()
        for name, selector in asked:
            if name not in labels:
                missing.add(f"{where}: {name}")
            known |= labels.get(name, set())
            missing |= {f"{where}: {name}{{{label}}}" for label in re.findall(r"(\w+)\s*[=!]", selector) if label not in labels.get(name, set())}
        for grouped in re.findall(r"\b(?:by|on) \(([^)]*)\)", bare):
            missing |= {f"{where}: by {label}" for label in re.findall(r"\w+", grouped) if label not in known}
    assert not missing, sorted(missing)


@case("promtool finds the alert rules right, each fires when it should and is silent when all is well, and the dashboard's queries can be read")
def _(ctx):
    tool = promtool()
    place = ROOT / "packaging"
    run(tool, "check", "rules", place / "alerts.yml")
    tests = (place / "alerts_test.yml").read_text()
    untested = [name for name in rules() if len(re.findall(rf"alertname: {name}\n", tests)) < 2]
    assert untested == [], f"without a test that it fires and one that it does not: {untested}"
    run(tool, "test", "rules", place / "alerts_test.yml")
    told = re.search(r"\n((?:    [^\n]*\n)*    rule_files: .*?\n)\n", (ROOT / "docs/operating.md").read_text(), re.S)[1]
    config = ctx.directory / "prometheus.yml"
    config.write_text(re.sub(r"^    ", "", told, flags=re.M).replace("/usr/share/tarry/alerts.yml", str(place / "alerts.yml")))
    assert "alertmanagers" in config.read_text()
    run(tool, "check", "config", config)
    page = (ROOT / "docs/operating.md").read_text()
    examples = re.findall(r"\n((?:    [^\n]*\n)*    groups:\n(?:    [^\n]*\n)*)\n", page)
    assert len(examples) == 1 and "TarryBackupMissing" in examples[0], examples
    for text in examples:
        example = ctx.directory / "example.yml"
        example.write_text(re.sub(r"^    ", "", text, flags=re.M))
        run(tool, "check", "rules", example)
    as_rules = ctx.directory / "dashboard.yml"
    as_rules.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": [
        {"record": f"panel_{i}", "expr": expression} for i, (_, expression) in enumerate(expressions())]}]}))
    run(tool, "check", "rules", as_rules)


@case("amtool finds the Alertmanager's file of docs/operating.md right, and it sends alerts to people and infos to nobody")
def _(ctx):
    tool = amtool()
    text = re.search(r"\n((?:    [^\n]*\n)*    receivers:\n(?:    [^\n]*\n)*)\n", (ROOT / "docs/operating.md").read_text())[1]
    config = ctx.directory / "alertmanager.yml"
    config.write_text(re.sub(r"^    ", "", text, flags=re.M))
    run(tool, "check-config", config)
    goes = lambda severity: run(tool, "config", "routes", "test", f"--config.file={config}", f"severity={severity}").stdout.strip()
    assert [goes(severity) for severity in ("critical", "warning", "info")] == ["operators", "operators", "nobody"]


@case("every alert is explained in docs/operating.md, and docs/http.md says which metrics do not begin with their part")
def _(ctx):
    page = (ROOT / "docs/operating.md").read_text()
    assert [name for name in rules() if f"`{name}`" not in page] == []
    page = (ROOT / "docs/http.md").read_text()
    said = re.search(r"\((`tarry_delay_`.*?)\) and\s", page, re.S)[1]
    parts, rest = said.split("; four have shorter names: ")
    named = {name for source in ROOT.glob("[a-z]*/**/*.*") if source.suffix in (".h", ".cc")
             and source.relative_to(ROOT).parts[0] not in ("bench", "build", "relay", "tests") for name in re.findall(r'"(tarry_[a-z_]*[a-z])"', source.read_text())}
    assert len(named) > 50, named
    short = {name for name in named if not name.startswith(tuple(re.findall(r"`(\w+)`", parts)))}
    assert short == set(re.findall(r"`(\w+)`", rest)) and len(short) == 4, short
