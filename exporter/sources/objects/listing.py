"""Listings of object stores: pages of objects, never all of a bucket in memory.

S3 is asked page by page. The other libraries list a folder at a time, so there one folder's
names are in memory together. A listing is of no one moment: what is written while it runs may
be in it or not, and is found by the next one.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from exporter.sources.objects.place import Listed, Prefix
from queries.times import as_utc

_PAGE_OBJECTS = 1000
_MODIFIED = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")
_VERSION = ("ETag", "etag", "generation", "md5Hash", "content_md5")


def pages(store: Any, prefix: Prefix) -> Iterator[list[Listed]]:  # noqa: ANN401 - fsspec has no types
    """The objects of a prefix in pages. Empty objects and folders' markers are left out.

    Raises FileNotFoundError where there is no such bucket, and as the library does.
    """
    store.invalidate_cache()
    if prefix.protocol == "s3":
        yield from _s3_pages(store, prefix)
        return
    page: list[Listed] = []
    # A name may begin in the middle of a folder's: its parent is where to look.
    top = prefix.start.rpartition("/")[0]
    for entry in _walk(store, prefix, prefix.full_name(top).rstrip("/")):
        page.append(entry)
        if len(page) == _PAGE_OBJECTS:
            yield page
            page = []
    yield page


def _s3_pages(store: Any, prefix: Prefix) -> Iterator[list[Listed]]:  # noqa: ANN401
    going_on: dict[str, str] = {}
    while True:
        answer = store.call_s3(
            "list_objects_v2", Bucket=prefix.bucket, Prefix=prefix.start, **going_on
        )
        found = (
            _listed(entry["Key"], entry["Size"], entry) for entry in answer.get("Contents", ())
        )
        yield [entry for entry in found if _has_content(entry)]
        if not answer.get("IsTruncated"):
            return
        going_on = {"ContinuationToken": answer["NextContinuationToken"]}


def _walk(store: Any, prefix: Prefix, folder: str) -> Iterator[Listed]:  # noqa: ANN401
    """Objects below a folder that are in the prefix; folders that cannot hold any are not asked."""
    for entry in sorted(store.ls(folder, detail=True), key=lambda entry: str(entry["name"])):
        name = str(entry["name"]).strip("/")
        key = name.removeprefix(f"{prefix.bucket}/")
        if name == folder.strip("/"):
            continue
        if entry["type"] == "directory":
            below = f"{key}/"
            if below.startswith(prefix.start) or prefix.start.startswith(below):
                yield from _walk(store, prefix, name)
        elif key.startswith(prefix.start):
            listed = _listed(key, int(entry["size"] or 0), entry)
            if _has_content(listed):
                yield listed


def _has_content(entry: Listed) -> bool:
    return entry.size > 0 and not entry.key.endswith("/")


def _listed(key: str, size: int, entry: Mapping[str, Any]) -> Listed:
    modified = _moment(next((entry[name] for name in _MODIFIED if entry.get(name)), None))
    stated = next((str(entry[name]) for name in _VERSION if entry.get(name)), None)
    return Listed(key, size, stated or f"{size} {modified.isoformat()}", modified)


def _moment(value: object) -> datetime:
    """A time as a library states it; without one the object counts as written just now."""
    if isinstance(value, datetime):
        return as_utc(value)
    if isinstance(value, str):
        return _moment(datetime.fromisoformat(value))
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    return datetime.now(UTC)
