"""Input nobody wants: each row ends as a request with a flag or as a reject with a reason."""

import gzip
import io
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from exporter.errors import PrefixscopeError
from exporter.sources.intake import Intake
from exporter.sources.packed import open_input
from exporter.store.store import Store
from tests.log_path import NOON, Row, ask, by_id, load, ndjson, rejects, requests

# What stands in the row -> the whole number it means, or None where it means none.
COUNTS: list[tuple[str, int | None]] = [
    ("512", 512), ("512.0", 512), ('"512"', 512), ('"512.0"', 512), ("5.12e2", 512), ("0", 0),
    ("999999999", 999999999),
    ("-1", None), ('"-7"', None),
    ("true", None), ("false", None), ('"many"', None), ('""', None), ("[512]", None),
    ('{"value":512}', None), ("NaN", None), ("Infinity", None), ("-Infinity", None),
    ('"NaN"', None), ('"inf"', None), ("1e400", None), ("1e16", None),
    ("9223372036854775807", None), ("9223372036854775808", None),
    ("18446744073709551615", None), ("18446744073709551616", None), ("-9223372036854775809", None),
    ("1" * 400, None),
]  # fmt: skip
SECONDS: list[tuple[str, float | None]] = [
    ("0.25", 0.25), ("1", 1.0), ('"0.25"', 0.25), ("1e-3", 0.001),
    ("-0.25", None), ("true", None), ("false", None), ('"soon"', None), ('""', None),
    ("[1]", None), ("{}", None), ("NaN", None), ("Infinity", None), ("1e400", None),
    ("1e300", None), ('"-1"', None),
]  # fmt: skip
# All fields people rely on are there, so that the one in question is the only odd one.
FULL = {
    "ts": NOON, "prompt_tokens": 999_999_999, "cached_tokens": 512, "cache_write_tokens": 3,
    "output_tokens": 5, "ttft_seconds": 2.0, "queue_seconds": 0.1, "prefill_seconds": 0.2,
    "e2e_seconds": 9.0, "ttft_point": "gateway",
}  # fmt: skip


def with_value(request_id: str, field: str, literal: str) -> str:
    """A full row with that JSON literal as it is."""
    row = {"request_id": request_id, **FULL, field: "<here>"}
    return json.dumps(row).replace('"<here>"', literal)


def test_bad_optional_counts_are_unknown_and_never_a_number(shared_store: Store) -> None:
    field = "cache_write_tokens"
    lines = [with_value(str(n), field, literal) for n, (literal, _) in enumerate(COUNTS)]
    load(shared_store, lines, field)
    stored = by_id(shared_store, field)
    got = {literal: stored[str(n)][field] for n, (literal, _) in enumerate(COUNTS)}
    assert got == dict(COUNTS)


@pytest.mark.parametrize("field", ["prompt_tokens", "cached_tokens", "output_tokens"])
def test_bad_numbers_of_tokens_are_unknown_and_flagged(shared_store: Store, field: str) -> None:
    lines = [with_value(str(n), field, literal) for n, (literal, _) in enumerate(COUNTS)]
    summary = load(shared_store, lines, field)
    stored = by_id(shared_store, field)
    got = {literal: stored[str(n)][field] for n, (literal, _) in enumerate(COUNTS)}
    # A prompt of no tokens at all is not known either (and has a flag of its own).
    nothing = None if field == "prompt_tokens" else 0
    assert got == {literal: nothing if value == 0 else value for literal, value in COUNTS}
    flagged = {literal for n, (literal, _) in enumerate(COUNTS)
               if f"unusable:{field}" in (stored[str(n)]["flags"] or [])}  # fmt: skip
    assert flagged == {literal for literal, value in COUNTS if value is None}
    assert (summary.accepted, summary.rejected) == (len(COUNTS), 0)
    assert summary.flags[f"unusable:{field}"] == len(flagged)


@pytest.mark.parametrize("field", ["prompt_tokens", "cached_tokens"])
@pytest.mark.parametrize("literal", ["512.7", '"512.7"', "-0.5", "0.5"])
def test_fraction_of_a_token_is_unknown_and_flagged(
    shared_store: Store, field: str, literal: str
) -> None:
    source = f"fraction {field} {literal}"
    summary = load(shared_store, [with_value(source, field, literal)], source)
    assert by_id(shared_store, source)[source][field] is None
    assert summary.flags == {f"unusable:{field}": 1}


@pytest.mark.parametrize("field", ["ttft_seconds", "queue_seconds", "e2e_seconds"])
def test_bad_numbers_of_seconds_are_unknown_and_flagged(shared_store: Store, field: str) -> None:
    lines = [with_value(str(n), field, literal) for n, (literal, _) in enumerate(SECONDS)]
    load(shared_store, lines, field)
    stored = by_id(shared_store, field)
    got = {literal: stored[str(n)][field] for n, (literal, _) in enumerate(SECONDS)}
    assert got == dict(SECONDS)
    flagged = {literal for n, (literal, _) in enumerate(SECONDS)
               if f"unusable:{field}" in (stored[str(n)]["flags"] or [])}  # fmt: skip
    assert flagged == {literal for literal, value in SECONDS if value is None}


def test_small_whole_numbers_beyond_their_column_do_not_break_the_batch(store: Store) -> None:
    rows: list[Row] = [
        {"request_id": field, "ts": NOON, "prompt_tokens": 10, field: 3_000_000_000}
        for field in ("attempt", "turn", "block_size")
    ]
    summary = load(store, [*rows, {"request_id": "good", "ts": NOON, "prompt_tokens": 10}])
    assert summary.accepted + summary.rejected == 4
    assert by_id(store)["good"]["prompt_tokens"] == 10


def test_sums_of_enormous_counts_do_not_break_the_store(store: Store) -> None:
    rows = [{"request_id": str(n), "ts": NOON, "prompt_tokens": 8 * 10**15, "cached_tokens": 0}
            for n in range(2000)]  # fmt: skip
    assert load(store, rows).accepted == 2000
    (figures,) = ask(store, "hit_ratio")
    assert figures["requests"] == 2000


REJECTED = [
    (b"{broken", "invalid_json"),
    (b'{"request_id":"cut","prompt_tokens":', "invalid_json"),
    (b'{"request_id":"two"} {"request_id":"rows"}', "invalid_json"),
    (b"\x00\x00\x00", "invalid_json"),
    (b'{"request_id":"nul\x00"}', "invalid_json"),
    (b'{"request_id":"\xc3\x28"}', "invalid_utf8"),
    (b"plain text that is no JSON", "invalid_json"),
    (b"[1, 2, 3]", "not_an_object"),
    (b"null", "not_an_object"),
    (b"{}", "no_known_field"),
    (b'{"level":"info"}', "no_known_field"),
    (b'{"request_id":"t","ts":"last tuesday","prompt_tokens":5}', "unreadable_time"),
    (b'{"request_id":"t","ts":12,"prompt_tokens":5}', "implausible_time"),
]


def test_every_reject_has_its_reason_place_and_masked_excerpt(store: Store) -> None:
    good = {"request_id": "good", "ts": NOON, "prompt_tokens": 10}
    summary = load(store, [*(line for line, _ in REJECTED), good])
    assert rejects(store) == [(n, reason) for n, (_, reason) in enumerate(REJECTED, start=1)]
    assert summary.accepted == 1
    counted = {reason: sum(r == reason for _, r in REJECTED) for _, reason in REJECTED}
    assert summary.reasons == counted
    asked = {row["reason"]: row["rejects"] for row in ask(store, "rejects")}
    assert asked == counted
    position, excerpt = store.cursor().execute(
        "SELECT position, excerpt FROM rejects WHERE line_number = 2"
    ).fetchone() or ()  # fmt: skip
    assert position == 8
    assert excerpt.startswith('{"xxxxxxx_xx":"xxx","xxxxxx_xxxxxx":')


def test_reading_rejects_again_adds_none(store: Store) -> None:
    lines = [line for line, _ in REJECTED]
    load(store, lines)
    again = load(store, lines)
    assert again.rejected == len(REJECTED), "the summary tells of this file"
    assert len(rejects(store)) == len(REJECTED), "the store keeps each once"
    counted = store.counters.snapshot().rejected
    assert sum(counted.values()) == len(REJECTED)


def test_escaped_nul_and_lone_surrogates_do_no_harm(store: Store) -> None:
    lines = [
        '{"request_id":"nul","ts":1772452800,"prompt_tokens":5,"tenant":"a\\u0000b"}',
        '{"request_id":"lone","ts":1772452800,"prompt_tokens":5,"tenant":"a\\ud800b"}',
        '{"request_id":"good","ts":1772452800,"prompt_tokens":5}',
    ]
    summary = load(store, lines)
    assert summary.accepted + summary.rejected == 3
    assert by_id(store)["good"]["prompt_tokens"] == 5
    json.dumps(ask(store, "hit_ratio", by="tenant"), allow_nan=False)


def test_repeated_keys_are_read_once_and_the_same_way_every_time(store: Store) -> None:
    line = '{"request_id":"r","ts":1772452800,"prompt_tokens":5,"prompt_tokens":7}'
    load(store, [line])
    assert load(store, [line]).duplicate == 1
    assert by_id(store)["r"]["prompt_tokens"] in (5, 7)


def test_fifty_megabyte_line_is_one_reject(store: Store) -> None:
    good = ndjson([{"request_id": "good", "ts": NOON, "prompt_tokens": 10}])
    data = b'{"request_id":"long","prompt":"' + b"x" * (50 << 20) + b'"}\n' + good
    summary = load(store, data)
    assert (summary.accepted, summary.reasons) == (1, {"too_long": 1})


PACKERS: list[Callable[[bytes], bytes]] = [gzip.compress, zstandard.compress]


def packed_rows(rows: int) -> bytes:
    """Rows that do not compress well, so that damage hits the middle of the data."""
    return ndjson(
        {"request_id": f"{n * 2654435761 % 2**32:x}", "ts": NOON, "prompt_tokens": n % 977 + 1}
        for n in range(rows)
    )


def take(store: Store, data: bytes) -> int:
    stream = open_input(io.BytesIO(data))
    return Intake(store).ingest(stream, source="packed", name="log.packed").accepted


@pytest.mark.parametrize("pack", PACKERS)
def test_compressed_input_is_told_by_its_bytes(
    store: Store, pack: Callable[[bytes], bytes]
) -> None:
    data = packed_rows(1000)
    assert take(store, pack(data)) == 1000
    assert take(store, pack(data[:5000]) + pack(data[5000:])) == 0, "members in a row are one"
    assert take(store, data) == 0, "and the same file unpacked"


@pytest.mark.parametrize("pack", PACKERS)
@pytest.mark.parametrize("damage", ["cut", "flipped", "cut at the start"])
def test_damaged_input_says_so_and_how_many_rows_are_stored(
    store: Store, pack: Callable[[bytes], bytes], damage: str
) -> None:
    data = bytearray(pack(packed_rows(5000)))
    if damage == "flipped":
        data[len(data) // 2] ^= 0xFF
        data[-3] ^= 0xFF  # neither library may miss a wrong check sum
    else:
        del data[len(data) // 2 if damage == "cut" else 20 :]
    with pytest.raises(PrefixscopeError, match=r"log\.packed: .*damaged or ends early") as caught:
        take(store, bytes(data))
    stored = len(requests(store))
    assert stored == 0 or f"{stored:,} rows are stored, from before the damage" in str(caught.value)


def test_rows_before_the_damage_are_stored_and_counted(tmp_path: Path) -> None:
    # More than one batch of 32 MB, which wants the memory a store has by default.
    store = Store.open(tmp_path / "store")
    filler = random.Random(1)
    rows = ndjson(
        {"request_id": str(n), "ts": NOON, "prompt_tokens": 5, "x": filler.randbytes(10_000).hex()}
        for n in range(2000)
    )
    data = gzip.compress(rows, 1)
    with pytest.raises(PrefixscopeError) as caught:
        take(store, data[: len(data) * 95 // 100])
    stored = len(requests(store))
    store.close()
    assert 1500 < stored < 2000
    assert f"{stored:,} rows are stored, from before the damage" in str(caught.value)
