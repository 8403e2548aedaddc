"""The demo shows what it says."""

from __future__ import annotations

import pytest

from .conftest import Shell, masked


@pytest.mark.sqlite_only("the demo keeps a file")
def test_the_demo_tells_its_story(shell: Shell) -> None:
    """A worker is killed in the middle of a turn, and nothing is lost or answered twice."""
    done = shell.run("demo", "--keep", shell.folder / "kept.sqlite")
    told = masked(done.stdout)

    assert "200 messages, 199 answered, 0 answered twice" in told
    for verb in ("run", "unresolved", "reconcile", "timeline", "explain", "verify"):
        assert f"$ counterfoil {verb} " in told
    assert "$ kill -9 " in told
    assert "duplicates         200" in told
    assert "Not answered: nobody can tell what its turn did" in told
    assert [] == shell.rows("unresolved", "kept.sqlite")
    assert shell.run("verify", "kept.sqlite").stdout
