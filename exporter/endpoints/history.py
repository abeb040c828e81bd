"""The two HTTP endpoints `backfill` uses where an exporter holds the store."""

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from exporter.endpoints import body
from exporter.errors import PrefixscopeError
from exporter.sources.prometheus.history import History, Moment, Piece
from exporter.sources.prometheus.names import AskedTarget

PLAN_PATH = "/v1/history/plan"
PAGES_PATH = "/v1/history/pages"

Asked = TypeVar("Asked", bound=BaseModel)


class PlanAsked(BaseModel):
    """Which spans of a target are missing in a window (Unix seconds)?"""

    model_config = ConfigDict(extra="forbid")

    asked: AskedTarget
    since: Moment
    until: Moment


def routes(history: History, max_body_bytes: int) -> list[Route]:
    """Both endpoints. Pieces are taken one after the other: the next depends on the last."""
    turn = CapacityLimiter(1)

    async def answer(
        request: Request, kind: type[Asked], work: Callable[[Asked], BaseModel]
    ) -> Response:
        packed = await body.read_limited(request.stream(), max_body_bytes)
        encoding = request.headers.get("content-encoding", "")

        def done() -> str:
            asked = _read(kind, body.unpack(packed, encoding, max_body_bytes))
            return work(asked).model_dump_json()

        return Response(await run_sync(done, limiter=turn), media_type="application/json")

    async def plan(request: Request) -> Response:
        """The spans of a target's past that the store does not have."""
        return await answer(
            request, PlanAsked, lambda told: history.plan(told.asked, told.since, told.until)
        )

    async def pages(request: Request) -> Response:
        """Take pages of such a span; answers after they are committed."""
        return await answer(request, Piece, history.take)

    return [
        Route(PLAN_PATH, plan, methods=["POST"]),
        Route(PAGES_PATH, pages, methods=["POST"]),
    ]


def _read(kind: type[Asked], text: bytes) -> Asked:
    """The body as `kind`. What it holds is not repeated: pages may be long."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"]) or "the body"
        raise PrefixscopeError(f"{where}: {fault['msg']}") from error
