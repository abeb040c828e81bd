"""What every figure means, from the headers of the questions: the page docs/definitions.md.

`python -m queries.definitions > docs/definitions.md` writes it; a test compares the two.
"""

from queries.header import Question
from queries.registry import questions

_INTRODUCTION = """\
# Definitions

Every figure prefixscope shows is the answer to one of these questions. Metrics, query API,
pages and reports use the same files, `queries/*.sql`; each runs as it is in the duckdb shell on
a store. This page is written from their headers by `python -m queries.definitions`; do not edit
it.

Ratios are sums divided by sums, 0 to 1, and NULL where there is nothing to divide by. NULL means
"not known" and is never the same as 0. Times are UTC. A window is [since, until). A value that
was not given is `''`, in answers and in filters.
"""


def page() -> str:
    """The whole of docs/definitions.md."""
    parts = [_INTRODUCTION, _contents(), *map(_section, questions().values())]
    return "\n".join(parts)


def _contents() -> str:
    lines = [f"- [{name}](#{name}): {asked.question}" for name, asked in questions().items()]
    return "\n".join([*lines, ""])


def _section(asked: Question) -> str:
    lines = [f"## {asked.name}", "", asked.question, "", f"Grain: {asked.grain}.", ""]
    if asked.params:
        lines += ["| parameter | type | default | meaning |", "| --- | --- | --- | --- |"]
        lines += [
            f"| {name} | {param.type} | {_default(param.default, param.required)} |"
            f" {_cell(param.meaning, param.one_of)} |"
            for name, param in asked.params.items()
        ]
        lines.append("")
    lines += ["| column | type | unit | meaning |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {name} | {column.type} | {column.unit} | {_cell(column.meaning, None)} |"
        for name, column in asked.columns.items()
    ]
    return "\n".join([*lines, ""])


def _default(default: object, required: bool) -> str:
    if required:
        return "required"
    return "–" if default is None else str(default)


def _cell(meaning: str, one_of: tuple[str, ...] | None) -> str:
    choices = f" One of {', '.join(one_of)}." if one_of else ""
    return (meaning + choices).replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
