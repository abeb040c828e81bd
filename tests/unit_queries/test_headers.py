"""The header of a question says what its SQL does, column by column; the page says the same."""

import re
from pathlib import Path

import duckdb
import pytest

from queries import definitions, registry
from queries.header import Question, parse_question

NAMES = sorted(registry.questions())
PAGE = Path(__file__).parents[2] / "docs" / "definitions.md"
TIMES = {
    "since": "2026-01-01T00:00:00Z", "until": "2026-12-31T00:00:00Z",
    "baseline_since": "2026-01-01T00:00:00Z", "baseline_until": "2026-06-01T00:00:00Z",
}  # fmt: skip
REQUIRED = {"by": "model", "dimension": "model", **TIMES}
GIVEN = {
    **TIMES, "step_seconds": 60,
    "model": "m", "replica": "a", "route": "r", "template": "t", "tenant": "x",
    "limit": 10, "offset": 1,
}  # fmt: skip


def required(question: Question) -> dict[str, str]:
    return {name: REQUIRED[name] for name, param in question.params.items() if param.required}


def set_variables(cursor: duckdb.DuckDBPyConnection, values: dict[str, str]) -> None:
    for name, value in values.items():
        cursor.execute(f'SET VARIABLE "{name}" = ?', [value])


@pytest.mark.parametrize("name", NAMES)
def test_variables_read_are_the_parameters_declared(name: str) -> None:
    question = registry.question(name)
    assert set(re.findall(r"getvariable\('(\w+)'\)", question.sql)) == set(question.params)


@pytest.mark.parametrize("name", NAMES)
def test_columns_and_types_are_those_declared(cursor: duckdb.DuckDBPyConnection, name: str) -> None:
    question = registry.question(name)
    set_variables(cursor, required(question))
    described = cursor.execute(f"DESCRIBE {question.sql}").fetchall()
    declared = [(column, spec.type) for column, spec in question.columns.items()]
    # Without `by` its CASE is NULL, which has no type of its own.
    actual = [(row[0], row[1].strip('"').replace("NULL", "VARCHAR")) for row in described]
    assert actual == declared


@pytest.mark.parametrize("name", NAMES)
def test_runs_as_it_is_with_no_variable_set(cursor: duckdb.DuckDBPyConnection, name: str) -> None:
    question = registry.question(name)
    set_variables(cursor, required(question))
    assert cursor.execute(question.sql).fetchall() is not None


@pytest.mark.parametrize("name", NAMES)
def test_answers_an_empty_store_with_every_parameter_and_every_choice(
    cursor: duckdb.DuckDBPyConnection, name: str
) -> None:
    question = registry.question(name)
    common = {key: value for key, value in GIVEN.items() if key in question.params}
    for parameter, spec in question.params.items():
        for choice in spec.one_of or ():
            given = {**common, **required(question), parameter: choice}
            for row in registry.rows(registry.run(cursor, name, given)):
                assert not [v for v in row.values() if isinstance(v, float)], "no data, no figure"


@pytest.mark.parametrize("name", NAMES)
def test_null_means_the_declared_default(cursor: duckdb.DuckDBPyConnection, name: str) -> None:
    question = registry.question(name)
    cursor.execute(
        "INSERT INTO requests BY NAME SELECT TIMESTAMP '2026-01-01' + to_seconds(i) AS ts,"
        " ts AS arrived, 's' AS source, 'f' AS source_format, 1 AS attempt, 'ok' AS status,"
        " 'miss' AS outcome, 'inclusive' AS prompt_basis, 1 AS batch, i AS position,"
        " 100 + i AS prompt_tokens, i AS cached_tokens,"
        " i / 10.0 AS ttft_seconds FROM range(150) t(i)"
    )
    defaults = {k: p.default for k, p in question.params.items() if p.default is not None}
    without = registry.run(cursor, name, required(question))
    assert registry.run(cursor, name, {**required(question), **defaults}).equals(without)


@pytest.mark.parametrize("name", [n for n in NAMES if registry.question(n).params])
def test_no_value_is_pasted_into_sql(name: str) -> None:
    """Nothing is left to fill in: the file is the statement."""
    sql = registry.question(name).sql
    assert not re.search(r"\{\w+\}|%s|\$\w+|COLUMNS\(|query_table\(", sql)


def test_files_are_found_by_their_name() -> None:
    with pytest.raises(ValueError, match=r"header of other\.sql: its name is 'hit_ratio'"):
        parse_question(registry.question("hit_ratio").sql, "other.sql")


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT 1", "does not start with a block comment"),
        ("/* a: [ */ SELECT 1", "header of x.sql: while parsing"),
        ("/* name: x */ SELECT 1", "header of x.sql: .*question"),
        ("/**/ SELECT 1", "header of x.sql"),
        (
            "/* {filters: [colour]} */ SELECT 1",
            "header of x.sql: unknown filter 'colour'; known: s",
        ),
        (
            "/* {params: {model: {}}, filters: [model]} */ SELECT 1",
            "header of x.sql: model is a filter and a parameter",
        ),
    ],
)
def test_a_broken_header_names_its_file(sql: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){problem}"):
        parse_question(sql, "x.sql")


def test_page_of_definitions_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == definitions.page(), (
        "run: python -m queries.definitions > docs/definitions.md"
    )
