"""The HTTP endpoint that gives a found template a name, where an exporter holds the store."""

from anyio.to_thread import run_sync
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from exporter.errors import PrefixscopeError
from exporter.store.store import Store
from exporter.templates_found.keep import give_name

TEMPLATES_PATH = "/v1/templates"


class Renamed(BaseModel):
    """How many requests have the new name."""

    requests: int


def routes(store: Store) -> list[Route]:
    """The one endpoint; answers after the name is committed."""

    async def templates(request: Request) -> Response:
        name = request.query_params.get("name")
        given_name = request.query_params.get("given_name")
        if name is None or given_name is None:
            raise PrefixscopeError(f"POST {TEMPLATES_PATH}?name=auto:…&given_name=… names one")
        renamed = await run_sync(give_name, store, name, given_name)
        return JSONResponse(Renamed(requests=renamed).model_dump())

    return [Route(TEMPLATES_PATH, templates, methods=["POST"])]
