"""Rules that name route, template, tenant and session of a row, as they stand in the settings.

Here they are read and checked, so that a rule that cannot work is refused at start with the
remedy; `formats/names.py` makes them part of the SQL that reads a format.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    model_validator,
)

from exporter.sources.name_checks import (
    NAME_LIMIT,
    check_pattern,
    forbidden,
    read_lookup,
    steps_of,
)

NAMED_FIELDS = ("route", "template", "template_version", "tenant", "session", "replica")
# What rules can name a source by: it becomes a column and a label.
_SOURCE_LIMIT = 100
_HEADER = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,100}")


class Rule(BaseModel):
    """Where a name may stand: exactly one of header, field, constant and mapped.

    What is found there goes through `pattern`, `lookup` and `hashed`, in that order.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    header: str | None = Field(None, description="HTTP header the row has, in any case")
    field: str | None = Field(
        None, description='path in the row: metadata.team, request_tags[*], attributes."a.b"'
    )
    constant: str | None = Field(
        None, min_length=1, max_length=NAME_LIMIT, description="this name, for every row"
    )
    mapped: Literal[True] | None = Field(None, description="what the format itself reads")
    pattern: str | None = Field(
        None, description="regular expression (RE2); its one group is the name"
    )
    lookup: Path | None = Field(
        None, description="CSV (value,name) or JSON file with the name of each value"
    )
    hashed: bool = Field(False, description="keep a keyed hash of the name, 16 digits")

    _entries: tuple[tuple[str, str], ...] = PrivateAttr(())

    @model_validator(mode="after")
    def _can_work(self) -> "Rule":
        given = [name for name in _PLACES if getattr(self, name) is not None]
        if len(given) != 1:
            found = f"both {' and '.join(given)}" if given else "none"
            raise ValueError(f"give one of {', '.join(_PLACES)}; found {found}")
        if (self.constant or self.mapped) and (self.pattern or self.lookup or self.hashed):
            raise ValueError("pattern, lookup and hashed go with header or field only")
        for name in (*_PLACES[:3], "pattern"):
            if not str(getattr(self, name) or "").isprintable():
                raise ValueError(f"{name} holds a character that cannot be printed")
        self._check_place()
        try:
            if self.pattern is not None:
                check_pattern(self.pattern)
            if self.lookup is not None:
                self._entries = read_lookup(self.lookup)
        except ValueError as error:
            raise ValueError(f"{self.place}: {error}") from error
        return self

    def _check_place(self) -> None:
        if self.header is not None and not _HEADER.fullmatch(self.header.lower()):
            raise ValueError(f"header {self.header!r} is no name of an HTTP header")
        last = self.header
        if self.field is not None:
            last = steps_of(self.field)[-1].key
        reason = forbidden(last) if last is not None and not self.hashed else None
        if reason is not None:
            raise ValueError(
                f"{self.place} {reason}: add hashed: true to keep a keyed hash of it as the name"
            )

    @property
    def place(self) -> str:
        """`header x-tenant`, `field metadata.team`, `constant nobody` or `mapped`."""
        if self.mapped:
            return "mapped"
        return next(f"{name} {value}" for name in _PLACES if (value := getattr(self, name)))

    @property
    def entries(self) -> tuple[tuple[str, str], ...]:
        """Value and name of every line of the lookup file, as it was when it was read."""
        return self._entries

    def __str__(self) -> str:
        """The rule in one line, for people."""
        parts = [self.place]
        parts += [f"pattern {self.pattern}"] if self.pattern is not None else []
        parts += [f"lookup {self.lookup}"] if self.lookup is not None else []
        return ", ".join([*parts, *(["hashed"] if self.hashed else [])])


_PLACES = ("header", "field", "constant", "mapped")


def _a_list(value: object) -> object:
    """A lone rule is a slip of the pen that deserves a better word than 'not a tuple'."""
    if isinstance(value, Mapping):
        raise ValueError("rules are a list: begin each with '- ', as in '- header: x-tenant'")
    return value


def _all_asked(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """A rule that is never asked is a mistake somebody would look for long."""
    for number, rule in enumerate(rules[:-1], 1):
        if rule.constant is not None:
            raise ValueError(
                f"rule {number} ({rule}) names every row, so the rules behind it are never asked: "
                "put it last"
            )
    if sum(rule.mapped is not None for rule in rules) > 1:
        raise ValueError("mapped: true stands in the list twice")
    return rules


Rules = Annotated[tuple[Rule, ...], BeforeValidator(_a_list), AfterValidator(_all_asked)]


class SourceNames(BaseModel):
    """The rules of one source: for each field a list, tried in order."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    route: Rules = Field((), description="the caller's gateway route or model group")
    template: Rules = Field((), description="prompt template")
    template_version: Rules = Field((), description="version of the template")
    tenant: Rules = Field((), description="who is billed")
    session: Rules = Field((), description="conversation")
    replica: Rules = Field((), description="engine process that served it")

    def rules(self) -> dict[str, tuple[Rule, ...]]:
        """The rules by field, fields without any left out.

        What the format itself reads stands last where no rule says where it stands.
        """
        given = {name: getattr(self, name) for name in NAMED_FIELDS}
        return {
            name: rules if any(rule.mapped for rule in rules) else (*rules, Rule(mapped=True))
            for name, rules in given.items()
            if rules
        }


def _a_source(name: object) -> object:
    if isinstance(name, str) and (not name or len(name) > _SOURCE_LIMIT or not name.isprintable()):
        raise ValueError(f"a source is a name of 1 to {_SOURCE_LIMIT} printable characters")
    return name


Names = dict[Annotated[str, BeforeValidator(_a_source)], SourceNames]
