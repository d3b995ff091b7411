"""Describes the machine that the figures were measured on.

Called by: `compare`. Changes no setting of the machine.
"""

import os
import platform
from dataclasses import dataclass
from pathlib import Path


def describe() -> dict[str, str]:
    """Machine, kernel and the settings that move figures."""
    info = cpu_info()
    return {
        "cpu": info.get("model name", platform.machine()),
        "cpus": str(os.cpu_count()),
        "memory": memory(),
        "kind": "virtual machine" if "hypervisor" in info.get("flags", "").split() else "hardware",
        "kernel": f"{platform.system()} {platform.release()}",
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "not visible"),
        "mitigations": mitigations(),
        "congestion control": read("/proc/sys/net/ipv4/tcp_congestion_control", "unknown"),
        "load at start": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def read(path: str, otherwise: str) -> str:
    """Read the first line of a file that may be missing."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return otherwise


def cpu_info() -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo."""
    first = read("/proc/cpuinfo", "").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def memory() -> str:
    """Size of main memory."""
    pages, page_len = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return f"{pages * page_len / 2**30:.0f} GiB"


@dataclass(frozen=True)
class Ticks:
    """CPU time since boot, in kernel ticks."""

    stolen: int
    total: int

    def stolen_since(self, before: "Ticks") -> float:
        """The share of the time that the host of a virtual machine gave to other guests."""
        return (self.stolen - before.stolen) / max(self.total - before.total, 1)


def ticks() -> Ticks:
    """Read the first line of /proc/stat; its eighth figure is stolen, later ones are in the first two.

    proc_stat(5).
    """
    words = read("/proc/stat", "cpu").split("\n", 1)[0].split()
    figures = [int(word) for word in words[1:9]]
    return Ticks(figures[7] if len(figures) == 8 else 0, sum(figures))


def mitigations() -> str:
    """The CPU bugs the kernel works around; each makes system calls more expensive."""
    directory = Path("/sys/devices/system/cpu/vulnerabilities")
    active = [
        entry.name
        for entry in sorted(directory.glob("*"))
        if read(str(entry), "").startswith("Mitigation")
    ]
    return ", ".join(active) or "none"


def choose_cpus(server: int | None, load: int | None) -> tuple[int, int | None]:
    """Choose a CPU for the measured process and one for the load (`None` if there is only one)."""
    usable = sorted(os.sched_getaffinity(0))
    chosen = usable[0] if server is None else server
    if load is not None:
        return chosen, load
    siblings = sibling_cpus(chosen)
    others = [cpu for cpu in usable if cpu != chosen]
    apart = [cpu for cpu in others if cpu not in siblings]
    return chosen, next(iter(apart or others), None)


def sibling_cpus(cpu: int) -> set[int]:
    """The CPUs that share a core with `cpu` and would slow it down."""
    path = f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    siblings: set[int] = set()
    for part in read(path, "").split(","):
        first, _, last = part.partition("-")
        if first:
            siblings.update(range(int(first), int(last or first) + 1))
    return siblings
