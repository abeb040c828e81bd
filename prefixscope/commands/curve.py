"""`curve`: the token hit ratio at every capacity."""

import csv
import json
import sys
from dataclasses import replace
from enum import StrEnum
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated

import typer

from exporter.errors import PrefixscopeError
from prefixscope.commands import geometry_options, options, trace_options, traffic_options
from prefixscope.consoles import messages
from prefixscope.curve_output import CurveGroup, CurveShown, Row, print_curve
from prefixscope.tables import printable
from replay.rules import RULES, CacheRule

if TYPE_CHECKING:
    from replay.curve import Curve
    from replay.recorded import Labels, Recorded


class CurveOutput(StrEnum):
    """How the curve is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class CurveBy(StrEnum):
    """What has a cache of its own."""

    SCOPE = "scope"
    REPLICA = "replica"


_LACKING = {
    CurveBy.SCOPE: "no request has a trust scope (a cache salt, an adapter, ids of its own trace)",
    CurveBy.REPLICA: (
        "no request tells which replica served it; a trace has that in the file that"
        " `prefixscope export --labels` writes beside it (--labels)"
    ),
}


def curve(
    traces: trace_options.Traces = None,
    capacity_blocks: Annotated[
        str | None,
        typer.Option(help="Capacities to show: N,N,…", show_default="some"),
    ] = None,
    rule: trace_options.Rule = "full",
    block_tokens: trace_options.BlockTokens = None,
    unit: trace_options.Unit = None,
    labels: trace_options.TraceLabels = None,
    by: Annotated[
        CurveBy | None,
        typer.Option(help="A curve for each, as if each had a cache of its own, and their sum."),
    ] = None,
    replicas: Annotated[
        int,
        typer.Option(min=1, help="Request i goes to replica i mod N; capacities are of each."),
    ] = 1,
    warm_up: trace_options.WarmUp = 0.0,
    config: geometry_options.Config = None,
    kv_dtype: geometry_options.KvDtype = None,
    since: traffic_options.Since = None,
    until: traffic_options.Until = None,
    model: traffic_options.Model = None,
    store: options.StoreFolder = None,
    url: options.Url = None,
    token: options.Token = None,
    as_: Annotated[CurveOutput, options.OUTPUT] = CurveOutput.TABLE,
) -> None:
    """Show what a larger or smaller cache would have hit: exact, at every capacity, in one pass.

    Least recently used, by order of the requests alone: every earlier request's blocks are there.

    Example: prefixscope curve trace.jsonl.gz --capacity-blocks 10000,50000 --config config.json
    """
    trace_options.check_words(rule, unit)
    if by is not None and replicas > 1:
        raise typer.BadParameter("give --by or --replicas, not both: each says whose caches are")
    wanted = _capacities(capacity_blocks)
    token_bytes = geometry_options.token_bytes(config, kv_dtype)
    found = trace_options.traffic(
        trace_options.Wanted(
            traces=traces, block_tokens=block_tokens, unit=unit, labels=labels, since=since,
            until=until, model=model, store=store, url=url, token=token,
        )
    )  # fmt: skip
    messages().print(printable(found.words()), style="dim", markup=False)
    shown = _shown(found.recorded, RULES[rule], by, replicas, warm_up, found.name)
    _write(replace(shown, token_bytes=token_bytes), wanted, as_)


def _write(shown: CurveShown, wanted: list[int], as_: CurveOutput) -> None:
    sizes = wanted or _usual_capacities(shown.curve.enough_blocks)
    if as_ is CurveOutput.JSON:
        print(json.dumps(shown.as_json(sizes), indent=2))
    elif as_ is CurveOutput.CSV:
        _write_csv(shown.all_rows(sizes))
    else:
        print_curve(shown, sizes)


def _capacities(text: str | None) -> list[int]:
    """As a person lists them; none where nothing is listed."""
    if text is None:
        return []
    try:
        sizes = [int(part) for part in text.replace("_", "").split(",")]
    except ValueError:
        sizes = [0]
    if min(sizes) < 1:
        said = "takes numbers from 1 on, like 10000,50000"
        raise typer.BadParameter(f"--capacity-blocks {said}: {text!r}")
    return sizes


def _usual_capacities(enough_blocks: int) -> list[int]:
    """1, 2 and 5 times powers of ten from a thousandth of what is ever useful on, and that."""
    steps = (digit * 10**power for power in range(19) for digit in (1, 2, 5))
    useful = takewhile(lambda size: size < enough_blocks, steps)
    return [*(size for size in useful if size * 1000 >= enough_blocks), max(enough_blocks, 1)]


def _shown(
    recorded: "Recorded",
    rule: CacheRule,
    by: CurveBy | None,
    replicas: int,
    warm_up: float,
    name: str,
) -> CurveShown:
    prompts = recorded.prompts
    counted_from = int(warm_up * len(prompts))
    labels = None if by is None else getattr(recorded, by.value)
    if by is not None and labels is None:
        raise PrefixscopeError(f"{name}: {_LACKING[by]}")
    # Compiled code is loaded once the trace is read: the two need their memory one by one.
    from replay.curve import curve_of_replicas, summed  # noqa: PLC0415

    groups = [] if labels is None else _groups(recorded, rule, labels, counted_from)
    whole = (
        summed([group.curve for group in groups])
        if groups
        else curve_of_replicas(prompts, rule, replicas, counted_from)
    )
    return CurveShown(
        curve=whole,
        requests=len(prompts),
        block_tokens=prompts.block_tokens,
        rule=rule.name,
        caches=len(groups) or replicas,
        by=by.value if by else None,
        groups=groups,
    )


def _groups(
    recorded: "Recorded", rule: CacheRule, labels: "Labels", counted_from: int
) -> list[CurveGroup]:
    """Those with most prompt tokens first; requests without a label are together."""
    from replay.curve import curves_of_groups  # noqa: PLC0415 - compiled code

    names = [*labels.names, "(none)"]
    codes = labels.codes % len(names)
    curves: list[Curve] = curves_of_groups(recorded.prompts, rule, codes, counted_from)
    groups = [
        CurveGroup(name, int((codes == code).sum()), each)
        for code, (name, each) in enumerate(zip(names, curves, strict=False))
        if (codes == code).any()
    ]
    return sorted(groups, key=lambda group: -group.curve.prompt_tokens)


def _write_csv(rows: list[Row]) -> None:
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
