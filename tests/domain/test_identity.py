"""Identity: who acts as the host verified it, and the scope that follows."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from counterfoil.domain.errors import Denied
from counterfoil.domain.identity import EVERY_TENANT, OPERATE, Every, Identity, Reach, Scope, instant_us, reach

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOW_US = 1_772_366_400_000_000
TICK = timedelta(microseconds=1)


def identity(**values: Any) -> Identity:
    return Identity(**({"tenant": "acme", "principal": "p-1", "verified": True} | values))


@pytest.mark.contract("IDN-04")
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, None),
        ({"verified": False}, "unverified"),
        ({"revoked_at": NOW}, "revoked"),
        ({"revoked_at": NOW - TICK}, "revoked"),
        ({"revoked_at": NOW + TICK}, None),
        ({"expires_at": NOW}, "expired"),
        ({"expires_at": NOW - TICK}, "expired"),
        ({"expires_at": NOW + TICK}, None),
        ({"issued_at": NOW + timedelta(seconds=60)}, None),
        ({"issued_at": NOW + timedelta(seconds=60) + TICK}, "not_yet_issued"),
        ({"issued_at": NOW - timedelta(days=9999)}, None),
        ({"verified": False, "revoked_at": NOW, "expires_at": NOW}, "unverified"),
        ({"revoked_at": NOW, "expires_at": NOW}, "revoked"),
    ],
)
def test_an_identity_is_active_or_says_why_not(values: dict[str, Any], reason: str | None) -> None:
    """Each way to be inactive begins at its very microsecond."""
    assert reason == identity(**values).refusal(NOW_US)


@pytest.mark.contract("IDN-04")
def test_an_inactive_identity_is_denied_by_its_reason() -> None:
    """The error carries the class word; an active identity passes."""
    identity().require_active(NOW_US)
    with pytest.raises(Denied, match=r"^the identity is not yet issued$") as caught:
        identity(issued_at=NOW + timedelta(hours=1)).require_active(NOW_US)

    assert "not_yet_issued" == caught.value.reason


def test_an_identity_is_unverified_unless_said() -> None:
    """Leaving the word out grants nothing."""
    assert "unverified" == Identity(tenant="acme", principal="p-1").refusal(NOW_US)


@pytest.mark.contract("IDN-04")
@pytest.mark.parametrize("word", [1, 0, "true", "false", "yes", "on", 1.0, None, b"true"], ids=repr)
def test_whether_an_identity_was_verified_is_not_guessed(word: Any) -> None:
    """Only a plain True or False is an answer: a word of a form or a header is not."""
    with pytest.raises(ValidationError, match="should be a valid boolean"):
        identity(verified=word)


@pytest.mark.contract("IDN-01", "IDN-02")
def test_scope_is_tenant_account_and_user_and_nothing_else() -> None:
    """Principal, permissions and times do not move it; an absent user is a scope of its own."""
    scope = identity(account="a", user="u").scope

    assert Scope("acme", "a", "u") == scope
    assert scope == identity(account="a", user="u", principal="p-2", permissions={OPERATE}, expires_at=NOW).scope
    assert 4 == len({identity(account=a, user=u).scope for a in (None, "a") for u in (None, "u")})


@pytest.mark.contract("IDN-05")
@pytest.mark.parametrize(
    ("permissions", "operates"),
    [((), False), ((OPERATE,), True), (("journal:operate ",), False), (("journal:*", "*", "operate"), False)],
)
def test_working_across_scopes_is_never_implied(permissions: tuple[str, ...], operates: bool) -> None:
    """Only the permission by its exact name gives it."""
    assert operates is identity(permissions=permissions).operates


@pytest.mark.contract("IDN-02", "IDN-05")
@pytest.mark.parametrize(
    ("tenant", "own", "same_tenant", "other_tenant"),
    [
        (None, True, False, False),
        ("acme", True, True, False),
        ("umbrella", False, False, True),
        (EVERY_TENANT, True, True, True),
    ],
)
def test_reach_is_the_own_scope_or_what_an_operator_names(
    tenant: str | Every | None, own: bool, same_tenant: bool, other_tenant: bool
) -> None:
    """The permission alone widens nothing; a tenant has to be named."""
    who = identity(user="u", permissions={OPERATE})
    scopes = [who.scope, Scope("acme", None, None), Scope("umbrella", None, "u")]

    assert [own, same_tenant, other_tenant] == [reach(who, tenant).includes(scope) for scope in scopes]


@pytest.mark.contract("IDN-05")
@pytest.mark.parametrize("tenant", ["acme", "umbrella", EVERY_TENANT])
def test_naming_a_tenant_needs_the_permission(tenant: str | Every) -> None:
    """The own one too; without a name nothing is asked."""
    with pytest.raises(Denied, match=f"needs the permission {OPERATE}$") as caught:
        reach(identity(permissions={"other"}), tenant)

    assert "not_permitted" == caught.value.reason
    assert Reach(identity()) == reach(identity(), None)


@pytest.mark.parametrize("field", ["tenant", "principal"])
def test_tenant_and_principal_are_ids(field: str) -> None:
    """Neither may be empty, and neither may be a number."""
    for value in ("", 7, None, "a\0"):
        with pytest.raises(ValidationError):
            identity(**{field: value})


@pytest.mark.parametrize("field", ["account", "user"])
def test_an_empty_account_or_user_is_not_an_absent_one(field: str) -> None:
    """What is absent is left out, so that two ways to write nothing never make two scopes."""
    with pytest.raises(ValidationError, match="must not be empty"):
        identity(**{field: ""})


@pytest.mark.parametrize("field", ["issued_at", "expires_at", "revoked_at"])
def test_an_instant_without_a_time_zone_is_refused(field: str) -> None:
    """A naive time would mean another instant on every machine."""
    with pytest.raises(ValidationError, match="must have a time zone"):
        identity(**{field: datetime(2026, 3, 1)})  # noqa: DTZ001


def test_instants_compare_across_time_zones() -> None:
    """The same instant in another zone is the same number."""
    tokyo = timezone(timedelta(hours=9))

    assert NOW_US == instant_us(NOW) == instant_us(NOW.astimezone(tokyo))
    assert "expired" == identity(expires_at=NOW.astimezone(tokyo)).refusal(NOW_US)


@given(st.integers(-(10**15), 10**17))
def test_instants_are_exact_to_the_microsecond(microseconds: int) -> None:
    """No floating point rounds on the way."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)

    assert microseconds == instant_us(epoch + timedelta(microseconds=microseconds))


@pytest.mark.contract("DIA-01")
def test_neither_repr_nor_refusal_shows_who_it_is() -> None:
    """Ids of people stay out of what lands in logs."""
    shown = [repr(identity(tenant="t-secret", user="u-secret")), str(identity(principal="p-secret"))]
    shown += [repr(identity(tenant="t-secret").scope), repr(Reach(identity(), "secret"))]
    for wrong in (
        {"tenant": "secret\0"},
        {"verified": "secret"},
        {"expires_at": "secret"},
        {"extra": "secret"},
    ):
        with pytest.raises(ValidationError) as caught:
            identity(**wrong)
        shown.append(str(caught.value))

    assert not [text for text in shown if "secret" in text]


def test_an_identity_is_frozen() -> None:
    """What was verified is not edited afterwards."""
    with pytest.raises(ValidationError):
        identity().tenant = "other"  # type: ignore[misc]
