"""The first process of the guest: mounts, then each round in a process of its own, then power off.

Reports by lines on the console that begin with MARK; `__main__` reads them. Runs in the initramfs of
`image`, where there is no init system and no other program.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

MARK = "@@ringloop "
GUEST = Path("/guest")
DISABLED = Path("/proc/sys/kernel/io_uring_disabled")
# linux/sockios.h, net/if.h
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
# linux/reboot.h
POWER_OFF = 0x4321FEDC
# linux/io_uring.h: what a bit of `features` tells, an operation of IORING_REGISTER_PROBE, and a flag of
# io_uring_setup(2); the engine's names of them (sys/uring/features.rs).
IO_URING_SETUP, IO_URING_REGISTER, REGISTER_PROBE = 425, 427, 8
FLAGS = {"defer-taskrun": 1 << 12 | 1 << 13, "no-sqarray": 1 << 16}
BITS = {"recvsend-bundle": 14, "min-timeout": 15, "reg-reg-ring": 13, "no-iowait": 17}
OPERATIONS = {
    "msg-ring": 40,
    "send-zc": 48,
    "read-multishot": 49,
    "waitid": 50,
    "futex": 51,
    "ftruncate": 55,
}
LIBC = ctypes.CDLL(None, use_errno=True)


def tell(**what: object) -> None:
    """Report one thing to the host."""
    sys.stdout.write(MARK + json.dumps(what) + "\n")
    sys.stdout.flush()


def set_up() -> None:
    """Give an empty machine /proc, /dev, /tmp and the loopback interface."""
    for kind, place in (
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
    ):
        Path(place).mkdir(exist_ok=True)
        if LIBC.mount(kind.encode(), place.encode(), kind.encode(), 0, None) != 0:
            raise OSError(ctypes.get_errno(), f"mount {kind}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = fcntl.ioctl(sock, SIOCGIFFLAGS, struct.pack("16sH22x", b"lo", 0))
        flags = struct.unpack_from("H", request, 16)[0] | IFF_UP
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags))
    os.environ.update(
        PATH="/usr/bin:/bin", HOME="/tmp", PYTHONPATH=str(GUEST / "python"), LANG="C.UTF-8"
    )


def ring() -> dict[str, object]:
    """Return what io_uring_setup(2) and its probe say; `refused` has the errno's name."""
    told: dict[str, object] = {}
    features = 0
    for name, flags in {"": 0, **FLAGS}.items():
        parameters = bytearray(120)
        struct.pack_into("I", parameters, 8, flags)
        buffer = (ctypes.c_char * 120).from_buffer(parameters)
        fd = LIBC.syscall(IO_URING_SETUP, 8, buffer)
        if not name and fd < 0:
            return {"refused": errno.errorcode[ctypes.get_errno()]}
        if name:
            told[name] = fd >= 0
        else:
            features = struct.unpack_from("I", parameters, 20)[0]
            probe = (ctypes.c_char * (16 + 8 * 256))()
            if LIBC.syscall(IO_URING_REGISTER, fd, REGISTER_PROBE, probe, 256) != 0:
                raise OSError(ctypes.get_errno(), "IORING_REGISTER_PROBE")
        if fd >= 0:
            os.close(fd)
    for name, operation in OPERATIONS.items():
        told[name] = bool(struct.unpack_from("H", probe, 16 + 8 * operation + 2)[0] & 1)
    return told | {name: bool(features >> bit & 1) for name, bit in BITS.items()}


def play(one: dict[str, str]) -> None:
    """Run the checks once, in a child: what a round changes ends with it, except the sysctl."""
    if one.get("sysctl"):
        if not DISABLED.exists():
            tell(round=one["name"], absent="this kernel has no kernel.io_uring_disabled")
            return
        DISABLED.write_text(one["sysctl"])
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.environ["RINGLOOP_DRIVER"] = one["driver"]
            if one.get("errno"):
                from refuse import deny_io_uring  # noqa: PLC0415 - on the guest's path

                deny_io_uring(getattr(errno, one["errno"]))
            import checks  # noqa: PLC0415 - on the guest's path

            tell(round=one["name"], ring=ring())
            tell(round=one["name"], **checks.run(one["only"].split() if one.get("only") else None))
            status = 0
        except BaseException as error:  # noqa: BLE001 - reported; nothing else would
            tell(round=one["name"], broken=f"{type(error).__name__}: {error}")
        finally:
            sys.stdout.flush()
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    tell(round=one["name"], status=status, seconds=round(time.monotonic() - started, 2))


def play_engine(test: str, driver: str) -> None:
    """Run one of the engine's test programs."""
    done = subprocess.run(
        [GUEST / "engine" / test, "--quiet", "--test-threads=2"],
        env={**os.environ, "RINGLOOP_DRIVER": driver},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        cwd="/tmp",
    )
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    result = next((line for line in reversed(lines) if line.startswith("test result")), "")
    output = [] if done.returncode == 0 else lines[-40:]
    tell(engine=test, driver=driver, status=done.returncode, result=result, output=output)


def main() -> None:
    """Carry out the plan."""
    set_up()
    plan = json.loads((GUEST / "plan.json").read_text())
    tell(kernel=os.uname().release, version=os.uname().version)
    sys.path[:0] = [str(GUEST), str(GUEST / "python")]
    # Imported once; the children have it.
    import checks  # noqa: F401, PLC0415

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    last = [one for one in plan["rounds"] if one.get("sysctl")]
    for one in plan["rounds"]:
        if one not in last:
            play(one)
    drivers = ("uring", "epoll") if ring().get("defer-taskrun") else ("epoll",)
    for test in plan["engine"]:
        for driver in drivers:
            play_engine(test, driver)
    for one in last:
        play(one)
    tell(done=True)


if __name__ == "__main__":
    try:
        main()
    except BaseException as error:  # noqa: BLE001 - the host reads it; the kernel would panic
        tell(broken=f"{type(error).__name__}: {error}")
    finally:
        os.sync()
        LIBC.reboot(POWER_OFF)
