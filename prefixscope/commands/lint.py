"""`lint`: what in a prompt's layout breaks reuse, with evidence and proof."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from prefixscope.consoles import terminal
from prefixscope.lint.in_common import have_template_in_common
from prefixscope.lint.output import as_json, print_comparison, print_report
from prefixscope.lint.reading import read_prompts
from prefixscope.lint.tokenizing import encoder
from replay.layout.against import compare
from replay.layout.search import search

FOUND_STATUS = 3


class Form(StrEnum):
    """How it is written."""

    TABLE = "table"
    JSON = "json"


Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="Logs with the text of prompts: OpenAI or Anthropic requests as JSON lines, LiteLLM "
        "spend logs with messages, rows with a prompt, or text files of one prompt; - for standard "
        "input.",
    ),
]
Against = Annotated[
    list[Path] | None,
    typer.Option(help="A log of the version before: what changes with the new one?"),
]
BlockTokens = Annotated[int, typer.Option(min=1, help="The cache's unit of reuse.")]
CapacityBlocks = Annotated[
    int | None, typer.Option(min=1, help="Blocks the cache holds.", show_default="never full")
]
Requests = Annotated[
    int, typer.Option(min=2, help="Compare at most so many requests, whole sessions of them.")
]
Quotes = Annotated[
    bool | None,
    typer.Option(
        "--quotes/--no-quotes",
        help="Show the text that changes.",
        show_default="on a terminal only",
    ),
]
Tokens = Annotated[
    Path | None,
    typer.Option(
        "--tokenizer",
        help="tokenizer.json of the model, or its folder. Needs the extra tokenizers.",
        show_default="approximate tokens",
    ),
]
As = Annotated[Form, typer.Option("--output", help="How to write it; json has none of the text.")]


def lint(
    files: Files,
    against: Against = None,
    block_tokens: BlockTokens = 16,
    capacity_blocks: CapacityBlocks = None,
    requests: Requests = 500,
    tokenizer: Tokens = None,
    quotes: Quotes = None,
    as_: As = Form.TABLE,
) -> None:
    """Find what in the layout of prompts breaks reuse: clocks, ids, shuffled tools and the like.

    Each finding has its place, the text that changes, and a proof: the token hit ratio of a replay
    as it is and with that place mended. Nothing of the text is kept or sent anywhere.
    Exit status 3: something breaks reuse; with --against: the new version is worse than the old,
    whatever else is found. 0: not so. 1: it failed. 2: wrong usage.

    Example: prefixscope lint requests.jsonl

    Example: prefixscope lint staging.jsonl --against production.jsonl
    """
    encode = None if tokenizer is None else encoder(tokenizer)
    log = read_prompts(files)
    if against is None:
        comparison, in_common = None, True
        report = search(log.prompts, block_tokens, capacity_blocks, requests, encode)
        bad = any(finding.frequency != "once" for finding in report.findings)
    else:
        old = read_prompts(against)
        asked = (block_tokens, capacity_blocks, requests, encode)
        comparison = compare(log.prompts, old.prompts, *asked)
        report, bad = comparison.new, comparison.is_worse
        in_common = have_template_in_common(log.prompts, old.prompts)
    if as_ is Form.JSON:
        print(as_json(report, comparison))
    else:
        console, shows = terminal(), sys.stdout.isatty() if quotes is None else quotes
        print_report(console, report, log, shows)
        if comparison is not None:
            print_comparison(console, comparison, shows, in_common)
    raise typer.Exit(FOUND_STATUS if bad else 0)
