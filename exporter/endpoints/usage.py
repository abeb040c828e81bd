"""The HTTP endpoint that takes usage reports where an exporter holds the store."""

from anyio.to_thread import run_sync
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from exporter.endpoints import body
from exporter.errors import PrefixscopeError
from exporter.sources.usage_reports.report import UsageReport
from exporter.store.provider_usage import replace_usage
from exporter.store.store import Store

USAGE_PATH = "/v1/usage"


class UsageTaken(BaseModel):
    """What became of a report: how many rows of it are kept."""

    rows: int


def routes(store: Store, max_body_bytes: int) -> list[Route]:
    """The one endpoint; answers after the report is committed."""

    async def usage(request: Request) -> Response:
        packed = await body.read_limited(request.stream(), max_body_bytes)
        encoding = request.headers.get("content-encoding", "")

        def taken() -> UsageTaken:
            report = _read(body.unpack(packed, encoding, max_body_bytes))
            kept = replace_usage(
                store, report.reporter, report.rows, account=report.account, read_at=report.read_at
            )
            return UsageTaken(rows=kept)

        return JSONResponse((await run_sync(taken)).model_dump())

    return [Route(USAGE_PATH, usage, methods=["POST"])]


def _read(text: bytes) -> UsageReport:
    """The body as a report. What it holds is not repeated."""
    try:
        return UsageReport.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"]) or "the body"
        raise PrefixscopeError(f"{where}: {fault['msg']}") from None
