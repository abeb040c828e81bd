"""Rules as they stand in the settings: what is refused, and that the message says what to do."""

import json
from pathlib import Path
from typing import Any

import pytest

from exporter.sources import name_checks
from exporter.sources.names import Rule
from prefixscope.settings import load_settings
from prefixscope.settings_file import BadSettings
from tests.unit_names.naming import rules


def refused(folder: Path, names: str, environment: dict[str, str] | None = None) -> str:
    """The message for a settings file with this text under `names`."""
    file = folder / "prefixscope.yml"
    file.write_text(f"names:\n{names}", encoding="utf-8")
    with pytest.raises(BadSettings) as caught:
        load_settings(file, environment or {})
    message = str(caught.value)
    assert message.startswith(str(file)), message
    return message.removeprefix(f"{file}: ")


def rule(folder: Path, text: str) -> str:
    """The message for one rule of the tenant of the source gateway."""
    message = refused(folder, f"  gateway:\n    tenant:\n      - header: fine\n      - {text}\n")
    assert message.startswith("names.gateway.tenant.1"), message
    return message


def test_a_file_of_rules_is_read(tmp_path: Path) -> None:
    file = tmp_path / "prefixscope.yml"
    file.write_text(
        "names:\n  gateway:\n    tenant:\n      - header: X-Tenant\n      - constant: 12\n"
        "    template_version: [{field: version}]\n"
    )
    names = load_settings(file, {}).names["gateway"]
    assert [str(rule) for rule in names.tenant] == ["header X-Tenant", "constant 12"]
    assert [str(rule) for rule in names.rules()["tenant"]][-1] == "mapped"
    assert list(names.rules()) == ["template_version", "tenant"]


def test_rules_may_come_from_the_environment() -> None:
    given = {"PREFIXSCOPE_NAMES": "{gateway: {tenant: [{header: x-tenant}]}}"}
    settings = load_settings(None, given)
    assert settings.names == {"gateway": rules(tenant=[{"header": "x-tenant"}])}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "give one of header, field, constant, mapped; found none"),
        ("{header: a, field: b}", "found both header and field"),
        ("{constant: a, pattern: '(a)'}", "go with header or field only"),
        ("{mapped: true, hashed: true}", "go with header or field only"),
        ("{mapped: false}", "mapped"),
        ("{constant: ''}", "at least 1 character"),
        (f"{{constant: {'x' * 257}}}", "at most 256 characters"),
        ("{heder: a}", "unknown key; did you mean header?"),
        ("{header: 'x tenant'}", "no name of an HTTP header"),
        ('{constant: "a\\0b"}', "constant holds a character that cannot be printed"),
        ('{field: "a\\eb"}', "field holds a character that cannot be printed"),
        ('{field: a, pattern: "(\\ud800)"}', "pattern holds a character that cannot be printed"),
        ("{field: a..b}", "write keys with dots between"),
        ("{field: 'a[x]'}", "write keys with dots between"),
        ("{field: '$.a'}", "is no path"),
        (f"{{field: {'a.' * 130}a}}", "is no path"),
        ("{field: a, pattern: '(a'}", "RE2 cannot read the pattern (missing ): (a)"),
        (r"{field: a, pattern: '(a)\1'}", "RE2 cannot read the pattern (invalid escape"),
        ("{field: a, pattern: '(?=a)'}", "look-around and back-references do not exist there"),
        ("{field: a, pattern: 'a'}", "exactly one group"),
        ("{field: a, pattern: '(a)(b)'}", "write (?:…) for others"),
        (f"{{field: a, pattern: '({'a' * 511})'}}", "longer than 512 characters"),
        ("{field: a, pattern: '((?:x{900}){900})'}", "RE2 cannot read the pattern"),
        ("{field: a, pattern: '((?:.{0,100}){10}b)'}", "nest fewer repetitions"),
    ],
)  # fmt: skip
def test_a_rule_that_cannot_work_is_refused_with_its_remedy(
    tmp_path: Path, text: str, said: str
) -> None:
    assert said in rule(tmp_path, text)


def test_groups_that_are_none_do_not_count(tmp_path: Path) -> None:
    for pattern in (r"(?:a|b)-(.+)", r"\((x)\)", r"[(](x)", r"(?i)^(?P<name>x)$", r"\Q(\E(x)"):
        assert Rule(field="a", pattern=pattern).pattern == pattern


def test_ordinary_patterns_are_far_below_the_time_limit() -> None:
    uuid = "^([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$"
    for pattern in ("^tenant:(.+)$", uuid, r"(\w+)@(?:\w+\.)+example\.com$", "(a|b|c)*?(?:x)$"):
        assert Rule(field="a", pattern=pattern)


@pytest.mark.parametrize(
    "place",
    ["header: Authorization", "header: x-api-key", "header: Cookie", "header: x-goog-api-key",
     "field: request.headers.authorization", "field: api_key", "field: 'keys[*].access_token'"],
)  # fmt: skip
def test_secrets_are_named_only_by_hash(tmp_path: Path, place: str) -> None:
    message = rule(tmp_path, f"{{{place}}}")
    assert "is a secret" in message
    assert "hashed: true" in message
    assert Rule.model_validate({**_one(place), "hashed": True}).hashed


@pytest.mark.parametrize(
    "place",
    ["field: messages[0].content", "field: prompt", "field: input[*]", "field: request.body",
     "field: attributes.\"gen_ai.input.messages\"", "field: system[0].text"],
)  # fmt: skip
def test_prompts_are_named_only_by_hash(tmp_path: Path, place: str) -> None:
    name, _, path = place.partition(": ")
    message = rule(tmp_path, f"{{{name}: '{path}', pattern: '(.{{1,9}})'}}")
    assert "holds prompt text, which is never kept" in message
    assert Rule.model_validate({**_one(place), "hashed": True}).hashed


def test_ids_beside_prompts_and_keys_may_be_names() -> None:
    for path in (
        "prompt.id",
        '"$key"',
        "messages[0].name",
        "metadata.user_api_key_alias",
        "api_key_hash",
    ):
        assert Rule(field=path).field == path


def _one(place: str) -> dict[str, str]:
    name, _, value = place.partition(": ")
    return {name: value.strip("'")}


def test_unknown_fields_and_lone_rules_are_told(tmp_path: Path) -> None:
    message = refused(tmp_path, "  gateway:\n    tennant: []\n")
    assert message == "names.gateway.tennant: unknown key; did you mean tenant?"
    message = refused(tmp_path, "  gateway:\n    tenant:\n      header: x-tenant\n")
    assert message.startswith("names.gateway.tenant: rules are a list")
    message = refused(tmp_path, "  a:\n    tenant: [{constant: x}, {header: y}]\n")
    assert "rule 1 (constant x) names every row" in message
    message = refused(tmp_path, "  a:\n    tenant: [{mapped: true}, {mapped: true}]\n")
    assert "stands in the list twice" in message
    assert "a source is a name" in refused(tmp_path, f"  {'x' * 101}: {{}}\n")


# ------------------------------------------------------------- lookup files


def lookup(folder: Path, content: str | bytes, name: str = "tenants.csv") -> dict[str, str]:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return dict(Rule(field="key", lookup=file).entries)


def test_csv_and_json_are_read(tmp_path: Path) -> None:
    assert lookup(tmp_path, "a,b\n") == {"a": "b"}
    assert lookup(tmp_path, 'value,name\r\n a , b c \n\nx,"y, z"\n') == {"a": "b c", "x": "y, z"}
    assert lookup(tmp_path, "\ufeffa,b\n") == {"a": "b"}
    assert lookup(tmp_path, '{"a": "b", "c": " "}', "tenants.json") == {"a": "b"}
    assert lookup(tmp_path, "") == {}


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        ("a,b,c\n", "t.csv", "line 1: expected two columns"),
        ("a,b\nc,\n", "t.csv", "line 2: expected two columns"),
        ("a,b\na,c\n", "t.csv", "line 2: its value has another name above"),
        ('a,"b\n', "t.csv", "not UTF-8 text in rows"),
        (b"a,\xff\n", "t.csv", "not UTF-8 text in rows"),
        ("{", "t.json", "not JSON"),
        ("[" * 100_000, "t.json", "nested beyond reason"),
        ("[]", "t.json", "one object of texts"),
        ('{"a": 1}', "t.json", "one object of texts"),
        ('{"a": "b", "a": "c"}', "t.json", "given twice"),
        ('{"a": "\\ud800"}', "t.json", "cannot be printed"),
        ('{"\\u0000": "b"}', "t.json", "cannot be printed"),
        ("a," + "b" * 257, "t.csv", "longer than 256 characters"),
        ("".join(f"{n},x\n" for n in range(10_001)), "t.csv", "10,001 entries, allowed: 10,000"),
        ("a,b\n" * 300_000, "t.csv", "larger than 1 MiB"),
    ],
)  # fmt: skip
def test_a_lookup_file_that_cannot_work_is_refused(
    tmp_path: Path, content: str | bytes, name: str, said: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    message = rule(tmp_path, f"{{field: key, lookup: {file}}}")
    assert str(file) in message
    assert said in message


def test_a_missing_lookup_file_is_told_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = rule(tmp_path, "{field: key, lookup: none.csv}")
    assert str(tmp_path / "none.csv") in message
    assert "No such file" in message


def test_values_of_a_lookup_file_stand_in_no_message(tmp_path: Path) -> None:
    """They may be keys of customers."""
    file = tmp_path / "keys.csv"
    for content in ("sk-secret,a\nsk-secret,b\n", "sk-secret\n", "sk-secret,a,b\n"):
        file.write_text(content)
        assert "sk-secret" not in rule(tmp_path, f"{{field: key, lookup: {file}}}")


def test_limits_are_those_the_page_states() -> None:
    page = (Path(__file__).parents[2] / "docs" / "names.md").read_text(encoding="utf-8")
    stated: dict[str, Any] = {
        "512 characters": name_checks.PATTERN_LIMIT,
        "1,024 characters": name_checks.SUBJECT_LIMIT,
        "256 characters": name_checks.NAME_LIMIT,
        "10,000 entries": name_checks.LOOKUP_ENTRIES,
    }
    for text, limit in stated.items():
        assert text == f"{limit:,} {text.split()[1]}"
        assert text in page
    assert f"{name_checks.PATTERN_SECONDS * 1000:.0f} ms" in page
    assert f"{name_checks.LOOKUP_BYTES >> 20} MiB" in page


def test_a_rule_is_the_same_only_with_the_same_lookup_file(tmp_path: Path) -> None:
    """Readings are kept by rules; an edited file makes another reading."""
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"a": "b"}))
    first = Rule(field="x", lookup=file)
    assert first == Rule(field="x", lookup=file)
    file.write_text(json.dumps({"a": "c"}))
    assert first != Rule(field="x", lookup=file)
