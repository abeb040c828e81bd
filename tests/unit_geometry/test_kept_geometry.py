"""Bytes per token from the settings into the store, and what cannot be read."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from exporter.errors import PrefixscopeError
from exporter.geometry import ModelGeometry, bytes_per_token, keep_geometry, kept_geometry
from exporter.store.store import Store

CONFIG = {
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def of_file(path: Path, **more: str) -> ModelGeometry:
    return ModelGeometry.model_validate({"model": "m", "config": str(path), **more})


def test_a_store_keeps_what_the_settings_say(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG))
    plain = ModelGeometry(model="other", bytes_per_token=1000)
    store = Store.open(tmp_path / "store")
    keep_geometry(store, bytes_per_token([of_file(file), plain]))
    rows = store.cursor().execute("FROM kv_geometry ORDER BY model").fetchall()
    # 32 layers x 8 KV heads x (128 + 128) values x 2 bytes
    assert rows == [("m", 131_072, "config.json"), ("other", 1000, "settings")]
    keep_geometry(store, bytes_per_token([of_file(file, kv_dtype="fp8")]))
    rows = store.cursor().execute("FROM kv_geometry").fetchall()
    assert rows == [("m", 65_536, "config.json")]
    assert kept_geometry(store) == {"m": 65_536}
    store.close()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read"),
        ("{", "not JSON"),
        (json.dumps(CONFIG | {"num_hidden_layers": None}), "geometry of 'm': .*num_hidden_layers"),
    ],
)
def test_a_config_that_is_none_names_its_file(
    tmp_path: Path, content: str | None, problem: str
) -> None:
    file = tmp_path / "config.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(PrefixscopeError, match=problem) as told:
        bytes_per_token([of_file(file)])
    assert str(file) in str(told.value)


def test_a_model_has_one_geometry() -> None:
    with pytest.raises(PrefixscopeError, match="'m' is given twice"):
        bytes_per_token([ModelGeometry(model="m", bytes_per_token=n) for n in (1, 2)])
    with pytest.raises(ValidationError, match="either config or bytes_per_token"):
        ModelGeometry(model="m")
    with pytest.raises(ValidationError, match="either config or bytes_per_token"):
        ModelGeometry(model="m", config=Path("c"), bytes_per_token=1)
