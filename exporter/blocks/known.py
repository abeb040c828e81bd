"""What earlier runs told of the streams: what a replay sends of it again is not told twice."""

from collections.abc import Iterable

from exporter.blocks.order import StreamName
from exporter.blocks.rows import BlockStream


class KnownStreams:
    """The last state of streams, by the name they went by."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str | None], BlockStream] = {}

    def remember(self, rows: Iterable[BlockStream]) -> None:
        """Keep these; a later row of a stream replaces an earlier one."""
        self._rows |= {(row.source, row.replica, row.model): row for row in rows}

    def of(self, stream: StreamName, rank: int | None) -> BlockStream | None:
        """What is known of a stream; None of a new one. It went by its rank, or by the plain name
        while no other rank was heard."""
        names = [stream.replica] if stream.rank is None else []
        if rank is not None:
            names.insert(0, f"{stream.replica}/{rank}")
        rows = (self._rows.get((stream.source, name, stream.model)) for name in names)
        return next((row for row in rows if row is not None), None)
