"""OTLP/JSON -> spans. Reads the encoding of the specification and what else is seen of it.

Ids are hex (base64 where a program wrote protobuf's own JSON), enumerations numbers (or names),
64-bit integers decimal strings (or numbers). What may hold a prompt is dropped while the text
is parsed, before anything else looks at it.
"""

import base64
import binascii
import json
import re
import sys
from collections.abc import Iterator

from exporter.sources.formats.otel_attributes import Scalar, kept, may_keep, may_list
from exporter.sources.formats.otel_spans import Span

OPENING = re.compile(r"\s*\{\s*\"(?:resourceSpans|resource_spans)\"\s*:")
_HEX = re.compile(r"[0-9A-Fa-f]+")
_TRACE_ID_BYTES, _SPAN_ID_BYTES = 16, 8
_KINDS = {"SPAN_KIND_CLIENT": 3}
_FAILED = (2, "2", "STATUS_CODE_ERROR")
_VALUES = ("stringValue", "intValue", "doubleValue", "boolValue",
           "string_value", "int_value", "double_value", "bool_value")  # fmt: skip

Object = dict[str, object]


class Kept(dict[str, Scalar]):
    """Attributes that were sifted, so that nothing else can be taken for them."""


def read_object(text: str | bytes) -> Object:
    """The JSON object in a text, without the attributes and events we never read.

    Raises ValueError where there is no JSON object.
    """
    try:
        value = json.loads(text, object_hook=_slimmed)
    except RecursionError as error:
        raise ValueError("nested beyond reason") from error
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _slimmed(found: Object) -> Object | None:
    """Called for every object as it ends, so that a large request never exists as a whole:
    what may hold text of a prompt stays behind, and attributes become plain values."""
    if "value" in found and not may_keep(found.get("key")):
        return None
    for name in ("events", "links"):
        found.pop(name, None)
    if isinstance(entries := found.get("attributes"), list):
        found["attributes"] = _plain(entries)
    return found


def _plain(entries: list[object]) -> Kept:
    """The attributes that may be kept, by name."""
    found = Kept()
    for entry in entries:
        name = entry.get("key") if isinstance(entry, dict) else None
        if isinstance(entry, dict) and isinstance(name, str) and may_keep(name):
            value = _value(entry.get("value"), name)
            if value is not None and (short := kept(name, value)) is not None:
                found[sys.intern(name)] = short
    return found


def is_request(found: Object) -> bool:
    """Whether an object is an export request and not a row we made of one."""
    return "resourceSpans" in found or "resource_spans" in found


def spans_in(request: Object) -> list[Span]:
    """Every span of an export request, in its order. Raises ValueError where it is none."""
    return [span for resource in _objects(request, "resourceSpans") for span in _spans_of(resource)]


def _spans_of(resource_spans: Object) -> Iterator[Span]:
    resource = _attributes(_object(resource_spans, "resource"))
    for scope_spans in _objects(resource_spans, "scopeSpans"):
        scope = str(_object(scope_spans, "scope").get("name", ""))
        for span in _list(scope_spans, "spans"):
            yield _span(span, scope, resource)


def _span(found: object, scope: str, resource: dict[str, Scalar]) -> Span:
    if not isinstance(found, dict):
        return Span("", scope, 0, None, None, None, None, None, False, resource, readable=False)
    kind = _get(found, "kind")
    return Span(
        name=str(found.get("name", "")),
        scope=scope,
        kind=kind if isinstance(kind, int) else _KINDS.get(str(kind), 0),
        trace_id=hex_id(_get(found, "traceId"), _TRACE_ID_BYTES),
        span_id=hex_id(_get(found, "spanId"), _SPAN_ID_BYTES),
        parent_id=hex_id(_get(found, "parentSpanId"), _SPAN_ID_BYTES),
        start=_scalar(_get(found, "startTimeUnixNano")),
        end=_scalar(_get(found, "endTimeUnixNano")),
        failed=_object(found, "status").get("code") in _FAILED,
        attributes={**resource, **_attributes(found)},
    )


def hex_id(value: object, size_bytes: int) -> str | None:
    """An id in lower-case hex, whatever its spelling; None for none, and for what is no id."""
    text = value if isinstance(value, str) else ""
    if len(text) == 2 * size_bytes and _HEX.fullmatch(text):
        return text.lower() if text.strip("0") else None
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data.hex() if len(data) == size_bytes and any(data) else None


def _attributes(holder: Object) -> Kept:
    """Those of a resource or span. Raises ValueError where they were no list."""
    found = _get(holder, "attributes")
    if found is None:
        return Kept()
    if not isinstance(found, Kept):
        raise ValueError("attributes is no list")
    return found


def _value(holder: object, name: str) -> Scalar | None:
    if not isinstance(holder, dict):
        return None
    if may_list(name) and isinstance(array := _get(holder, "arrayValue"), dict):
        listed = (_value(element, "") for element in _list(array, "values"))
        return ",".join(str(value) for value in listed if value is not None)
    values = (_scalar(holder.get(name)) for name in _VALUES)
    return next((value for value in values if value is not None), None)


def _scalar(value: object) -> Scalar | None:
    return value if isinstance(value, str | int | float | bool) else None


def _get(holder: Object, name: str) -> object:
    """A member in either spelling of its name."""
    return holder[name] if name in holder else holder.get(_snake(name))


def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), name)


def _object(holder: Object, name: str) -> Object:
    value = _get(holder, name)
    return value if isinstance(value, dict) else {}


def _list(holder: Object, name: str) -> list[object]:
    """A list; none where there is none. Raises ValueError where something else stands."""
    value = _get(holder, name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{name} is no list")
    return value


def _objects(holder: Object, name: str) -> list[Object]:
    entries = _list(holder, name)
    if not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{name} holds something that is no object")
    return [entry for entry in entries if isinstance(entry, dict)]
