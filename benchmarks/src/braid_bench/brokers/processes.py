"""How much processor time and memory do a process and all its descendants use?

A broker may be a family: Erlang's virtual machine has helpers, a launcher script has children. Processor
time is read from each process's CPU clock, which counts nanoseconds and includes its ended threads; where
the system has no such clock, `/proc/<pid>/stat` gives it in ticks.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["family", "family_cpu_seconds", "family_memory_bytes"]

_PROC = Path("/proc")
# The fields of /proc/<pid>/stat after the command's name, which is in parentheses and may hold spaces.
_PARENT, _USER_TICKS, _SYSTEM_TICKS = 1, 11, 12
# The kernel's encoding of "the CPU clock of process p, as the scheduler counts": see clock_getcpuclockid(3).
_SCHEDULER_CLOCK = 2


def family(pid: int) -> list[int]:
    """`pid` and its descendants, parents before children; empty when it has ended."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[_PARENT]), []).append(int(entry.name))
    members = [pid] if _stat(pid) else []
    for member in members:  # grows while it is walked; a process has one parent, so nobody comes twice
        members.extend(sorted(children.get(member, [])))
    return members


def family_cpu_seconds(pids: list[int]) -> float:
    """User and system time of these processes together."""
    return sum(map(_cpu_seconds, pids))


def family_memory_bytes(pids: list[int]) -> int:
    """Resident memory of these processes together; pages that two of them share count twice."""
    pages = 0
    for pid in pids:
        try:
            pages += int((_PROC / str(pid) / "statm").read_text().split()[1])
        except (OSError, IndexError):
            continue  # ended in the meantime
    return pages * os.sysconf("SC_PAGE_SIZE")


def _cpu_seconds(pid: int) -> float:
    try:
        return time.clock_gettime((~pid << 3) | _SCHEDULER_CLOCK)
    except OSError:
        fields = _stat(pid)
        if not fields:
            return 0.0
        return (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
