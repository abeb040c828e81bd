"""Recorded metric pages on disk: somebody's scrapes, page by page.

A folder of `.prom` files is one target's pages in order. An `index.jsonl` beside them tells
when each was scraped, with what status and content type; a line without a file says that the
target was down then. Without an index a file's modification time is its scrape time. The
target is named after the folder: `replica-0-metrics` is `replica-0`, and a folder called only
`metrics` takes the name of the folder around it.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from exporter.errors import PrefixscopeError

INDEX = "index.jsonl"

PAGE_SUFFIX = ".prom"

OK = 200


class _IndexLine(BaseModel):
    """One line of index.jsonl; other keys are other people's notes."""

    model_config = ConfigDict(extra="ignore")

    file: str | None
    scraped_unix: float = Field(gt=0, lt=4_102_444_800, description="seconds, until 2100")
    status: int = OK
    content_type: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class RecordedPage:
    """One recorded scrape, in a file or held as `text`. Neither = the target was down, `error`
    says how."""

    target: str
    scraped_unix: float
    path: Path | None
    status: int = OK
    content_type: str | None = None
    error: str | None = None
    text: str | None = None

    @property
    def down(self) -> bool:
        """Whether nothing was scraped."""
        return (self.path is None and self.text is None) or self.status != OK

    def body(self) -> bytes:
        """The page's bytes; PrefixscopeError where the file cannot be read."""
        if self.path is None:
            return (self.text or "").encode()
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise PrefixscopeError(f"cannot read {self.path}: {error.strerror}") from error


def holds_pages(path: Path) -> bool:
    """Whether a path is recorded metric pages (a page, an index, or a folder with pages)."""
    if path.is_dir():
        return any(path.rglob(f"*{PAGE_SUFFIX}"))
    return path.suffix == PAGE_SUFFIX or (
        path.name == INDEX and any(path.parent.glob(f"*{PAGE_SUFFIX}"))
    )


def read_pages(paths: Iterable[Path]) -> Iterator[RecordedPage]:
    """The pages under these paths, target by target, oldest first; bodies are not read yet.

    Raises PrefixscopeError for a path that is not there or holds no pages.
    """
    found: dict[Path, list[Path]] = {}
    for path in paths:
        for file in _page_files(path):
            found.setdefault(file.parent, []).append(file)
    pages = [page for folder, files in found.items() for page in _folder_pages(folder, files)]
    unique = dict.fromkeys(pages)
    yield from sorted(unique, key=lambda page: (page.target, page.scraped_unix))


def _page_files(path: Path) -> list[Path]:
    """The files to look at for one path given by a person."""
    if not path.exists():
        raise PrefixscopeError(f"{path} does not exist")
    if path.is_dir():
        files = [f for f in path.rglob("*") if f.suffix == PAGE_SUFFIX or f.name == INDEX]
        if not any(file.suffix == PAGE_SUFFIX for file in files):
            raise PrefixscopeError(
                f"{path} holds no recorded metric pages: expected {PAGE_SUFFIX} files, "
                f"with an {INDEX} beside them where their times are known"
            )
        return sorted(files)
    if path.name == INDEX or path.suffix == PAGE_SUFFIX:
        return [path]
    raise PrefixscopeError(
        f"{path} is no recorded metric page: expected a {PAGE_SUFFIX} file, an {INDEX} or a "
        "folder of them"
    )


def _folder_pages(folder: Path, files: list[Path]) -> Iterator[RecordedPage]:
    """Pages of one folder: as the index tells, else (or beside it) by modification time.

    A whole folder brings the index's failures too; single files bring only themselves.
    """
    target = target_name(folder)
    index = folder / INDEX
    lines = _index_lines(index) if index.is_file() else []
    indexed = {line.file: line for line in lines}
    whole_folder = index in set(files)
    if whole_folder:
        yield from (_indexed_page(target, folder, line) for line in lines)
    for file in files:
        line = indexed.get(file.name)
        if file.name == INDEX or (whole_folder and line is not None):
            continue
        if line is not None:
            yield _indexed_page(target, folder, line)
        else:
            yield RecordedPage(target, file.stat().st_mtime, file)


def target_name(folder: Path) -> str:
    """The target a folder's pages belong to: its name without "-metrics"."""
    folder = folder.resolve()
    name = folder.parent.name if folder.name == "metrics" else folder.name
    return name.removesuffix("-metrics") or folder.name


def _indexed_page(target: str, folder: Path, line: _IndexLine) -> RecordedPage:
    path = folder / line.file if line.file else None
    if path is not None and not _is_file(path):
        raise PrefixscopeError(
            f"{folder / INDEX} names {line.file}, which is not beside it: restore the file or "
            "remove its line"
        )
    return RecordedPage(target, line.scraped_unix, path, line.status, line.content_type, line.error)


def _is_file(path: Path) -> bool:
    """Whether it is one; a name no system takes is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def _index_lines(index: Path) -> list[_IndexLine]:
    lines = []
    try:
        text = index.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PrefixscopeError(f"cannot read {index}: {error}") from error
    for number, row in enumerate(text.split("\n"), 1):
        if row.strip():
            lines.append(_index_line(index, number, row))
    return lines


def _index_line(index: Path, number: int, row: str) -> _IndexLine:
    try:
        line = _IndexLine.model_validate(json.loads(row))
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"]) or "the line"
        raise PrefixscopeError(f"{index}:{number}: {where}: {fault['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise PrefixscopeError(f"{index}:{number}: not JSON: {error}") from error
    if line.file is not None and Path(line.file).name != line.file:
        raise PrefixscopeError(
            f"{index}:{number}: file {line.file!r} must be a name in the same folder"
        )
    return line
