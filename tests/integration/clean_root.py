"""A clean Debian in a folder, and a machine that has it as its root.

The root is made once by mmdebstrap or debootstrap and kept in the build directory. A machine is a
process with namespaces of its own (mounts, network, processes) and an overlay over that root: what
happens in it touches neither the root nor this machine, and all of it goes with that process.
"""

import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading

from harness import ROOT, Skip, run

SUITE = "bookworm"
PLACE = ROOT / "build/package-test"
making = threading.Lock()

# Runs as process 1 of the machine: loopback up, the root mounted, and then it waits to be ended.
HOLDER = """
import fcntl, os, pathlib, signal, socket, struct, subprocess, sys
base, place, shared = sys.argv[1:]
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
for name in ("upper", "work", "root"):
    os.mkdir(f"{place}/{name}")
root = f"{place}/root"
subprocess.run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={base},upperdir={place}/upper,workdir={place}/work", root], check=True)
subprocess.run(["mount", "-t", "proc", "proc", f"{root}/proc"], check=True)
subprocess.run(["mount", "--rbind", "/dev", f"{root}/dev"], check=True)
subprocess.run(["mount", "--bind", shared, f"{root}/mnt"], check=True)
pathlib.Path(f"{root}/etc/hosts").write_text("127.0.0.1 localhost\\n::1 localhost\\n")
pathlib.Path(f"{root}/etc/resolv.conf").write_text(pathlib.Path("/etc/resolv.conf").read_text())
print("up", flush=True)
signal.pause()
"""


def base(packages):
    """The folder of a clean root with these packages (names, without versions) and apt."""
    if os.geteuid() != 0:
        raise Skip("only root can make a clean root to install into")
    tool = next((each for each in ("mmdebstrap", "debootstrap") if shutil.which(each)), None)
    if not tool:
        raise Skip("neither mmdebstrap nor debootstrap is here: apt-get install mmdebstrap")
    wanted = ",".join(sorted(packages))
    root = PLACE / f"root-{hashlib.sha256(f'{SUITE} {wanted}'.encode()).hexdigest()[:12]}"
    with making:
        if root.exists():
            return root
        PLACE.mkdir(parents=True, exist_ok=True)
        new = pathlib.Path(tempfile.mkdtemp(prefix="new.", dir=PLACE))
        variant = ["--mode=root", "--variant=apt"] if tool == "mmdebstrap" else ["--variant=minbase"]
        made = run(tool, *variant, f"--include={wanted}", SUITE, new, check=False, within=300)
        if made.returncode != 0:
            shutil.rmtree(new)
            raise Skip(f"{tool} could not make a clean root: {(made.stderr or made.stdout).strip().splitlines()[-1:]}")
        new.chmod(0o755)
        new.rename(root)
        return root


class Machine:
    """with Machine(base) as machine: machine.run("dpkg", "-i", "/mnt/x.deb"); `shared` is its /mnt."""

    def __init__(self, root):
        self.base = root

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tarry-machine."))
        self.shared, self.place = self.folder / "shared", self.folder / "place"
        for each in (self.shared, self.place):
            each.mkdir()
        self.folder.chmod(0o755)
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", sys.executable, "-c", HOLDER,
             str(self.base), str(self.place), str(self.shared)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "up\n":
            said = self.holder.stderr.read().strip()
            self.__exit__()
            raise Skip(f"no machine of its own can be made here: {said.splitlines()[-1:]}")
        self.pid = int(pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text().split()[0])
        return self

    def __exit__(self, *_):
        self.holder.kill()
        self.holder.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, *words, user=None, cwd="/", env=None, network="own", init=False):
        """The words that run these words there. init: as process 1 of a namespace below."""
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--pid"] + (["--net"] if network == "own" else [])
        enter += ["unshare", "--pid", "--fork", "--kill-child"] if init else []
        enter += ["chroot", f"{self.place}/root"]
        enter += ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--no-new-privs"] if user else []
        variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "LC_ALL": "C.UTF-8",
                     "DEBIAN_FRONTEND": "noninteractive", **(env or {})}
        enter += ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
        return enter + ["sh", "-c", f"cd {shlex.quote(cwd)} && exec \"$@\"", "sh", *map(str, words)]

    def run(self, *words, check=True, within=120, **how):
        return run(*self.command(*words, **how), check=check, within=within)

    def shell(self, script, **how):
        return self.run("sh", "-ec", script, **how).stdout

    def spawn(self, *words, **how):
        return subprocess.Popen(self.command(*words, **how), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def exists(self, path):
        return self.run("test", "-e", path, check=False).returncode == 0

    def bring(self, path, name):
        shutil.copy(path, self.shared / name)

    def shared_copy(self, path):
        """The file of the machine at this path, where this process can read it."""
        name = path.replace("/", "_")
        self.run("cp", path, f"/mnt/{name}")
        return self.shared / name

    def processes(self, program):
        """The ids, as the machine's own, of the processes that run this program."""
        return self.shell(f'for p in /proc/[0-9]*; do [ "$(readlink $p/exe)" = {program} ] && echo ${{p#/proc/}}; done; true').split()
