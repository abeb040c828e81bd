"""`tap`: records of requests for engines that keep none, as a file to mount or as a proxy."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from exporter.errors import PrefixscopeError
from exporter.server_settings import split_address
from prefixscope.consoles import messages

_DEFAULT_FILE = "prefixscope-tap.ndjson"


def tap(
    upstream: Annotated[
        str | None, typer.Option(help="Address of the engine to stand in front of.")
    ] = None,
    print_file: Annotated[
        bool, typer.Option("--print", help="Write the middleware as one file to standard output.")
    ] = False,
    listen: Annotated[str, typer.Option(help="HOST:PORT of the proxy.")] = "127.0.0.1:9466",
    out: Annotated[
        Path | None, typer.Option(help="File to write rows to.", show_default=_DEFAULT_FILE)
    ] = None,
    post: Annotated[
        str | None, typer.Option(help="Exporter's /v1/requests to send rows to instead.")
    ] = None,
) -> None:
    """Record every request to an engine: tokens, cached tokens, times, labels, hashes.

    As vLLM's middleware: prefixscope tap --print > prefixscope_tap.py, then start vLLM with
    PREFIXSCOPE_TAP_FILE=tap.ndjson PYTHONPATH=. and --middleware prefixscope_tap.Tap.
    In front of any engine: prefixscope tap --upstream http://127.0.0.1:8000

    Every further setting is an environment variable, PREFIXSCOPE_TAP_…: see docs/tap.md.
    """
    if print_file == (upstream is not None):
        raise typer.BadParameter("give either --upstream URL or --print")
    if print_file:
        from prefixscope.tap_file import one_file  # noqa: PLC0415 - as below

        sys.stdout.write(one_file())
    else:
        _serve(str(upstream), listen, out, post)


def _serve(upstream: str, listen: str, out: Path | None, post: str | None) -> None:
    # Late, so that --help does not wait for an HTTP client.
    from prefixscope.tap.settings import BadTapSettings, tap_settings  # noqa: PLC0415
    from prefixscope.tap_proxy import serve_tap  # noqa: PLC0415

    environment = dict(os.environ)
    if out is not None:
        environment["PREFIXSCOPE_TAP_FILE"] = str(out)
    if post is not None:
        environment["PREFIXSCOPE_TAP_POST"] = post
    if not {"PREFIXSCOPE_TAP_FILE", "PREFIXSCOPE_TAP_POST"} & set(environment):
        environment["PREFIXSCOPE_TAP_FILE"] = _DEFAULT_FILE
    if not upstream.startswith(("http://", "https://")):
        raise typer.BadParameter("--upstream must begin with http:// or https://")
    host, port = split_address(listen)
    try:
        settings = tap_settings(environment)
        messages().print(f"tap        http://{listen} -> {upstream}   Ctrl-C stops.")
        serve_tap(upstream, host, port, settings)
    except BadTapSettings as error:
        raise PrefixscopeError(str(error)) from error
