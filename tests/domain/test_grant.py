"""Grants: what a host's `authorize` answers."""

from typing import Any

import pytest
from pydantic import ValidationError

from counterfoil.domain.identity import Grant, Identity

WHO = Identity(tenant="acme", principal="p-1", verified=True)


def test_the_first_alias_is_the_default() -> None:
    """Their order is the host's."""
    grant = Grant.of(WHO, "sales", "support")

    assert ("sales", ("sales", "support")) == (grant.alias, grant.aliases)
    assert grant == Grant(identity=WHO, aliases=("sales", "support"))


def test_a_grant_says_no_more_than_it_must() -> None:
    """Notices need their own word; the revision begins at 1."""
    grant = Grant.of(WHO, "agent")

    assert ("1", False) == (grant.revision, grant.notifications)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"aliases": "agent"}, r'must be a list of names, for example \["agent"\]'),
        ({"aliases": ()}, "at least 1"),
        ({"aliases": ("",)}, "must not be empty"),
        ({"aliases": (7,)}, "must be text, not int"),
        ({"aliases": ("agent",), "revision": ""}, "must not be empty"),
        ({"aliases": ("agent",), "revision": 1}, r"must be text, not int; write str\(…\)"),
        ({"aliases": ("agent",), "admin": True}, "[Ee]xtra"),
        ({"aliases": ("agent",), "identity": None}, "identity"),
        ({"aliases": ("agent",), "notifications": 1}, "should be a valid boolean"),
        ({"aliases": ("agent",), "notifications": "true"}, "should be a valid boolean"),
        ({"aliases": ("agent",), "notifications": None}, "should be a valid boolean"),
    ],
)
def test_what_is_no_grant_is_refused(values: dict[str, Any], complaint: str) -> None:
    """A bare text is not taken for a list of letters, and nothing unknown is passed over."""
    with pytest.raises(ValidationError, match=complaint):
        Grant(**({"identity": WHO} | values))


@pytest.mark.contract("DIA-01")
def test_repr_shows_nobody() -> None:
    """A grant in a log tells neither who nor what."""
    assert "Grant()" == repr(Grant.of(Identity(tenant="secret", principal="secret"), "secret"))
