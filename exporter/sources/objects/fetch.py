"""Fetches many objects at the same time, within a bound of memory.

Objects are asked for a chunk at a time; while one chunk is stored the next are on their way.
What fails is tried again a few times, and then left for the next pass.
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from exporter.sources.objects.place import Listed, ObjectSettings, Prefix, Truncated, library_errors

_CHUNK_OBJECTS = 512
# Chunks in memory: on their way, and the one being read; the fourth part is what was read of it.
_AHEAD = 2
_MEMORY_PARTS = 4
_PATIENCE_SECONDS = (0.0, 0.3, 1.2)
# Trying again does not help against these.
_FINAL = (FileNotFoundError, PermissionError)


@dataclass(frozen=True)
class Fetched:
    """An object with its bytes, or with why they did not come. Neither: it is too large to be
    held in memory, and is to be read in pieces."""

    listed: Listed
    data: bytes | None = None
    error: Exception | None = None


class Fetcher:
    """Fetches from one filesystem. `stopped` ends waiting between attempts."""

    def __init__(
        self,
        store: Any,  # noqa: ANN401 - fsspec has no types
        prefix: Prefix,
        settings: ObjectSettings,
        stopped: threading.Event,
    ) -> None:
        self._store, self._prefix, self._settings = store, prefix, settings
        self._stopped = stopped

    @property
    def part_bytes(self) -> int:
        """The size up to which something is held in memory as a whole."""
        return self._settings.memory_bytes // _MEMORY_PARTS

    def fetched(self, wanted: Iterable[Listed]) -> Iterator[list[Fetched]]:
        """The objects in chunks, in order."""
        waiting: deque[Future[list[Fetched]]] = deque()
        with ThreadPoolExecutor(_AHEAD, thread_name_prefix="objects") as pool:
            for chunk in self._chunks(wanted):
                waiting.append(pool.submit(self._fetch, chunk))
                if len(waiting) == _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def _chunks(self, wanted: Iterable[Listed]) -> Iterator[list[Listed]]:
        chunk: list[Listed] = []
        size = 0
        for listed in wanted:
            held = listed.size if listed.size <= self.part_bytes else 0
            if chunk and (size + held > self.part_bytes or len(chunk) == _CHUNK_OBJECTS):
                yield chunk
                chunk, size = [], 0
            chunk.append(listed)
            size += held
        if chunk:
            yield chunk

    def _fetch(self, chunk: list[Listed]) -> list[Fetched]:
        done = {listed: Fetched(listed) for listed in chunk}
        left = [listed for listed in chunk if listed.size <= self.part_bytes]
        for patience_seconds in _PATIENCE_SECONDS:
            if not left or (patience_seconds and self._stopped.wait(patience_seconds)):
                break
            answers = self._store.cat_ranges(
                [self._prefix.full_name(listed.key) for listed in left],
                None,
                None,
                on_error="return",
                batch_size=max(1, self._settings.concurrency // _AHEAD),
            )
            for listed, answer in zip(left, answers, strict=True):
                done[listed] = self._judged(listed, answer)
            left = [listed for listed in left if _may_pass(done[listed].error)]
        return list(done.values())

    def _judged(self, listed: Listed, answer: bytes | Exception) -> Fetched:
        """Whether all of an object came: an answer that ends early may look like a whole one."""
        if isinstance(answer, Exception):
            if not isinstance(answer, library_errors()):
                raise answer
            return Fetched(listed, error=answer)
        if len(answer) < listed.size:
            try:  # it may have become shorter since it was listed
                size = self._store.info(self._prefix.full_name(listed.key))["size"]
            except library_errors() as error:
                return Fetched(listed, error=error)
            if len(answer) != size:
                return Fetched(listed, error=Truncated())
        return Fetched(listed, bytes(answer))


def _may_pass(error: Exception | None) -> bool:
    return error is not None and not isinstance(error, _FINAL)
