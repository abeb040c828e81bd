"""Nothing people read says "1 requests": what is counted goes through `replay.counted`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from replay.counted import counted

ROOT = Path(__file__).parents[2]
PACKAGES = ("exporter", "queries", "replay", "dashboard", "prefixscope")
# Things of which there may well be one. Tokens come in thousands, and durations have fractions.
THINGS = (
    "requests", "rows", "replicas", "blocks", "prefixes", "files", "turns", "traces", "messages",
    "batches", "targets", "tenants", "templates", "sessions", "models", "findings", "streams",
    "columns", "places", "resets", "gaps", "weeks", "hashes",
)  # fmt: skip
THING = re.compile(rf" (?:[a-z]+ ){{0,1}}(?:{'|'.join(THINGS)})\b(?!')")
# What a file must have to be looked at closely, in one text or in two that are put together.
MAYBE = re.compile(rf"\}}(?:[\"']\s*f?[\"'])? (?:[a-z]+ )?(?:{'|'.join(THINGS)})\b")
# Words behind which a noun is no longer what the number counts.
_BETWEEN = re.compile(
    r" (?:of|in|among|and|that|to|as|by|on|with|without|for|has|brings|names|keeps) "
)


@pytest.mark.parametrize(
    ("number", "told"),
    [(0, "0 rows are"), (1, "1 row is"), (1.0, "1 row is"), (2, "2 rows are"), (None, "– rows are"),
     (12_345, "12,345 rows are")],
)  # fmt: skip
def test_one_is_no_plural(number: float | None, told: str) -> None:
    assert counted(number, "row is", "rows are") == told
    assert counted(number, "row") == told.rsplit(" ", 1)[0]


def uncounted(tree: ast.AST) -> Iterator[str]:
    """Values in front of a thing in the plural that are no constants of several."""
    for text in ast.walk(tree):
        if isinstance(text, ast.JoinedStr):
            for value, behind in zip(text.values, text.values[1:], strict=False):
                if not isinstance(value, ast.FormattedValue) or _is_constant(value.value):
                    continue
                words = behind.value if isinstance(behind, ast.Constant) else ""
                if THING.match(words) and not _BETWEEN.match(words):
                    yield f"{ast.unparse(value.value)}{words[:30]}"


def _is_constant(value: ast.expr) -> bool:
    """A name in capitals: that there are several is known."""
    name = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
    return name.isupper()


def test_a_plural_behind_a_value_is_found() -> None:
    text = "f'{x:,} rows, {MOST} rows, {x} of {y} late rows, {counted(x, \"row\")}'"
    assert list(uncounted(ast.parse(text))) == ["x rows, ", "y late rows, "]
    assert MAYBE.search("f'{x:,}'\n    f' late rows'")
    assert not MAYBE.search("f'{counted(x, \"row\")}, and rows'")


@pytest.mark.parametrize("package", PACKAGES)
def test_whatever_is_counted_may_be_one(package: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}: {each}"
        for path in sorted((ROOT / package).rglob("*.py"))
        if MAYBE.search(text := path.read_text("utf-8"))
        for each in uncounted(ast.parse(text))
    }
    assert not found, "write counted(number, 'row') of replay.counted"
