"""Tokens of leases: 16 random bytes, drawn from the kernel by the page, because each draw costs a switch of threads."""

from __future__ import annotations

import os
import threading
from typing import Final

TOKEN_BYTES: Final = 16
_PAGE: Final = 256 * TOKEN_BYTES


class _Page(threading.local):
    """What a thread has drawn and not given out. A forked child draws its own: no token is given out twice."""

    def __init__(self) -> None:
        self.pid = 0
        self.drawn = b""
        self.at = 0


_page = _Page()


def new_token() -> bytes:
    """Return a token that nobody else has."""
    page = _page
    if page.at >= len(page.drawn) or page.pid != os.getpid():
        page.pid, page.drawn, page.at = os.getpid(), os.urandom(_PAGE), 0
    page.at += TOKEN_BYTES
    return page.drawn[page.at - TOKEN_BYTES : page.at]
