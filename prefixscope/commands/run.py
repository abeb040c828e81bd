"""`demo` and `serve`: the exporter at work, with the dashboard beside it."""

import logging
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from exporter.store.trouble import SeldomAboutTheDisk
from prefixscope.consoles import messages
from prefixscope.dashboard_process import check_address, dashboard
from prefixscope.serve import listen as open_listener
from prefixscope.serve import running
from prefixscope.settings import Settings, load_settings, server_token

Listen = Annotated[
    str | None,
    typer.Option(help="HOST:PORT of the exporter.", show_default="127.0.0.1:9465"),
]
DashboardListen = Annotated[
    str | None,
    typer.Option(help="HOST:PORT of the dashboard.", show_default="127.0.0.1:8501"),
]


def serve(
    config: Annotated[
        Path | None,
        typer.Option("--config", envvar="PREFIXSCOPE_CONFIG", help="The YAML file of settings."),
    ] = None,
    with_dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Serve the pages too.")
    ] = False,
) -> None:
    """Run the exporter: scrape engines, take in logs, answer questions, serve /metrics.

    Example: prefixscope serve --config prefixscope.yml --dashboard
    """
    _log_to_stderr()
    settings = load_settings(config)
    if not settings.has_sources:
        messages().print(
            "Nothing to scrape or follow is configured: rows come by POST and prefixscope ingest "
            "only. Name engines under scrape.targets and logs under logs in a --config file."
        )
    _run(settings, with_dashboard)


def demo(
    directory: Annotated[
        Path, typer.Option(help="Folder for files and store; an earlier demo in it is replaced.")
    ] = Path("data/demo"),
    listen: Listen = None,
    dashboard_listen: DashboardListen = None,
    with_dashboard: Annotated[
        bool, typer.Option("--dashboard/--no-dashboard", help="Serve the pages too.")
    ] = True,
    days: Annotated[int, typer.Option(min=1, help="Days of history.")] = 35,
    requests: Annotated[int, typer.Option(min=1, help="About so many requests.")] = 300_000,
) -> None:
    """Look around: five weeks of labelled synthetic traffic, exporter and dashboard up.

    Example: prefixscope demo
    """
    from prefixscope.demo import run as demo_run  # noqa: PLC0415 - it is large, and --help does without

    _log_to_stderr()
    addresses = {
        "PREFIXSCOPE_SERVER__LISTEN": listen,
        "PREFIXSCOPE_DASHBOARD__LISTEN": dashboard_listen,
    }
    given = {name: address for name, address in addresses.items() if address is not None}
    settings = load_settings(None, {**os.environ, **given})
    _check_addresses(settings, with_dashboard)  # in use? better said now than after the work
    with demo_run.prepared(directory, settings, days=days, requests=requests) as prepared:
        _run(prepared, with_dashboard)


def _check_addresses(settings: Settings, with_dashboard: bool) -> None:
    open_listener(settings.server.listen).close()
    if with_dashboard:
        check_address(settings.dashboard.listen)


def _run(settings: Settings, with_dashboard: bool) -> None:
    """Serve until Ctrl-C or SIGTERM, then stop everything in order."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(highlight=False, soft_wrap=True)
    try:
        with ExitStack() as stack:
            exporter = stack.enter_context(running(settings))
            console.print(f"exporter   {exporter.url}   (/metrics, /now, /api/v1/queries)")
            if with_dashboard:
                token = server_token(settings.server)
                pages = dashboard(
                    settings.dashboard.listen, exporter.url, token, settings.dashboard.base_path
                )
                console.print(f"dashboard  {stack.enter_context(pages)}")
            console.print("Ctrl-C stops.")
            exporter.wait()
    except KeyboardInterrupt:
        messages().print("Stopped.")


def _log_to_stderr() -> None:
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(SeldomAboutTheDisk())
