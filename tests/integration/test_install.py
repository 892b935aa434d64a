"""What `cmake --install` puts somewhere, as those meet it who did not build it."""

import fcntl
import shutil

from harness import ROOT, Broker, Skip, case, run


def install(ctx):
    """The directory into which the build that the binary is from was installed."""
    build = ctx.options.binary.parent
    if not (build / "cmake_install.cmake").exists():
        raise Skip(f"{ctx.options.binary} does not lie in the directory it was built in")
    prefix = ctx.directory / "prefix"
    # It writes the unit with its prefix into the build before it copies it, so two at a time would mix them up.
    with open(ctx.options.binary.parent / "install.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # As the README and docs/operating.md have it.
        run("cmake", "--install", build, "--strip", "--prefix", prefix)
    return prefix


@case("the installed broker starts with the properties installed beside it")
def _(ctx):
    prefix = install(ctx)
    properties = prefix / "etc/tarry/tarry.properties"
    assert b".debug_info" not in (prefix / "bin/tarry").read_bytes(), "the debug symbols are installed"
    keys = run(prefix / "bin/tarry", "serve", "--help-config").stdout
    assert properties.read_text() == keys, f"{properties} is not what --help-config prints"
    directory = ctx.directory / "installed"
    directory.mkdir()
    broker = Broker(prefix / "bin/tarry", directory, arguments=["--config", str(properties)])
    ctx.brokers.append(broker)
    broker.start()
    assert broker.get("/status")["state"] == "running"


@case("the installed unit runs the installed program with the properties installed beside it, and systemd accepts the unit")
def _(ctx):
    prefix = install(ctx)
    unit = prefix / "lib/systemd/system/tarry.service"
    assert f"\nExecStart={prefix}/bin/tarry serve --config {prefix}/etc/tarry/tarry.properties\n" in unit.read_text(), unit.read_text()
    assert (prefix / "lib/sysusers.d/tarry.conf").read_text().startswith("u tarry ")
    for name in ("alerts.yml", "dashboard.json"):
        assert (prefix / "share/tarry" / name).read_text() == (ROOT / "packaging" / name).read_text()
    if not shutil.which("systemd-analyze"):
        raise Skip("no systemd-analyze here")
    backup = unit.with_name("tarry-backup.service")
    assert f"exec {prefix}/bin/tarry backup " in backup.read_text()
    said = run("systemd-analyze", "verify", "--man=no", unit, backup, backup.with_suffix(".timer"), check=False)
    assert "tarry" not in said.stderr, said.stderr
    for each in (unit, backup):
        exposure = run("systemd-analyze", "security", "--offline=yes", "--threshold=20", each, check=False)
        assert exposure.returncode == 0, exposure.stdout.splitlines()[-1:]


@case("a project of ten lines finds the installed package tarry, builds with tarry::timing and runs")
def _(ctx):
    for tool in ("cmake", "ninja", "c++"):
        if not shutil.which(tool):
            raise Skip(f"no {tool} here")
    prefix, project, build = install(ctx), ctx.directory / "project", ctx.directory / "build"
    shutil.copytree(ROOT / "tests/install", project)  # Far from our sources, so that none is found by chance.
    run("cmake", "-G", "Ninja", "-S", project, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("ninja", "-C", build, within=120)
    told = run(build / "reminder").stdout.splitlines()
    assert told == ["tea is ready", "the nap is over", "1200000 ms later", "the alarm rang"], told
    timing = prefix / "include/tarry/timing"
    public = sorted(str(path.relative_to(timing)) for path in timing.rglob("*") if path.is_file())
    assert {"timing_wheel.h", "service/timer_service.h"} < set(public), public
    assert all(name.endswith(".h") for name in public), public
