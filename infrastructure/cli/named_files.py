"""
The files that a person names beside the journal. None of them may be the journal or lie beside it as SQLite's: closing it would
drop the locks that SQLite holds.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, NamedTuple

import click

CHUNK = 65_536


class Source(NamedTuple):
    """Where bytes come from: `read` gives some, and none at the end."""

    read: Callable[[], bytes]
    close: Callable[[], None]


def open_source(option: str, path: str, journal: str) -> Source:
    """Open a file to be read as a stream; `-` is standard input. What cannot be read is wrong usage."""
    if path != "-":
        file = open_file(option, path, journal)
        return Source(lambda: file.read(CHUNK) or b"", file.close)
    try:
        number = sys.stdin.fileno()
        found = os.fstat(number)
    except (AttributeError, OSError, ValueError, io.UnsupportedOperation):
        if not hasattr(sys.stdin, "buffer"):
            raise click.UsageError(f"{option}: standard input is closed; name a file", _context()) from None
        stream: Any = sys.stdin.buffer
        return Source(lambda: stream.read1(CHUNK), lambda: None)
    _refuse(option, "standard input", found, journal)
    return Source(lambda: os.read(number, CHUNK), lambda: None)


def open_file(option: str, path: str, journal: str) -> BinaryIO:
    """Open a file for reading, unbuffered."""
    try:
        _refuse(option, path, os.stat(path), journal)
        return open(path, "rb", buffering=0)
    except FileNotFoundError:
        message = "does not exist"
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    except ValueError:
        message = "is no name of a file"
    raise click.UsageError(f"{option}: {click.format_filename(path)} {message}", _context())


def _refuse(option: str, name: str, found: os.stat_result, journal: str) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise click.UsageError(f"{option}: {click.format_filename(name)} is a folder; name a file", _context())
    for suffix in ("", "-wal", "-shm"):
        try:
            is_same = os.path.samestat(found, os.stat(f"{journal}{suffix}"))
        except OSError:
            continue
        if is_same:
            raise click.UsageError(f"{option}: {click.format_filename(name)} belongs to the journal; name another", _context())


def _context() -> click.Context | None:
    return click.get_current_context(silent=True)


def keep_places() -> None:
    """
    Take the places of standard streams that are closed: a file of the journal that came to lie there would be written to by
    whoever prints. What is said on standard error goes nowhere then.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free: this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it stays as long as the process


def head_of(path: str) -> bytes | None:
    """Return the first bytes of a program, None if they cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(256)
    except OSError:
        return None


def write_lines(path: str, lines: Iterable[str]) -> None:
    """Write a new file of lines."""
    with open(path, "x", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
