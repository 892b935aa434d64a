#!/usr/bin/python3
"""Kernel TLS in a virtual machine, for machines whose own kernel has no module "tls": the tests of TLS, and brokers.

    tests/integration/kernel_tls.py --build build/debug    # tarry and server_tests of that build

Not among the cases of run.py, because it needs root, minutes, and the packages qemu-system-x86, busybox-static, cpio and
kmod. The virtual machine boots Debian's kernel, which is unpacked into the build directory, with this machine's files;
what it writes is lost when it ends. Inside, the unit tests and the cases of TLS have to pass, to have sent by the kernel,
and to have received nothing by it (/proc/net/tls_stat). The last line is "kernel TLS: all is well".
"""

import argparse
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

import harness
from harness import ROOT, run

VIRTIOFSD = [pathlib.Path(path) for path in ("/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd")]
MODULES = ("virtio_pci", "virtiofs", "overlay")
WELL = "kernel TLS: all is well"

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
for module in {modules}; do insmod /modules/$module.ko; done
mkdir /lower /upper /whole
mount -t virtiofs -o ro root /lower && mount -t tmpfs -o size=90% tmpfs /upper && mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /whole
for place in proc sys dev; do mount --move /$place /whole/$place; done
mount -t tmpfs tmpfs /whole/run; mkdir -p /whole/dev/shm; mount -t tmpfs tmpfs /whole/dev/shm
mkdir -p /whole/usr/lib/modules; mount --bind /lower{kernel}/lib/modules /whole/usr/lib/modules
ifconfig lo 127.0.0.1 up
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
exec switch_root /whole {script} --inside --build {build} --command {command}
"""


# --- This machine -----------------------------------------------------------------------------------------


def unpacked_kernel():
    """The directory with boot/ and lib/modules/ of Debian's kernel for virtual machines."""
    place = ROOT / "build/kernel"
    if not list(place.glob("boot/vmlinuz-*")):
        package = re.search(r"Depends: (\S+)", run("apt-cache", "depends", "linux-image-cloud-amd64").stdout)[1]
        with tempfile.TemporaryDirectory() as folder:
            run("sh", "-c", f"cd {folder} && apt-get download -qq {package}", within=300)
            run("sh", "-c", f"dpkg-deb -x {folder}/*.deb {place}", within=300)
        run("depmod", "-b", place, next(place.glob("lib/modules/*")).name)
    return place


def make_initramfs(kernel, build, command, into):
    root = into / "root"
    for name in ("bin", "modules", "proc", "sys", "dev"):
        (root / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), root / "bin/busybox")
    table = next(kernel.glob("lib/modules/*/modules.dep"))
    needed = dict(line.split(":") for line in table.read_text().splitlines())
    files = []
    for module in MODULES:
        file = next(each for each in needed if each.endswith(f"/{module}.ko"))
        # What a module needs is listed from above, and goes first.
        files += [each for each in (*reversed(needed[file].split()), file) if each not in files]
    for file in files:
        shutil.copy(table.parent / file, root / "modules")
    init = root / "init"
    init.write_text(INIT.format(modules=" ".join(pathlib.Path(file).stem for file in files), kernel=kernel, script=pathlib.Path(__file__).resolve(), build=build, command=shlex.quote(command)))
    init.chmod(0o755)
    run("sh", "-c", f"cd {root} && find . | cpio --quiet -o -H newc > ../initramfs")
    return into / "initramfs"


def boot(build, options):
    kernel = unpacked_kernel()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        initramfs, socket = make_initramfs(kernel, build, options.command, folder), folder / "files"
        files = subprocess.Popen([next(path for path in VIRTIOFSD if path.exists()), f"--socket-path={socket}", "-o", "source=/,cache=always,sandbox=chroot"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        machine = None
        try:
            harness.eventually(socket.exists, "virtiofsd")
            machine = subprocess.Popen(
                ["timeout", str(options.within), "qemu-system-x86_64", "-accel", options.accelerator,
                 "-cpu", "host" if options.accelerator == "kvm" else "max", "-m", options.memory, "-nographic", "-no-reboot", "-nic", "none",
                 "-object", f"memory-backend-memfd,id=memory,size={options.memory},share=on", "-numa", "node,memdev=memory",
                 "-chardev", f"socket,id=files,path={socket}", "-device", "vhost-user-fs-pci,chardev=files,tag=root",
                 "-kernel", next(kernel.glob("boot/vmlinuz-*")), "-initrd", initramfs, "-append", "console=ttyS0 quiet panic=-1"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")
            last = ""
            for line in machine.stdout:  # Until it ends.
                print(line.rstrip(), flush=True)
                last = line.strip() or last
            return last == WELL
        finally:
            for process in (machine, files):
                if process:
                    process.terminate()
                    process.wait()


# --- Inside it ----------------------------------------------------------------------------------------------


def counts():
    """The kernel's counts of sockets that send (Tx) and receive (Rx) by TLS, in software."""
    return {name: int(number) for name, number in (line.split() for line in pathlib.Path("/proc/net/tls_stat").read_text().splitlines())}


def inside(build, command):
    subprocess.run(["modprobe", "tls"], check=True)
    steps = [[build / "tests/server_tests", "--test-suite=TLS*,session*"],
             [ROOT / "tests/integration/run.py", "--binary", build / "tarry", "--filter", "TLS", "--jobs", "1"]]
    failed = 0
    for step in [["sh", "-c", command]] if command else steps:
        before = counts()["TlsTxSw"]
        failed += subprocess.run(step).returncode != 0
        sent = counts()["TlsTxSw"] - before
        print(f"{sent} connections of which the kernel encrypted what was sent", flush=True)
        failed += sent == 0
    print(counts(), flush=True)
    failed += counts()["TlsRxSw"] > 0
    print(WELL if failed == 0 else f"kernel TLS: {failed} of the checks failed", flush=True)


def power_off():
    time.sleep(1)  # The console shows the last lines meanwhile.
    pathlib.Path("/proc/sysrq-trigger").write_text("o")
    time.sleep(60)


def main():
    parser = argparse.ArgumentParser(description="kernel TLS in a virtual machine")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="where tarry and tests/server_tests are")
    parser.add_argument("--memory", default="2G")
    parser.add_argument("--accelerator", default="tcg", help="kvm: several times as fast, where it works")
    parser.add_argument("--within", type=int, default=3600, help="seconds")
    parser.add_argument("--command", default="", help="run inside in place of the tests")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    build = options.build.resolve()
    if not options.inside:
        return 0 if boot(build, options) else 1
    try:
        inside(build, options.command)
    except Exception:  # Of the first process the kernel would tell its own story.
        traceback.print_exc()
    power_off()


if __name__ == "__main__":
    sys.exit(main())
