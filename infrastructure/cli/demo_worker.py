"""The agent of the demo: it echoes, but for one message, on which it works until it is killed."""

from __future__ import annotations

import asyncio
import os

from counterfoil.demo import echo
from counterfoil.domain.exchange import Turn

STUCK: str = "COUNTERFOIL_DEMO_STUCK"
"""A variable of the environment: the platform's id of that message."""


async def echo_until_killed(turn: Turn) -> str:
    """Answer with what was said."""
    if turn.event_id == os.environ.get(STUCK):
        await asyncio.sleep(3_600)
    return await echo(turn)
