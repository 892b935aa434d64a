"""Prometheus' promtool: the installed one, else the one of Debian's package, unpacked into the build directory."""

import os
import pathlib
import shutil
import tempfile
import threading

from harness import ROOT, Skip, run

PLACE = ROOT / "build/promtool"
fetching = threading.Lock()


def promtool():
    """The path of the program. Nothing is installed, so no Prometheus is started."""
    if found := shutil.which("promtool"):
        return pathlib.Path(found)
    with fetching:
        if not PLACE.exists():
            fetch()
        return PLACE


def fetch():
    PLACE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PLACE.parent) as folder:
        got = run("sh", "-c", f"cd {folder} && apt-get download -qq prometheus", check=False, within=60)
        packages = list(pathlib.Path(folder).glob("*.deb"))
        if got.returncode != 0 or not packages:
            raise Skip(f"no promtool here, and its package cannot be downloaded: {got.stderr.strip().splitlines()[-1:]}")
        run("sh", "-c", f"dpkg-deb --fsys-tarfile {packages[0]} | tar -x -C {folder} ./usr/bin/promtool")
        os.replace(f"{folder}/usr/bin/promtool", PLACE)
