"""The clocks of the machine, and the clock that tests move."""

import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from counterfoil.domain.errors import InvalidValue
from counterfoil.infrastructure import clock
from counterfoil.infrastructure.clock import UNKNOWN_BOOT, Clock, SystemClock
from counterfoil.testing import MovableClock

ROOT = Path(__file__).parents[1]


def test_wall_clock_counts_microseconds() -> None:
    """The wall clock is that of the machine."""
    before, now, after = time.time_ns(), SystemClock().now(), time.time_ns()

    assert before // 1000 <= now <= after // 1000


@pytest.mark.skipif(sys.platform != "linux", reason="CLOCK_BOOTTIME is Linux's")
def test_steady_clock_runs_through_sleep() -> None:
    """On Linux the steady clock is the one that goes on while the machine sleeps."""
    system = SystemClock()
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    now = system.boot()

    assert before <= now <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def test_boot_is_the_same_for_other_processes() -> None:
    """Another process names the same boot, and reads the same steady clock."""
    program = "from counterfoil.infrastructure.clock import SystemClock as C; c = C(); print(c.boot_id(), c.boot())"
    before = SystemClock().boot()
    done = subprocess.run((sys.executable, "-c", program), cwd=ROOT, capture_output=True, text=True, check=True)
    boot_id, boot = done.stdout.rsplit(maxsplit=1)

    assert SystemClock().boot_id() == boot_id
    assert before < int(boot) < SystemClock().boot()


def test_boot_that_cannot_be_found_has_a_constant_name() -> None:
    """Where the system tells nothing, every process still gives one answer."""
    assert UNKNOWN_BOOT == clock._from_sysctl("no.such.name")


def test_movable_clock_stands() -> None:
    """Nothing moves it but the test."""
    moved: Clock = MovableClock()

    assert (moved.now(), moved.boot(), moved.boot_id()) == (moved.now(), moved.boot(), moved.boot_id())
    assert "boot-1" == moved.boot_id()


def test_advance_moves_both_clocks() -> None:
    """Time that passes is seen by both clocks, in their own units."""
    moved = MovableClock()
    now, boot = moved.now(), moved.boot()
    moved.advance("1m30s")
    moved.advance(timedelta(milliseconds=1))

    assert now + 90_001_000 == moved.now()
    assert boot + 90_001_000_000 == moved.boot()


def test_setting_moves_the_wall_clock_alone() -> None:
    """A wall clock that is set, either way, leaves the steady clock alone."""
    moved = MovableClock()
    now, boot = moved.now(), moved.boot()
    moved.set_back("2h")
    moved.set_forward(timedelta(hours=1))

    assert now - 3_600_000_000 == moved.now()
    assert boot == moved.boot()


def test_reboot_starts_the_steady_clock_again() -> None:
    """Another boot has another name, and its clock begins again."""
    moved = MovableClock()
    now = moved.now()
    moved.reboot("boot-2")

    assert ("boot-2", 0, now) == (moved.boot_id(), moved.boot(), moved.now())


@pytest.mark.parametrize("move", ["advance", "set_back", "set_forward"])
def test_time_does_not_run_backwards(move: str) -> None:
    """A negative duration is a mistake of the test's."""
    with pytest.raises(InvalidValue):
        getattr(MovableClock(), move)(timedelta(seconds=-1))
