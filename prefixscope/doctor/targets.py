"""Findings about one metric page. Pure: facts in, findings out."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from exporter.server_settings import is_loopback
from prefixscope.doctor.facts import TargetFacts
from prefixscope.doctor.findings import Finding, Severity
from replay.counted import counted

# Clocks further apart than this put rows and pages into the wrong minute.
SKEW_SECONDS = 5.0
BAD_SKEW_SECONDS = 60.0
# From this level on SGLang writes prompts and answers.
_SGLANG_WRITES_PROMPTS = 2


def check_target(target: TargetFacts) -> Iterator[Finding]:
    """Everything one page and its server tell."""
    yield _reachable(target)
    yield from _what_the_server_says(target)
    if not target.has_page:
        return
    yield from _missing(target)
    yield from (
        Finding("page-notice", Severity.NOTE, target.name, notice) for notice in target.notices
    )
    yield from _caching_off(target)
    yield from _frozen(target)
    yield from _clock(target)
    yield from _open_page(target)


def _reachable(target: TargetFacts) -> Finding:
    if target.has_page and target.up_for_exporter is False:
        return Finding(
            "target-reachable", Severity.FAULT, target.name,
            f"it answers here, but not to the exporter: {target.exporter_says or 'no page'}",
            "let the exporter reach it: names, routes and firewalls where the exporter runs",
        )  # fmt: skip
    if target.has_page:
        return Finding("target-reachable", Severity.OK, target.name, _answers(target))
    error = target.error or "it has not been asked yet"
    instead = f"; {target.instead} answers there" if target.instead not in (None, "nothing") else ""
    if target.up_for_exporter:
        return Finding(
            "target-reachable", Severity.NOTE, target.name,
            f"the exporter reads it, but from here not: {error}",
        )  # fmt: skip
    severity = Severity.NOTE if target.error is None else Severity.FAULT
    return Finding("target-reachable", severity, target.name, f"{error}{instead}", _way(target))


def _way(target: TargetFacts) -> str:
    """What to do about a page that is not there; many errors say it themselves."""
    if target.fix:
        return target.fix
    if target.error and ":" not in target.error:
        return "check the address, and that the engine runs with its metrics switched on"
    return ""


def _answers(target: TargetFacts) -> str:
    """`vLLM 0.32.0: model tiny, 42,264 prompt tokens, 63.0 % of them cached`."""
    parts = []
    if target.models:
        parts.append(f"model {', '.join(sorted(target.models))}")
    prompt, cached = target.prompt_tokens, target.cached_tokens
    if target.is_engine and prompt is not None:
        share = f", {cached / prompt:.1%} of them cached" if prompt and cached is not None else ""
        parts.append(f"{prompt:,} prompt tokens counted{share}")
    if target.role not in (None, "unified"):
        parts.append(f"role {target.role}, which enters no hit ratio")
    name = f"{target.title or target.engine} {target.version or ''}".strip()
    return f"{name}: {'; '.join(parts)}" if parts else f"{name} answers"


def _missing(target: TargetFacts) -> Iterator[Finding]:
    """Series by what to do about them; the tables of the engines say `series: what to do`."""
    by_fix: dict[str, list[str]] = {}
    for advice in target.missing:
        series, _, fix = advice.partition(": ")
        by_fix.setdefault(fix, []).append(series)
    for fix, names in by_fix.items():
        yield Finding(
            "metrics-missing", Severity.WARNING, target.name,
            f"the page has no {', '.join(names)}: what they tell stays unknown",
            fix or "update the engine, or see its page in docs/engines",
        )  # fmt: skip


_CACHING_ON = {
    "vllm": "start vLLM without --no-enable-prefix-caching",
    "sglang": "start SGLang without --disable-radix-cache",
    "tensorrt_llm": "set enable_block_reuse: true in kv_cache_config",
}


def _caching_off(target: TargetFacts) -> Iterator[Finding]:
    off = target.caching_enabled is False or target.settings.get("disable_radix_cache") is True
    if off:
        yield Finding(
            "caching-off", Severity.WARNING, target.name,
            "prefix caching is switched off: every prompt is computed whole, and counts as "
            "ineligible, not as missed",
            _CACHING_ON.get(target.engine or "", "switch prefix caching on"),
        )  # fmt: skip


def _frozen(target: TargetFacts) -> Iterator[Finding]:
    if target.frozen:
        yield Finding(
            "counters-frozen", Severity.FAULT, target.name,
            "the counters stand still while requests are served: the page is a copy, cached by a "
            "proxy, or of another process",
            "point the target at the engine itself, and at every API server or worker process",
        )  # fmt: skip
    elif target.stood_still_seconds is not None and target.running_requests:
        yield Finding(
            "counters-frozen", Severity.NOTE, target.name,
            f"no counter moved within {target.stood_still_seconds:.0f} s while "
            f"{counted(target.running_requests, 'request was', 'requests were')} running; a "
            "long prefill looks like that too, so look again",
        )  # fmt: skip


def _clock(target: TargetFacts) -> Iterator[Finding]:
    ahead = target.ahead_seconds
    if ahead is None or abs(ahead) <= SKEW_SECONDS:
        return
    bad = abs(ahead) > BAD_SKEW_SECONDS
    yield Finding(
        "clock-skew", Severity.WARNING if bad else Severity.NOTE, target.name,
        f"its clock is {abs(ahead):,.0f} s {'ahead of' if ahead > 0 else 'behind'} ours: its log "
        "rows land in other minutes than its counters",
        "synchronise both machines (NTP, chrony)",
    )  # fmt: skip


def _open_page(target: TargetFacts) -> Iterator[Finding]:
    """Pages of gateways name teams and keys; loopback is reached by nobody else."""
    host = urlsplit(target.url or "").hostname or "localhost"
    if target.observer == "gateway" and target.url and not is_loopback(f"{host}:0"):
        yield Finding(
            "metrics-open", Severity.NOTE, target.name,
            "the page is read without a key and names teams and models: whoever reaches it reads "
            "it too",
            "keep its port inside your network",
        )  # fmt: skip


def _what_the_server_says(target: TargetFacts) -> Iterator[Finding]:
    """SGLang tells how it was started."""
    if target.engine != "sglang" or not target.settings:
        return
    told = target.settings
    yield from _prompt_writing(target.name, told)
    if told.get("kv_events_config"):
        yield Finding(
            "kv-events", Severity.NOTE, target.name,
            "KV-cache events are published; they carry the token ids of prompts, and whoever "
            "connects to the socket can read them",
            "keep the event ports inside the pod or network",
        )  # fmt: skip


def _prompt_writing(name: str, told: object) -> Iterator[Finding]:
    settings = told if isinstance(told, dict) else {}
    level = settings.get("log_requests_level")
    if not isinstance(level, int) or level < _SGLANG_WRITES_PROMPTS:
        return
    writers = ("export_metrics_to_file", "log_requests")
    on = [f"--{name.replace('_', '-')}" for name in writers if settings.get(name) is True]
    if on:
        yield Finding(
            "prompts-leak", Severity.WARNING, name,
            f"{' and '.join(on)} with request log level {level} write prompts and answers to disk",
            "start SGLang with --log-requests-level 0",
        )  # fmt: skip
