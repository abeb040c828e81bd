"""Pages as bytes: content types, spellings, times, and what is no metric page at all."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from exporter.sources.engines.reading import read_page
from exporter.sources.exposition import NotAMetricsPage, parse_page
from exporter.sources.increase import advance
from exporter.sources.target_state import TargetIdentity, TargetState

CLASSIC = "text/plain;version=0.0.4"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def values(body: str, content_type: str | None = CLASSIC) -> dict[str, float]:
    return {s.name: s.value for s in parse_page(body.encode(), content_type).samples}


@pytest.mark.parametrize("content_type", [CLASSIC, OPENMETRICS])
@pytest.mark.parametrize("family", ["vllm:prompt_tokens", "vllm:prompt_tokens_total"])
def test_t46_one_counter_in_every_spelling(content_type: str, family: str) -> None:
    body = (
        f"# HELP {family} Prompt tokens.\n# TYPE {family} counter\nvllm:prompt_tokens_total 5\n"
        "# EOF\n"
    )
    assert values(body, content_type) == {"vllm:prompt_tokens_total": 5}


def test_t46_a_histogram_whose_name_ends_in_total_stays_one() -> None:
    body = (
        "# TYPE vllm:iteration_tokens_total histogram\n"
        'vllm:iteration_tokens_total_bucket{le="1.0"} 2\n'
        'vllm:iteration_tokens_total_bucket{le="+Inf"} 3\n'
        "vllm:iteration_tokens_total_count 3\nvllm:iteration_tokens_total_sum 4\n# EOF\n"
    )
    assert values(body, OPENMETRICS)["vllm:iteration_tokens_total_count"] == 3


def test_metadata_that_keeps_the_colon_while_samples_lost_it() -> None:
    body = (
        "# TYPE sglang:time_to_first_token_seconds histogram\n"
        'sglang_time_to_first_token_seconds_bucket{le="1.0",m="a"} 1\n'
        'sglang_time_to_first_token_seconds_bucket{le="+Inf",m="a"} 1\n'
        'sglang_time_to_first_token_seconds_count{m="a"} 1\n'
        'sglang_time_to_first_token_seconds_sum{m="a"} 0.5\n'
        'sglang_time_to_first_token_seconds_bucket{le="1.0",m="b"} 1\n'
        'sglang_time_to_first_token_seconds_bucket{le="+Inf",m="b"} 1\n'
        'sglang_time_to_first_token_seconds_count{m="b"} 1\n'
        'sglang_time_to_first_token_seconds_sum{m="b"} 0.5\n# EOF\n'
    )
    assert "sglang:time_to_first_token_seconds_sum" in values(body, OPENMETRICS)


@pytest.mark.parametrize("prefix", ["vllm:", "vllm_", "ray_vllm_"])
def test_t56_colons_are_accepted_and_spellings_become_one(prefix: str) -> None:
    assert values(f"{prefix}prompt_tokens_total 5\n") == {"vllm:prompt_tokens_total": 5}


@pytest.mark.parametrize("content_type", [CLASSIC, OPENMETRICS])
def test_t45_created_is_a_start_time_and_no_second_series(content_type: str) -> None:
    suffix = "_total" if content_type == CLASSIC else ""
    body = (
        f"# TYPE vllm:prompt_tokens{suffix} counter\n"
        'vllm:prompt_tokens_total{model_name="m"} 1234\n'
        'vllm:prompt_tokens_created{model_name="m"} 1700000000\n# EOF\n'
    )
    page = parse_page(body.encode(), content_type)
    assert [(s.name, s.value) for s in page.samples] == [("vllm:prompt_tokens_total", 1234)]
    labels = {"model_name": "m"}
    assert page.start_of("vllm:prompt_tokens_total", labels) == 1_700_000_000
    read = read_page(body.encode(), content_type)
    assert [reading.value for reading in read.series.values()] == [1234]


def test_t54_classic_times_are_milliseconds_and_openmetrics_seconds() -> None:
    expected = datetime(2025, 11, 29, 22, 25, 38, tzinfo=UTC)
    classic = parse_page(b"b 2 1764455138000\n", CLASSIC).samples[0].timestamp
    modern = parse_page(b"b 2 1764455138.0\n# EOF\n", OPENMETRICS).samples[0].timestamp
    assert classic is not None
    assert modern is not None
    assert datetime.fromtimestamp(classic, UTC) == expected
    assert datetime.fromtimestamp(modern, UTC) == expected


def test_times_on_the_page_are_the_samples_own_unless_they_are_in_the_future() -> None:
    body = b"llamacpp:requests_processing 2 1764455138000\n"
    page = read_page(body, CLASSIC)
    assert page.time_of(1_764_455_140) == 1_764_455_138
    assert page.time_of(1_764_450_000) == 1_764_450_000


def test_t55_labels_with_spaces_and_values_with_times() -> None:
    body = 'x_total{model_name="my model v1"} 7\nx_total{model_name="b"} 9 1764455138000\n'
    page = parse_page(body.encode(), CLASSIC)
    assert {s.labels["model_name"]: s.value for s in page.samples} == {"my model v1": 7, "b": 9}


def test_t51_bucket_bounds_are_numbers() -> None:
    def page(replica: str, bound: str, inside: int) -> bytes:
        name = "vllm:time_to_first_token_seconds"
        labels = f'model_name="m",engine="{replica}"'
        return (
            f'{name}_bucket{{{labels},le="{bound}"}} {inside}\n'
            f'{name}_bucket{{{labels},le="+Inf"}} {100 if inside else 0}\n'
            f"{name}_sum{{{labels}}} {inside}\n{name}_count{{{labels}}} {inside}\n"
        ).encode()

    counts: dict[float, int] = {}
    for replica, bound, inside in (("a", "1", 90), ("b", "1.0", 95)):
        state = TargetState()
        who = TargetIdentity(replica, replica)
        advance(state, read_page(page(replica, bound, 0), CLASSIC), 1e9, who)
        after = advance(state, read_page(page(replica, bound, inside), CLASSIC), 1e9 + 60, who)
        for upper, count in (after[0].ttft_buckets or {}).items():
            counts[upper] = counts.get(upper, 0) + count
    assert counts == {1.0: 185, float("inf"): 200}


@pytest.mark.parametrize("content_type", [None, "", "foo/bar", "application/octet-stream"])
def test_t52_odd_or_no_content_type_is_read_as_classic_text_with_a_warning(
    content_type: str | None,
) -> None:
    page = parse_page(b"vllm:prompt_tokens_total 5\n", content_type)
    assert page.samples[0].value == 5
    assert len(page.warnings) == 1
    assert "read as classic text" in page.warnings[0]
    assert parse_page(b"x 1\n", CLASSIC).warnings == ()


@pytest.mark.parametrize(
    ("body", "content_type", "says"),
    [
        (b"<!DOCTYPE html><p>login</p>", CLASSIC, "HTML"),
        (b"  <html>", None, "HTML"),
        (b"x 1", "text/html; charset=utf-8", "HTML"),
        (b"[]", "application/json", "JSON"),
        (b"\n", "application/vnd.google.protobuf", "protobuf"),
        (b"x\xff 1\n", CLASSIC, "not UTF-8"),
        (b"x 1\n", OPENMETRICS, "EOF"),
        (b"x{le=1} 1\n", CLASSIC, "not valid Prometheus text"),
        (b"x one\n", CLASSIC, "not valid Prometheus text"),
        (b"x 1_000\n", CLASSIC, "not valid Prometheus text"),
        (b"x 1 2 3\n", CLASSIC, "not valid Prometheus text"),
        (b"{}{}{\n", CLASSIC, "not valid Prometheus text"),
        (b"x{a=\"b\" 1\n", CLASSIC, "not valid Prometheus text"),
    ],
)  # fmt: skip
def test_what_is_no_metric_page_says_what_it_is(
    body: bytes, content_type: str | None, says: str
) -> None:
    with pytest.raises(NotAMetricsPage, match=says):
        parse_page(body, content_type)


def test_a_broken_line_of_another_library_does_not_cost_the_page() -> None:
    body = b"go_broken{ 1\nllamacpp:prompt_tokens_cached_total 5\nllamacpp:prompt_tokens_total 1\n"
    assert len(read_page(body, CLASSIC).series) == 2


def test_windows_line_ends_and_blank_lines() -> None:
    body = "# TYPE vllm:prompt_tokens_total counter\r\n\r\nvllm:prompt_tokens_total 5\r\n"
    assert values(body) == {"vllm:prompt_tokens_total": 5}


LABEL_VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(
    labels=st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True), LABEL_VALUES),
    value=st.floats(allow_nan=False),
    milliseconds=st.none() | st.integers(0, 4_000_000_000_000),
    typed=st.booleans(),
)
def test_classic_text_reads_as_the_library_reads_it(
    labels: dict[str, str], value: float, milliseconds: int | None, typed: bool
) -> None:
    escaped = (
        (key, text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"'))
        for key, text in labels.items()
    )
    inside = ",".join(f'{key}="{text}"' for key, text in escaped)
    stated = "" if milliseconds is None else f" {milliseconds}"
    body = ("# TYPE x counter\n" if typed else "") + f"x{{{inside}}} {value}{stated}\n"
    expected = [
        (s.name, s.labels, float(s.value), s.timestamp)
        for family in text_string_to_metric_families(body)
        for s in family.samples
    ]
    found = parse_page(body.encode(), CLASSIC).samples
    assert [(s.name, s.labels, s.value, s.timestamp) for s in found] == expected
