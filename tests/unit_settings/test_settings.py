"""The settings of prefixscope itself: what each says, and where a token is needed."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from exporter.server_settings import ServerSettings, is_loopback, split_address
from prefixscope.settings import Settings, load_settings, server_token
from prefixscope.settings_file import BadSettings


def test_every_setting_says_what_it_is() -> None:
    def described(model: type[BaseModel]) -> None:
        for name, field in model.model_fields.items():
            inner = field.annotation
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                described(inner)
            else:
                assert field.description, f"{model.__name__}.{name}"

    described(Settings)


def test_a_wider_address_needs_a_token() -> None:
    environment = {"PREFIXSCOPE_SERVER__LISTEN": "0.0.0.0:9465"}
    with pytest.raises(BadSettings, match=r"a token is required: set server\.token_file"):
        load_settings(None, environment)
    settings = load_settings(None, {**environment, "PREFIXSCOPE_SERVER__TOKEN": "s3cret"})
    assert server_token(settings.server) == "s3cret"
    assert "s3cret" not in repr(settings)


def test_a_token_comes_from_a_file_and_must_be_there(tmp_path: Path) -> None:
    file = tmp_path / "token"
    settings = ServerSettings(token_file=file)
    with pytest.raises(BadSettings, match=r"server\.token_file: cannot be read"):
        server_token(settings)
    file.write_text(" \n")
    with pytest.raises(BadSettings, match="is empty"):
        server_token(settings)
    file.write_text("s3cret\n")
    assert server_token(settings) == "s3cret"


def test_no_token_is_none() -> None:
    assert server_token(ServerSettings()) is None


@pytest.mark.parametrize("both", [{"token": "a", "token_file": "b"}, {"token": " "}])
def test_a_token_is_given_once_and_not_empty(both: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="token"):
        ServerSettings.model_validate(both)


@pytest.mark.parametrize("address", ["9465", "localhost", ":9465", "a:b", "a:70000", ""])
def test_an_address_is_host_and_port(address: str) -> None:
    with pytest.raises(BadSettings, match="is not HOST:PORT"):
        load_settings(None, {"PREFIXSCOPE_SERVER__LISTEN": address})


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:1", True),
        ("127.8.9.1:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("example.org:1", False),
    ],
)
def test_loopback_is_recognised(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_an_address_is_split_with_brackets_off() -> None:
    assert split_address("[::1]:9465") == ("::1", 9465)
