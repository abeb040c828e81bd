"""`lint`: findings and exit states, and that no text of a prompt leaves the terminal."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]  # the fixture: arguments in, status and texts out

CANARY = "xyzzycanary"
NOON = 1_772_452_800
RULES = " ".join(f"Rule {n}: never answer with more than {n} lines." for n in range(60))


def row(system: str, question: str, **more: object) -> dict[str, object]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return {"model": "m", "messages": messages, **more}


def written(path: Path, rows: Sequence[object]) -> Path:
    path.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n"
                            for each in rows))  # fmt: skip
    return path


def clocked(times: int = 6, rules: str = RULES) -> list[dict[str, object]]:
    return [
        row(f"It is 09:0{n}:1{n}. {rules}", f"Question {CANARY} {n}", timestamp=NOON + 60 * n)
        for n in range(times)
    ]  # fmt: skip


def clean(rules: str = RULES) -> list[dict[str, object]]:
    return [row(rules, f"Question {n}", timestamp=NOON + 60 * n) for n in range(6)]


def test_a_finding_is_told_with_place_proof_and_state_3(cli: Cli, tmp_path: Path) -> None:
    log = written(tmp_path / "log.jsonl", clocked())
    done = cli("lint", log, "--quotes")
    assert done.status == 3, done.err
    assert "clock changes with every request: system[0], token" in done.out
    assert "«09:00:10»" in done.out
    assert "«09:01:11»" in done.out
    assert "mended alone: 0.0% →" in done.out
    # Not on a terminal: no text unless it is asked for.
    quiet = cli("lint", log)
    assert quiet.status == 3
    assert "See log.jsonl:1 and log.jsonl:2" in quiet.out
    assert "09:01:11" not in quiet.out
    assert "Rule 1" not in quiet.out


def test_json_has_figures_and_no_text(cli: Cli, tmp_path: Path) -> None:
    rows = [each | {"prompt_tokens": 2000} for each in clocked()]
    done = cli("lint", written(tmp_path / "log.jsonl", rows), "--output", "json", "--quotes")
    told = json.loads(done.out)
    (template,) = told["templates"]
    (found,) = template["findings"]
    assert (found["kind"], found["segment"]) == ("clock", "system[0]")
    assert template["prompt_tokens"] == 6 * 2000  # scaled to what the rows report
    assert found["token_hit_ratio"] == 0.0
    assert found["mended_token_hit_ratio"] == told["mended_token_hit_ratio"] > 0.5
    for text in ("09:0", "Rule", CANARY):
        assert text not in done.out


def test_nothing_found_is_state_0(cli: Cli, tmp_path: Path) -> None:
    done = cli("lint", written(tmp_path / "log.jsonl", clean()))
    assert (done.status, done.err) == (0, "")
    assert "Nothing found" in done.out


def test_wrong_usage_is_state_2(cli: Cli, tmp_path: Path) -> None:
    log = written(tmp_path / "log.jsonl", clean())
    assert cli("lint").status == 2
    assert cli("lint", log, "--output", "arrow").status == 2
    assert cli("lint", log, "--block-tokens", 0).status == 2


def test_against_the_old_version(cli: Cli, tmp_path: Path) -> None:
    """The new text says rule 30 otherwise: what stands behind it is cold once, then as before."""
    old = written(tmp_path / "old.jsonl", clean())
    changed = RULES.replace("Rule 30: never answer", "Rule 30: do not reply")
    new = written(tmp_path / "new.jsonl", clean(changed))
    done = cli("lint", new, "--against", old, "--output", "json")
    told = json.loads(done.out)["against"]
    assert done.status == 0
    # The last, partial block is another: the sentence has a token less.
    before, after = told["old_steady_token_hit_ratio"], told["new_steady_token_hit_ratio"]
    assert before == pytest.approx(after, abs=0.005)
    assert told["first_segment"] == "system[0]"
    whole = json.loads(done.out)["templates"][0]["prompt_tokens"] / 6
    assert told["cold_tokens"] == pytest.approx(whole / 2, rel=0.1)
    place = told["first_token_index"]
    assert place == pytest.approx(whole / 2, rel=0.1)
    seen = cli("lint", new, "--against", old, "--quotes")
    assert "- …" in seen.out
    assert "never answer" in seen.out


def test_against_says_when_the_new_version_is_worse(cli: Cli, tmp_path: Path) -> None:
    old = written(tmp_path / "old.jsonl", clean())
    new = written(tmp_path / "new.jsonl", clocked())
    done = cli("lint", new, "--against", old)
    assert done.status == 3
    assert "new finding" in done.out
    same = cli("lint", new, "--against", new)
    assert same.status == 0
    assert "nowhere" in same.out
    assert "nothing in common" not in same.out


def test_against_a_log_of_other_prompts_says_so(cli: Cli, tmp_path: Path) -> None:
    """Parting nowhere is what equal versions do, not strangers."""
    new = written(tmp_path / "new.jsonl", clean())
    other = " ".join(f"Translate page {n} into French without a comment." for n in range(60))
    rows = [row(other, f"Page {n}", timestamp=NOON + 60 * n) for n in range(6)]
    told = cli("lint", new, "--against", written(tmp_path / "other.jsonl", rows)).out
    assert "nothing in common" in told
    assert "nowhere" not in told
    short = written(tmp_path / "short.jsonl", [row("Hi", "you", timestamp=NOON)])
    assert "nothing in common" not in cli("lint", short, "--against", short).out


def test_errors_name_file_line_and_remedy(cli: Cli, tmp_path: Path) -> None:
    counts = written(tmp_path / "counts.jsonl", [{"prompt_tokens": 5, "cached_tokens": 0}])
    done = cli("lint", counts)
    assert done.status == 1
    assert "counts.jsonl, line 1: no field messages" in done.err
    assert "switch the logging of prompts on" in done.err
    empty = written(tmp_path / "spend.jsonl", [{"spend": 1.0, "messages": {}}])
    assert "does not store prompts" in cli("lint", empty).err
    assert "No such file" in cli("lint", tmp_path / "none.jsonl").err
    damaged = tmp_path / "log.jsonl.gz"
    damaged.write_bytes(gzip.compress(b"{}" * 500)[:-9])
    assert "damaged" in cli("lint", damaged).err


def test_rows_that_cannot_be_read_are_counted_with_the_first(cli: Cli, tmp_path: Path) -> None:
    rows = [*clean(), f'{{"messages": [{{"role": "user", "content": "{CANARY}', {"other": 1}]
    done = cli("lint", written(tmp_path / "log.jsonl", rows))
    assert done.status == 0
    assert "2 rows left out; log.jsonl, line 7: no JSON" in done.out
    assert CANARY not in done.out + done.err


@pytest.mark.parametrize(
    "line",
    [
        f'{{"messages": [{{"role": "user", "content": "{CANARY}',
        f'{{"messages": "{CANARY}"}}',
        f'{{"messages": [{{"role": ["{CANARY}"], "content": {{"text": "{CANARY}"}}}}]}}',
        f'{{"messages": [{{"content": [["{CANARY}"], 5, null]}}], "tools": ["{CANARY}"]}}',
        f'{{"prompt": ["{CANARY}"]}}',
        f'{{"body": "{{{CANARY}"}}',
        f'["{CANARY}"',
        f'"{CANARY}"',
        CANARY,
        '{"a":' * 2000 + f'"{CANARY}"',
    ],
)
@pytest.mark.parametrize("beside", [True, False])
def test_canary_text_reaches_no_file_and_no_message(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, beside: bool
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", None)
    log = written(tmp_path / "log.jsonl", [*(clocked() if beside else []), line])
    for form in ("table", "json"):
        done = cli("lint", log, "--output", form)
        assert done.status in (0, 1, 3)
        assert CANARY not in done.out
        assert CANARY not in done.err
    others = [path for path in tmp_path.rglob("*") if path.is_file() and path != log]
    assert not [path for path in others if CANARY.encode() in path.read_bytes()]


def test_a_terminal_is_never_told_what_to_do(cli: Cli, tmp_path: Path) -> None:
    """Control characters of a prompt are shown as signs."""
    rows = [row(f"Hello \x1b]0;{n * 7919}\x07there. {RULES}", "Why?") for n in range(1, 6)]
    done = cli("lint", written(tmp_path / "log.jsonl", rows), "--quotes")
    assert done.status == 3
    assert "\x1b" not in done.out
    assert "\x07" not in done.out


def test_a_tokenizer_counts_as_the_model_does(cli: Cli, tmp_path: Path) -> None:
    """This one has a token for every byte."""
    library = pytest.importorskip("tokenizers")
    bytes_ = sorted(library.pre_tokenizers.ByteLevel.alphabet())
    model = library.models.BPE({sign: n for n, sign in enumerate(bytes_)}, [])
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    log = written(tmp_path / "log.jsonl", clocked())
    done = cli("lint", log, "--tokenizer", tmp_path, "--output", "json")
    told = json.loads(done.out)
    assert told["tokens_are"] == "tokenizer"
    (found,) = told["templates"][0]["findings"]
    assert found["token_index"] == len("<|system|>\nIt is ")
    assert cli("lint", log, "--tokenizer", log).status == 1
