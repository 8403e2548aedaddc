"""Whether a program can be started, told before anything depends on it and without starting it."""

from __future__ import annotations

import os

from .named_files import head_of

TEXT = frozenset(range(0x20, 0x7F)) | frozenset(b"\t\n\r")


def why_not_started(name: str, found: str | None) -> str | None:
    """Return why a program cannot be started, or None. `found` is where it was found, None if it was not."""
    if found is None:
        if os.sep not in name:
            return "is not found in the PATH"
        if not os.path.exists(name):
            return "does not exist"
        return "is a folder" if os.path.isdir(name) else "may not be executed; set its permission, for example by chmod +x"
    head = head_of(found)
    if head is None:
        return None  # it may be executed without being readable
    if head.startswith(b"#!"):
        words = head[2:].split(b"\n")[0].split()
        if not words or not os.access(words[0], os.X_OK):
            return "begins with #! and names an interpreter that is not there"
    elif all(byte in TEXT for byte in head):
        return "is neither a program nor a script that begins with #! and its interpreter"
    return None
