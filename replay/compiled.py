"""Functions compiled by Numba, for passes that go through millions of blocks one by one.

Importing Numba costs a third of a second, so only what needs it imports this.
"""

import os
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np

_Function = TypeVar("_Function", bound=Callable[..., object])
_HERE = Path(__file__).parent


def kept_in(sources: Path, given: str = "") -> Path:
    """Where compiled code is kept: in `given` (NUMBA_CACHE_DIR), beside the sources, or in the
    user's cache folder; in a folder of its own for every state of the sources. Numba looks at the
    file of a function alone, and would go on with old code of what that calls in another one."""
    digest = blake2b(digest_size=8)
    for path in sorted(sources.glob("*.py")):
        digest.update(path.read_bytes())
    return _base(sources, given) / f"compiled-{digest.hexdigest()}"


def _base(sources: Path, given: str) -> Path:
    beside = sources / "__pycache__"
    if given:
        return Path(given)
    home = os.environ.get("HOME")
    if home is None or os.access(beside if beside.exists() else sources, os.W_OK):
        return beside
    return Path(os.environ.get("XDG_CACHE_HOME") or Path(home, ".cache")) / "prefixscope"


_settings: Any = numba.config
_settings.CACHE_DIR = str(kept_in(_HERE, _settings.CACHE_DIR))


def compiled(function: _Function) -> _Function:
    """Compile at the first call with such arguments and keep the code, together with that of the
    functions it calls (`kept_in`). Where nothing can be written every process compiles anew."""
    return _kept(function)


def borrowing(function: _Function) -> _Function:
    """The same for what makes no arrays, and only calls such functions: it borrows those it is
    given, which Numba would otherwise count references of at every touch. With many columns that
    is two thirds of the time."""
    return _borrowing(_kept, function)


def part(function: _Function) -> _Function:
    """As `borrowing`, for what only compiled code calls: it is kept with that, so that start-up
    need not look for it."""
    return _borrowing(_made, function)


def _borrowing(make: Callable[..., _Function], function: _Function) -> _Function:
    try:
        return make(function, _nrt=False)
    except KeyError:  # an option that Numba itself uses, but does not promise
        return make(function)


def _kept(function: _Function, **options: bool) -> _Function:
    try:
        return _made(function, cache=True, **options)
    except RuntimeError:  # Numba's word for "no folder for the cache"
        return _made(function, **options)


def _made(function: _Function, **options: bool) -> _Function:
    compiler: Any = numba.njit
    return cast("_Function", compiler(nogil=True, **options)(function))


def inlined(function: _Function) -> _Function:
    """The same for a part that takes many columns: its code becomes part of whoever calls it,
    as handing them all over costs more than what it does with them."""
    return cast("_Function", numba.njit(inline="always")(function))


@inlined
def wide(number: int) -> int:
    """The same number in 64 bits, whatever column or loop it is from: what is called with two kinds
    of numbers is compiled for each."""
    return int(np.int64(number))
