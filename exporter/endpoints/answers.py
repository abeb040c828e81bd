"""How answers look in HTTP: strict JSON, and what a person's mistake is called there."""

import json

from starlette.requests import Request
from starlette.responses import Response

from exporter.endpoints import body, otlp, runbooks
from exporter.errors import PrefixscopeError
from exporter.store.database import is_of_disk
from queries import registry


class QueryTimeout(PrefixscopeError):
    """A question took longer than the setting allows."""


class TooManyBatches(PrefixscopeError):
    """As many POSTs as the setting allows are being taken in."""


class DiskRefuses(PrefixscopeError):
    """The disk did not take or give what it should: the same may work later."""


# What a person's mistake is called in HTTP. Anything not here is ours: 500 and a traceback.
STATUS_CODES: dict[type[Exception], int] = {
    body.BodyTooLarge: 413,
    body.UnknownEncoding: 415,
    body.SilentSender: 408,
    otlp.UnknownContentType: 415,
    QueryTimeout: 503,
    DiskRefuses: 503,
    TooManyBatches: 429,
    registry.UnknownQuestion: 404,
    runbooks.UnknownRunbook: 404,
    registry.BadParameter: 400,
    PrefixscopeError: 400,
}


def json_answer(value: object, status_code: int = 200) -> Response:
    """Strict JSON: a NaN that slipped through is an error, never output."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return Response(text, status_code, media_type="application/json")


def status_of(error: Exception) -> tuple[int, dict[str, str]]:
    """The status of an error, and for a shipper that should wait how long."""
    code = next((code for kind, code in STATUS_CODES.items() if isinstance(error, kind)), 400)
    return code, {"Retry-After": "1"} if code in (429, 503) else {}


async def person_error(_request: Request, error: Exception) -> Response:
    """Say what is wrong."""
    code, headers = status_of(error)
    response = json_answer({"error": str(error)}, code)
    response.headers.update(headers)
    return response


async def store_error(request: Request, error: Exception) -> Response:
    """A full disk is nobody's mistake here: a shipper should send again, which it does after 503
    and some do after no other status."""
    if told := disk_refuses(error):
        return await person_error(request, told)
    raise error


def disk_refuses(error: Exception) -> DiskRefuses | None:
    """What to tell of an error of the disk; None for any other."""
    if not is_of_disk(error):
        return None
    return DiskRefuses(f"the exporter's disk refuses ({error}): make room there, then again")


async def own_error(_request: Request, _error: Exception) -> Response:
    """Our fault: the traceback goes to the log, not to the reader."""
    return json_answer({"error": "internal error; the exporter's log has the details"}, 500)
