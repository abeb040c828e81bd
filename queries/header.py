"""What a question's leading comment says: its name, grain, parameters and columns, as types."""

import re
from typing import Literal

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
        question = Question.model_validate({**header, "sql": sql})
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise ValueError(f"header of {file_name}: {error}") from error
    if file_name != f"{question.name}.sql":
        raise ValueError(f"header of {file_name}: its name is {question.name!r}")
    return question
