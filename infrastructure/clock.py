"""The clocks of a journal. Everything that needs the time is given one, so that tests can move it."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Final, Protocol

UNKNOWN_BOOT: Final = "unknown"


class Clock(Protocol):
    """What a journal asks for the time: a wall clock for people, a steady clock for deadlines."""

    def now(self) -> int:
        """Return the wall clock, in microseconds since 1970 UTC. It may jump either way."""

    def boot(self) -> int:
        """Return the steady clock of this boot, in nanoseconds. It never goes back and runs through sleep."""

    def boot_id(self) -> str:
        """Return what names this boot of the machine: values of `boot` compare only where it is the same."""


class SystemClock:
    """
    The clocks of the machine.

    The steady clock is CLOCK_BOOTTIME on Linux and CLOCK_MONOTONIC on macOS; both run through sleep and are
    the same for all processes. Elsewhere it is `time.monotonic_ns`, which may stand still while the machine
    sleeps.
    """

    def now(self) -> int:
        """Return the wall clock, in microseconds since 1970 UTC."""
        return time.time_ns() // 1000

    if sys.platform == "linux":

        def boot(self) -> int:
            """Return CLOCK_BOOTTIME, in nanoseconds."""
            return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    elif sys.platform == "darwin":

        def boot(self) -> int:
            """Return CLOCK_MONOTONIC, in nanoseconds; `time.monotonic_ns` would not run through sleep."""
            return time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    else:

        def boot(self) -> int:
            """Return the best steady clock there is, in nanoseconds."""
            return time.monotonic_ns()

    def boot_id(self) -> str:
        """
        Return the kernel's id of this boot.

        Linux and macOS have one. The BSDs have the time of the boot, which moves when the wall clock is set.
        Where nothing can be found the answer is a constant: a deadline may then outlive a restart of the
        machine, and the sign of life of its opening, which cannot, ends the lease.
        """
        return _boot_id()


@cache
def _boot_id() -> str:
    if sys.platform == "linux":
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        except OSError:
            return UNKNOWN_BOOT
    return _from_sysctl("kern.bootsessionuuid" if sys.platform == "darwin" else "kern.boottime")


def _from_sysctl(name: str) -> str:
    try:
        done = subprocess.run(("sysctl", "-n", name), capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN_BOOT
    return done.stdout.strip() or UNKNOWN_BOOT
