"""scripts/quickstart, as somebody meets it who has the sources alone."""

import re
import shutil
import subprocess

from harness import ROOT, Skip, case, run


@case("scripts/quickstart says what it is doing and since when, and shows a delayed record that survives kill -9 and is not early")
def _(ctx):
    build = ROOT / "build" / "release"
    if ctx.options.binary.resolve() != (build / "tarry").resolve():
        raise Skip("another binary is tested, and the quickstart would build this one first")
    if not shutil.which("kcat"):
        raise Skip("kcat is not installed, and the quickstart would install it")
    if "no work to do" not in subprocess.run(["ninja", "-C", build, "-n", "tarry"], capture_output=True, text=True).stdout:
        raise Skip("the quickstart would build for minutes")
    done = run(ROOT / "scripts/quickstart", within=180)
    said = done.stdout.splitlines()
    assert re.match(r"\[ 0m0\ds\] looking for the packages .* some minutes", said[0]), said[0]
    assert re.search(r"building the broker \(some minutes", said[1]), said[1]
    due = re.search(r"'three seconds later', (\d+) ms after it was sent, (\d+) ms after it was due", done.stdout)
    assert due and int(due[1]) >= 3000, done.stdout
    assert re.search(r"'at once'", done.stdout) and "kill -9 " in done.stdout and "survived kill -9 and arrived on time" in done.stdout, done.stdout
    pid = re.search(r"process (\d+)", done.stdout)[1]
    assert run("kill", "-0", pid, check=False).returncode != 0, "it has left the broker running"


@case("scripts/install_deps does nothing and says nothing where everything is installed")
def _(ctx):
    packages = re.findall(r"[\w.+-]+", re.search(r"^build=\((.*?)\)$", (ROOT / "scripts/install_deps").read_text(), re.S | re.M)[1])
    assert "cmake" in packages and len(packages) > 20, packages
    there = run("dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Package}\n", *packages, check=False).stdout
    if {f"ii {name}" for name in packages} - set(there.splitlines()):
        raise Skip("a package is missing, which it would install")
    done = run(ROOT / "scripts/install_deps")
    assert (done.stdout, done.stderr) == ("", ""), done
