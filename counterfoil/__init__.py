"""The durable record between messaging channels and agents.

A journal keeps, for each message that a channel hands to an agent and each reply that goes back, what was
admitted, who claimed it, how it was settled and what was sent. Every public name is an attribute of this
module and is imported when it is first used, so that ``import counterfoil`` stays cheap.
"""

from importlib import import_module

# A public name stands in three places: here with its module, in __all__, and, for type checkers, in an import
# under TYPE_CHECKING.
_MODULES: dict[str, str] = {}

__all__: list[str] = []


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
