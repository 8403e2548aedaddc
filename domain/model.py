"""The base of what hosts construct and get: frozen, unknown fields refused, no text and no external id in errors and reprs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetPydanticSchema


class Model(BaseModel):
    """A frozen record. Errors name the field and the rule, and never quote the value; `repr` shows only the fields in `SHOWN`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    SHOWN: ClassVar[tuple[str, ...]] = ()

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name in self.SHOWN:
            yield name, getattr(self, name)


def kept_as(stored: Any) -> GetPydanticSchema:
    """
    Return what makes a field be checked and kept as `stored`, whatever wider type it is annotated with.

    A type checker without the plugin of pydantic takes the annotation for what the constructor accepts: a host may write a list.
    """
    return GetPydanticSchema(lambda _annotated, schema_of: schema_of(stored))
