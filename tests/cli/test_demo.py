"""The demo shows what it says."""

from __future__ import annotations

from .conftest import Shell, masked


def test_the_demo_tells_its_story(shell: Shell, journal_url: str) -> None:
    """A worker is killed in the middle of a turn, and nothing is lost or answered twice."""
    done = shell.run("demo", "--keep", journal_url)
    told = masked(done.stdout)

    assert "200 messages, 199 answered, 0 answered twice" in told
    for verb in ("run", "unresolved", "reconcile", "timeline", "explain", "verify"):
        assert f"$ counterfoil {verb} " in told
    assert "$ kill -9 " in told
    assert "duplicates         200" in told
    assert "Not answered: nobody can tell what its turn did" in told
    assert [] == shell.rows("unresolved", journal_url)
    assert shell.run("verify", journal_url).stdout
    assert "there is a journal already" in shell.run("demo", "--keep", journal_url, status=2).stderr
