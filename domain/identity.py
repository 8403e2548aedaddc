"""Who acts: an identity as the host verified it, the scope that follows from it, and the grant that a host gives a message."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Final, NamedTuple, Self, TypeAlias

from pydantic import AfterValidator, Field, StrictBool, field_validator

from .errors import Denied, InvalidValue
from .ids import Id, OptionalId, checked_id
from .model import Model, kept_as

OPERATE: Final = "journal:operate"
"""The permission to work across scopes."""

CLOCK_SKEW: Final = 60_000_000
"""How far in the future, in microseconds, an identity may have been issued (from the system that this continues)."""


def _aware(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("must have a time zone, for example datetime.now(UTC)")
    return value


Instant: TypeAlias = Annotated[datetime, AfterValidator(_aware)]


def instant_us(value: datetime) -> int:
    """Return an instant as integer microseconds since 1970 in UTC, without a detour over floating point."""
    delta = value - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def instant_of(microseconds: int) -> datetime:
    """Return integer microseconds since 1970 as an instant in UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)


_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class Scope(NamedTuple):
    """Whose data it is. Matches exactly: an absent user is a scope of its own."""

    tenant: str
    account: str | None
    user: str | None

    def __repr__(self) -> str:
        return "Scope(…)"


class Identity(Model):
    """
    Say who acts, as the host verified it.

    An identity that is unverified, revoked, expired, or issued more than 60 s in the future is refused wherever one is taken.
    """

    tenant: Id
    principal: Id
    account: OptionalId = None
    user: OptionalId = None
    permissions: Annotated[Collection[str], kept_as(frozenset[str])] = frozenset()
    verified: StrictBool = False
    issued_at: Instant | None = None
    expires_at: Instant | None = None
    revoked_at: Instant | None = None

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant, self.account, self.user)

    @property
    def operates(self) -> bool:
        """Tell whether the identity may work across scopes."""
        return OPERATE in self.permissions

    def refusal(self, now: int) -> str | None:
        """Return why the identity is not active at `now` (microseconds since 1970), as a class word, or None when it is."""
        if not self.verified:
            return "unverified"
        if self.revoked_at is not None and instant_us(self.revoked_at) <= now:
            return "revoked"
        if self.expires_at is not None and instant_us(self.expires_at) <= now:
            return "expired"
        if self.issued_at is not None and instant_us(self.issued_at) > now + CLOCK_SKEW:
            return "not_yet_issued"
        return None

    def require_active(self, now: int) -> None:
        """Raise `Denied` unless the identity is active at `now`."""
        if (reason := self.refusal(now)) is not None:
            raise Denied(f"the identity is {reason.replace('_', ' ')}", reason=reason)


class Every(Enum):
    """Stands for all tenants where one may be named."""

    TENANT = "every tenant"


EVERY_TENANT: Final = Every.TENANT


class Reach(NamedTuple):
    """Whose data a call may touch: the identity's own scope, or the tenants that an operator names."""

    identity: Identity
    tenant: str | Every | None = None

    def includes(self, scope: Scope) -> bool:
        """Tell whether a scope may be known to exist."""
        if self.tenant is None:
            return scope == self.identity.scope
        return self.tenant is EVERY_TENANT or scope.tenant == self.tenant

    def __repr__(self) -> str:
        return "Reach(…)"


def reach(identity: Identity, tenant: str | Every | None) -> Reach:
    """Return the reach of an identity; naming a tenant needs the permission `journal:operate`, or `Denied` is raised."""
    if not isinstance(identity, Identity):
        raise InvalidValue(f"identity must be an Identity, not {type(identity).__name__}")
    if tenant is not None and not isinstance(tenant, Every):
        checked_id(tenant, name="tenant")
    if tenant is not None and not identity.operates:
        raise Denied(f"naming a tenant needs the permission {OPERATE}", reason="not_permitted")
    return Reach(identity, tenant)


class Grant(Model):
    """What a host's `authorize` answers for a message: who it comes from and which agents that person may reach."""

    identity: Identity
    aliases: Annotated[Sequence[str], kept_as(tuple[Id, ...]), Field(min_length=1)]
    """Names of agents; the first is the default."""
    revision: Id = "1"
    """Changes when the host changes what it grants."""
    notifications: StrictBool = False
    """Whether the person agreed to notices that answer no message."""

    @field_validator("aliases", mode="before")
    @classmethod
    def _no_bare_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError('must be a list of names, for example ["agent"]')
        return value

    @property
    def alias(self) -> str:
        return self.aliases[0]

    @classmethod
    def of(cls, identity: Identity, *aliases: str) -> Self:
        """Grant these aliases to an identity."""
        return cls(identity=identity, aliases=aliases)
