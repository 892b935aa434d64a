"""The clients in JavaScript: installed once by npm into build/, run as a process an errand."""

import fcntl
import json
import pathlib
import shutil

import harness

SOURCE = pathlib.Path(__file__).resolve().parent / "clients"
INSTALLED = harness.ROOT / "build/integration-clients"


def install():
    """Copies the errands; runs npm when what package-lock.json says is not there yet."""
    INSTALLED.mkdir(parents=True, exist_ok=True)
    with open(INSTALLED / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for file in SOURCE.iterdir():
            copy = INSTALLED / file.name
            # Another case may be reading what is there: it is replaced whole, and only when it differs.
            if file.suffix == ".mjs" and not (copy.exists() and copy.read_bytes() == file.read_bytes()):
                shutil.copyfile(file, copy.with_suffix(".new"))
                copy.with_suffix(".new").replace(copy)
        wanted = (SOURCE / "package-lock.json").read_text()
        marker = INSTALLED / "node_modules/.installed"
        if marker.exists() and marker.read_text() == wanted:
            return
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copyfile(SOURCE / name, INSTALLED / name)
        harness.run("npm", "ci", "--prefix", INSTALLED, "--ignore-scripts", "--no-audit", "--no-fund", within=300)
        marker.write_text(wanted)


def member(program, broker, topic, group, die_after):
    """The command of a group's member."""
    for tool in ("node", "npm"):
        if not shutil.which(tool):
            raise harness.Skip(f"no {tool} here: scripts/install_deps --tests")
    install()
    return ["node", "--no-warnings", INSTALLED / f"{program}.mjs", "member", broker.brokers, topic, group, die_after]


def errand(program, what, broker, topic, within=60, **given):
    """Runs `program`.mjs and returns what it printed."""
    for tool in ("node", "npm"):
        if not shutil.which(tool):
            raise harness.Skip(f"no {tool} here: scripts/install_deps --tests")
    install()
    done = harness.run("node", "--no-warnings", INSTALLED / f"{program}.mjs", what, broker.brokers, topic,
                       stdin=json.dumps(given), within=within)
    return json.loads(done.stdout)
