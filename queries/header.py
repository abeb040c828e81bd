"""What a question's leading comment says: its name, grain, parameters and columns, as types."""

import re
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

ParamType = Literal["VARCHAR", "TIMESTAMP", "BIGINT", "DOUBLE"]
# The C parser where the platform's wheel has it: every start of the program reads all headers.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BLOCK_COMMENT = re.compile(r"\s*/\*(.*?)\*/", re.DOTALL)


class Param(BaseModel):
    """One `getvariable` of the file. `default` is what NULL means to it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: ParamType
    default: str | int | float | None
    meaning: str
    required: bool = False
    one_of: tuple[str, ...] | None = None
    minimum: int | None = None


def _only(what: str) -> Param:
    return Param(type="VARCHAR", default=None, meaning=f"Only this {what}.")


# What a header may name under `filters` instead of spelling it out: parameters that mean the same
# wherever they stand. One that means anything else in a question is spelt out there.
FILTERS = {
    "since": Param(
        type="TIMESTAMP", default=None,
        meaning="Start of the window, inclusive; all time if not set.",
    ),
    "until": Param(
        type="TIMESTAMP", default=None, meaning="End of the window, exclusive; open if not set."
    ),
    "model": Param(
        type="VARCHAR", default=None, meaning="Only this model; '' is \"not given\"."
    ),
    "replica": _only("replica"),
    "route": _only("route"),
    "template": _only("template"),
    "tenant": _only("tenant"),
}  # fmt: skip


class Column(BaseModel):
    """One column of the answer; `type` is DuckDB's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: str
    unit: str
    meaning: str


class Question(BaseModel):
    """One figure: its header and the SQL that answers it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    question: str
    grain: str
    params: dict[str, Param]
    columns: dict[str, Column]
    many_rows: bool = Field(False, exclude=True, description="the answer may be of any size")
    sql: str = Field(repr=False)


def parse_question(sql: str, file_name: str) -> Question:
    """Read the YAML in the leading block comment; ValueError names the file that is wrong.

    The name must be the file's, so that the file of a question is found by its name and no two
    questions share one.
    """
    comment = _BLOCK_COMMENT.match(sql)
    if comment is None:
        raise ValueError(f"{file_name} does not start with a block comment")
    try:
        header = yaml.load(comment[1], Loader=_LOADER)  # noqa: S506  # both are safe loaders
        question = Question.model_validate({**_spelt_out(header), "sql": sql})
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise ValueError(f"header of {file_name}: {error}") from error
    if file_name != f"{question.name}.sql":
        raise ValueError(f"header of {file_name}: its name is {question.name!r}")
    return question


def _spelt_out(header: dict[str, Any]) -> dict[str, Any]:
    """The header with its filters as parameters, after those of its own."""
    spelt = dict(header)
    own = spelt.get("params") or {}
    shared = {name: _filter(name) for name in spelt.pop("filters", ())}
    if twice := own.keys() & shared.keys():
        raise ValueError(f"{min(twice)} is a filter and a parameter")
    return {**spelt, "params": {**own, **shared}}


def _filter(name: str) -> Param:
    if name not in FILTERS:
        raise ValueError(f"unknown filter {name!r}; known: {', '.join(FILTERS)}")
    return FILTERS[name]
