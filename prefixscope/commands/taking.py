"""Commands that take very many options: they stand in a dataclass, each once."""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import TypeVar, get_type_hints

_Options = TypeVar("_Options")


def taking(
    options: type[_Options],
) -> Callable[[Callable[[_Options], None]], Callable[..., None]]:
    """Let a command be called with the fields of a dataclass, which it gets as one. Typer reads
    the signature and the annotations of a function, so these are made those of the fields."""
    assert is_dataclass(options)
    hints = get_type_hints(options, include_extras=True)
    parameters = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(options)
    ]  # fmt: skip

    def decorated(command: Callable[[_Options], None]) -> Callable[..., None]:
        @wraps(command)
        def called(**given: object) -> None:
            command(options(**given))

        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        return called

    return decorated
