"""Paths of object stores, settings, and libraries that are only there as extras."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from exporter.errors import PrefixscopeError
from exporter.sources.log_settings import LogSettings
from exporter.sources.objects.intake import ObjectReader
from exporter.sources.objects.place import (
    ObjectSettings,
    Prefix,
    is_object_path,
    open_store,
    reason_of,
)
from exporter.store.store import Store
from tests.running import ENVIRONMENT, ROOT
from tests.unit_objects.object_rows import packed, prompts, row

KEY = "AKIAVERYSECRET"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://b", Prefix("s3", "b", "")),
        ("s3://b/", Prefix("s3", "b", "")),
        ("gs://b/logs/2026", Prefix("gs", "b", "logs/2026")),
        ("az://c/a b/[x]?/ü/", Prefix("az", "c", "a b/[x]?/ü/")),
    ],
)
def test_prefix_of_a_path(path: str, expected: Prefix) -> None:
    assert is_object_path(path)
    assert Prefix.of(path) == expected


@pytest.mark.parametrize("path", ["s3://", "s3:///x", "s3:/b/x", "S3://b/x"])
def test_a_path_that_cannot_be_meant_so_says_how(path: str) -> None:
    assert is_object_path(path)
    with pytest.raises(PrefixscopeError, match="s3://BUCKET/PREFIX"):
        Prefix.of(path)


@pytest.mark.parametrize("path", ["/var/log/a.jsonl", "s3/logs", "logs/s3://x", "gs.jsonl", "-"])
def test_files_are_no_object_paths(path: str) -> None:
    assert not is_object_path(path)


@pytest.mark.parametrize(
    "path", [f"s3://{KEY}:{KEY}@b/x", f"az://c/x?sv=1&sig={KEY}", f"s3://b/x?X-Amz-Signature={KEY}"]
)
def test_path_with_a_secret_is_refused_without_repeating_it(path: str) -> None:
    with pytest.raises(PrefixscopeError) as refused:
        Prefix.of(path)
    assert KEY not in str(refused.value)
    assert "environment" in str(refused.value)
    with pytest.raises(ValidationError) as invalid:
        LogSettings(source="b", path=path)
    assert all(KEY not in error["msg"] for error in invalid.value.errors())


@pytest.mark.parametrize(("path", "extra"), [("gs://b/x", "gcs"), ("s3://b/x", "s3"),
                                             ("az://b/x", "azure")])  # fmt: skip
def test_missing_library_names_its_extra(
    path: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("s3fs", "gcsfs", "adlfs"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PrefixscopeError, match=rf"pip install 'prefixscope\[{extra}\]'"):
        open_store(Prefix.of(path), ObjectSettings())


def test_configuration_of_fsspec_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("s3fs", reason="s3fs (extra s3) is not installed")
    import fsspec

    given = {"s3": {"anon": True, "config_kwargs": {"connect_timeout": 3}}}
    monkeypatch.setattr(fsspec.config, "conf", given)
    opened = open_store(Prefix.of("s3://b/x"), ObjectSettings(concurrency=5))
    assert opened.anon is True
    expected = {"max_pool_connections": 5, "connect_timeout": 3, "read_timeout": 30}
    assert opened.config_kwargs == expected


def test_heavy_libraries_wait_until_they_are_needed() -> None:
    code = """
import sys
import prefixscope.cli, prefixscope.serve, prefixscope.loading, prefixscope.commands.load
print({"fsspec", "s3fs", "gcsfs", "adlfs", "botocore", "pandas"} & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True,
        timeout=180, check=True,
    )  # fmt: skip
    assert done.stdout == "set()\n"


def test_what_an_object_store_says_is_not_repeated() -> None:
    for error in (
        OSError(KEY), PermissionError(KEY), FileNotFoundError(KEY), ConnectionError(KEY),
        TimeoutError(KEY),
    ):  # fmt: skip
        assert KEY not in reason_of(error)


@pytest.fixture
def folders() -> Iterator[object]:
    """A store that lists folder by folder, as the libraries of gs:// and az:// do."""
    fsspec = pytest.importorskip("fsspec", reason="fsspec (extras s3, gcs, azure) is not installed")
    memory = fsspec.filesystem("memory", skip_instance_cache=True)
    memory.store.clear()
    yield memory
    memory.store.clear()


def test_stores_that_list_by_folder(folders: object, store: Store) -> None:
    for number, key in enumerate(
        ("logs/2026-02-28/a", "logs/2026-03-01/a", "logs/2026-03-02/x/[1].json", "other/a",
         "logs/2026-03.json")
    ):  # fmt: skip
        folders.pipe_file(f"/bkt/{key}", packed(row(number)))  # type: ignore[attr-defined]
    folders.pipe_file("/bkt/logs/2026-03-02/empty", b"")  # type: ignore[attr-defined]
    reader = ObjectReader(store, "gs://bkt/logs/2026-03", source="b", filesystem=folders)
    assert reader.run().accepted == 3
    assert prompts(store) == [101, 102, 104]
    assert reader.run().decided_because == "0 objects read, 3 known before"
    missing = ObjectReader(store, "gs://nothing/", source="b", filesystem=folders)
    missing.run()
    assert missing.problems == [
        "gs://nothing/: cannot be listed: there is no such bucket or object"
    ]


def test_settings_have_bounds() -> None:
    assert LogSettings(source="b", path="s3://b/x").objects == ObjectSettings()
    for wrong in ({"concurrency": 0}, {"memory_bytes": 1}, {"overlap_seconds": 0}, {"key": "x"}):
        with pytest.raises(ValidationError):
            ObjectSettings.model_validate(wrong)
