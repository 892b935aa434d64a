"""Prometheus' promtool and amtool: the installed ones, else those of Debian's packages, unpacked into the build directory."""

import os
import pathlib
import shutil
import tempfile
import threading

from harness import ROOT, Skip, run

PLACE = ROOT / "build"
fetching = threading.Lock()


def promtool():
    return tool("promtool", "prometheus")


def amtool():
    return tool("amtool", "prometheus-alertmanager")


def tool(name, package):
    """The path of the program. Nothing is installed, so no Prometheus is started."""
    if found := shutil.which(name):
        return pathlib.Path(found)
    with fetching:
        if not (PLACE / name).exists():
            fetch(name, package)
        return PLACE / name


def fetch(name, package):
    PLACE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        got = run("sh", "-c", f"cd {folder} && apt-get download -qq {package}", check=False, within=60)
        packages = list(pathlib.Path(folder).glob("*.deb"))
        if got.returncode != 0 or not packages:
            raise Skip(f"no {name} here, and its package {package} cannot be downloaded: {got.stderr.strip().splitlines()[-1:]}")
        run("sh", "-c", f"dpkg-deb --fsys-tarfile {packages[0]} | tar -x -C {folder} ./usr/bin/{name}")
        os.replace(f"{folder}/usr/bin/{name}", PLACE / name)
