"""Reading settings: what is refused, what the message says, what the environment may do."""

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, SecretStr

from prefixscope.settings_file import BadSettings, env_name, leaves, load


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")
    url: str
    seconds: float = 1


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid")
    listen: str = "here"
    token: SecretStr | None = None
    threads: int = 4
    names: list[str] = []


class House(BaseModel):
    model_config = ConfigDict(extra="forbid")
    server: Section = Section()
    targets: list[Item] = []


def write(folder: Path, text: str) -> Path:
    file = folder / "house.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def refusal(file: Path | None, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(BadSettings) as caught:
        load(House, file, environment or {})
    return str(caught.value)


def test_no_file_is_defaults() -> None:
    assert load(House, None, {}) == House()


def test_an_empty_file_and_an_empty_section_are_defaults(tmp_path: Path) -> None:
    assert load(House, write(tmp_path, ""), {}) == House()
    assert load(House, write(tmp_path, "server:\n#  listen: x\ntargets:\n"), {}) == House()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "gone.yaml") == (
        f"{tmp_path / 'gone.yaml'}: there is no such file; prefixscope init writes one from what "
        "answers"
    )


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert refusal(tmp_path).startswith(f"{tmp_path}: cannot be read: ")


def test_an_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    file = write(tmp_path, "server:\n  lisen: x\n")
    assert refusal(file) == f"{file}: server.lisen: unknown key; did you mean listen?"


def test_an_unknown_key_in_a_list_names_its_place_and_what_is_known(tmp_path: Path) -> None:
    file = write(tmp_path, "targets:\n  - {url: a}\n  - {url: b, zzz: 1}\n")
    assert refusal(file) == f"{file}: targets.1.zzz: unknown key; known: url, seconds"


def test_a_wrong_value_names_key_and_reason_but_never_the_value(tmp_path: Path) -> None:
    file = write(tmp_path, "server:\n  threads: s3cret\n")
    message = refusal(file)
    assert message.startswith(f"{file}: server.threads: Input should be a valid integer")
    assert "s3cret" not in message


def test_every_error_has_its_line(tmp_path: Path) -> None:
    file = write(tmp_path, "server: {threads: x, lisen: y}\ntargets: [{seconds: 1}]\n")
    lines = refusal(file).splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "server.threads",
        "server.lisen",
        "targets.0.url",
    ]


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, "server: {}\nserver: {}\n")
    assert (
        refusal(file) == f"{file}: not valid YAML: key 'server' is given twice (line 2, column 1)"
    )


@pytest.mark.parametrize("text", ["- a\n", "just text\n", "5\n"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    assert "expected keys and values" in refusal(write(tmp_path, text))


def test_yaml_that_makes_objects_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, "server: !!python/object/apply:os.system ['true']\n")
    assert "not valid YAML" in refusal(file)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(b"server: \xff\n")
    assert "cannot be read" in refusal(file)


def test_the_environment_lies_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "server: {listen: file, threads: 2}\n")
    settings = load(
        House,
        file,
        {
            "PREFIXSCOPE_SERVER__LISTEN": "environment",
            "PREFIXSCOPE_SERVER__TOKEN": "12345",  # digits stay text
            "PREFIXSCOPE_SERVER__NAMES": "[a, b]",
            "PREFIXSCOPE_TARGETS": "[{url: u}]",
            "HOME": "/root",
        },
    )
    assert settings.server.listen == "environment"
    assert settings.server.threads == 2
    assert settings.server.token == SecretStr("12345")
    assert settings.server.names == ["a", "b"]
    assert settings.targets == [Item(url="u")]


def test_a_misspelt_environment_name_is_refused_with_the_nearest() -> None:
    message = refusal(None, {"PREFIXSCOPE_SERVER__LISEN": "x"})
    assert message == (
        "environment variable PREFIXSCOPE_SERVER__LISEN names no setting; "
        "did you mean PREFIXSCOPE_SERVER__LISTEN?"
    )


def test_a_wrong_value_from_the_environment_names_the_variable() -> None:
    message = refusal(None, {"PREFIXSCOPE_SERVER__THREADS": "many"})
    assert message.startswith("PREFIXSCOPE_SERVER__THREADS: server.threads: ")


def test_broken_yaml_in_the_environment_names_the_variable() -> None:
    assert refusal(None, {"PREFIXSCOPE_TARGETS": "[{"}).startswith("PREFIXSCOPE_TARGETS: not valid")


def test_a_section_that_is_no_section_is_the_models_error(tmp_path: Path) -> None:
    file = write(tmp_path, "server: 5\n")
    message = refusal(file, {"PREFIXSCOPE_SERVER__LISTEN": "x"})
    assert message.startswith(f"{file}: server: Input should be a valid dictionary")


@pytest.mark.parametrize(
    "name",
    [
        "PREFIXSCOPE_PORT",
        "PREFIXSCOPE_SERVICE_HOST",
        "PREFIXSCOPE_SERVICE_PORT_HTTP",
        "PREFIXSCOPE_PORT_9465_TCP_ADDR",
        "PREFIXSCOPE_EXPORTER_SERVICE_HOST",
        "PREFIXSCOPE_URL",
        "PREFIXSCOPE_TOKEN",
    ],
)
def test_names_of_kubernetes_and_of_clients_are_no_settings(name: str) -> None:
    assert load(House, None, {name: "tcp://10.0.0.1:9465"}) == House()


def test_every_setting_has_an_environment_name() -> None:
    assert [env_name(path) for path, _ in leaves(House)] == [
        "PREFIXSCOPE_SERVER__LISTEN",
        "PREFIXSCOPE_SERVER__TOKEN",
        "PREFIXSCOPE_SERVER__THREADS",
        "PREFIXSCOPE_SERVER__NAMES",
        "PREFIXSCOPE_TARGETS",
    ]
