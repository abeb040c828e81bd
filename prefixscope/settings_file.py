"""One YAML file and PREFIXSCOPE_… overrides -> a checked model. Whatever is unknown is refused.

A misspelt key that is ignored is a setting that silently does not work; so keys, environment
names and a missing file are all errors here, and every message names the nearest known word.
"""

import difflib
import re
import types
import typing
from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from exporter.errors import PrefixscopeError

PREFIX = "PREFIXSCOPE_"
SEPARATOR = "__"
# Read by clients and by the command line itself, not settings of the exporter.
CLIENT_NAMES = (
    "PREFIXSCOPE_URL", "PREFIXSCOPE_TOKEN", "PREFIXSCOPE_CONFIG",
    "PREFIXSCOPE_PROMETHEUS_TOKEN", "PREFIXSCOPE_PROMETHEUS_PASSWORD",
)  # fmt: skip
# Settings of the tap, which checks them itself; it may run beside an exporter.
_TAP_PREFIX = "PREFIXSCOPE_TAP_"
# Kubernetes puts these into every container beside a Service called prefixscope….
_SERVICE_LINK = re.compile(
    r"PREFIXSCOPE_(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)

# Levels of sections and lists in a file; settings need eight.
_DEEPEST = 50

Model = TypeVar("Model", bound=BaseModel)
KeyPath = tuple[str | int, ...]


class BadSettings(PrefixscopeError):
    """A setting is unknown, missing or wrong; the message names file, key, reason and remedy."""


def load(model: type[Model], file: Path | None, environment: Mapping[str, str]) -> Model:
    """Settings from `file` (None = defaults) with the environment laid over them."""
    values = read_yaml(file) if file is not None else {}
    origins = overlay(model, values, environment)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        lines = [_line(model, file, origins, detail) for detail in error.errors()]
        raise BadSettings("\n".join(lines)) from error


def read_yaml(file: Path) -> dict[str, Any]:
    """The file as nested dictionaries; an empty file is no settings, anything else a mapping."""
    try:
        values = _parsed(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadSettings(
            f"{file}: there is no such file; prefixscope init writes one from what answers"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"{file}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise BadSettings(f"{file}: not valid YAML: {_yaml_reason(error)}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise BadSettings(f"{file}: expected keys and values, found {type(values).__name__}")
    # A section whose keys are all commented out is an empty section.
    return {key: value for key, value in values.items() if value is not None}


class _StrictLoader(yaml.SafeLoader):
    """The safe loader, but a key given twice is an error instead of the last one winning, and
    what looks like a time or a number and is none is an error of YAML."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """One node; the library takes seconds for some hundred levels of brackets."""
        if self._depth >= _DEEPEST:
            raise yaml.MarkedYAMLError(problem="nested beyond reason")
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            problem = None if isinstance(key, str) else f"key {key!r} is not text"
            if problem is None and key in seen:
                problem = f"key {key!r} is given twice"
            if problem is not None:
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        """A node's value; the library lets errors of Python out, as of the date 2001-99-99."""
        try:
            value: object = super().construct_object(node, deep)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise yaml.MarkedYAMLError(
                problem="cannot be read as the kind of value it looks like: put it in quotes",
                problem_mark=node.start_mark,
            ) from error
        return value


def _parsed(text: str) -> object:
    """What a YAML text holds. Raises YAMLError."""
    try:
        value: object = yaml.load(text, Loader=_StrictLoader)  # noqa: S506  # it derives from SafeLoader
    except RecursionError as error:
        raise yaml.MarkedYAMLError(problem="nested beyond reason") from error
    return value


def _yaml_reason(error: yaml.YAMLError) -> str:
    """Reason and line in one sentence; never the line's text, which may hold a secret."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{error.problem} (line {mark.line + 1}, column {mark.column + 1})"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        return error.problem
    return "cannot be parsed"


def overlay(
    model: type[BaseModel], values: dict[str, Any], environment: Mapping[str, str]
) -> dict[KeyPath, str]:
    """Lay PREFIXSCOPE_… over `values`; returns which name set which key."""
    known = {env_name(path): (path, annotation) for path, annotation in leaves(model)}
    origins: dict[KeyPath, str] = {}
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name.startswith(_TAP_PREFIX):
            continue
        if name in CLIENT_NAMES or _SERVICE_LINK.fullmatch(name):
            continue
        if name not in known:
            near = _nearest(name, [*known, *CLIENT_NAMES])
            raise BadSettings(f"environment variable {name} names no setting{near}")
        path, annotation = known[name]
        _set(values, path, _env_value(name, environment[name], annotation))
        origins[path] = name
    return origins


def env_name(path: Iterable[str]) -> str:
    """`("server", "listen")` -> PREFIXSCOPE_SERVER__LISTEN."""
    return PREFIX + SEPARATOR.join(part.upper() for part in path)


def leaves(
    model: type[BaseModel], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every setting as (path, annotation); sections are entered, lists are settings as a whole."""
    for name, field in model.model_fields.items():
        inner = _model_of(field.annotation)
        if inner is not None and not _is_container(field.annotation):
            yield from leaves(inner, (*above, name))
        else:
            yield (*above, name), field.annotation


def _env_value(name: str, text: str, annotation: object) -> object:
    """A scalar stays text, which the model reads as its type; lists are written as YAML."""
    if not _is_container(annotation):
        return text
    try:
        return _parsed(text)
    except yaml.YAMLError as error:
        raise BadSettings(f"{name}: not valid YAML: {_yaml_reason(error)}") from error


def _set(values: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    *sections, last = path
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            return  # the model will say what is wrong with the section
        values = inner
    values[last] = value


def _line(
    model: type[BaseModel], file: Path | None, origins: Mapping[KeyPath, str], detail: ErrorDetails
) -> str:
    """One error as `where: key: reason`. The value is left out: it may be a secret."""
    path = detail["loc"]
    named = [part for part in path if not str(part).startswith("function-")]
    where = origins.get(tuple(named)) or (str(file) if file else "settings")
    key = ".".join(str(part) for part in named)
    if detail["type"] == "extra_forbidden":
        near = _nearest(str(path[-1]), _fields_at(model, path[:-1]))
        return f"{where}: {key}: unknown key{near}"
    reason = detail["msg"].removeprefix("Value error, ")
    return f"{where}: {key}: {reason}" if key else f"{where}: {reason}"


def _nearest(word: str, known: Iterable[str]) -> str:
    """A hint at the known word that looks most alike, or at all of them."""
    words = list(known)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known: {', '.join(words)}" if words else ""


def _fields_at(model: type[BaseModel], path: KeyPath) -> list[str]:
    """Names of the keys known where `path` leads."""
    current: type[BaseModel] | None = model
    for part in path:
        if isinstance(part, str) and current is not None and part in current.model_fields:
            current = _model_of(current.model_fields[part].annotation)
    return list(current.model_fields) if current is not None else []


def _model_of(annotation: object) -> type[BaseModel] | None:
    """The model inside an annotation such as `Section`, `Section | None` or `list[Section]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_of, typing.get_args(annotation))), None)


def _is_container(annotation: object) -> bool:
    """Is it a list, tuple, set or dictionary (maybe optional)?"""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType, Annotated):
        return any(_is_container(part) for part in typing.get_args(annotation))
    return (origin or annotation) in (list, tuple, set, frozenset, dict)
