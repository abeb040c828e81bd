"""The secret of keyed hashes: a file that taps and exporters of one fleet may share."""

import os
import secrets
from pathlib import Path

from prefixscope.tap.settings import BadTapSettings, TapSettings
from prefixscope.tap.sinks import tap_log


def tap_key(settings: TapSettings) -> str:
    """The secret of keyed hashes: the configured file, else `hash.key` beside the rows. Made at
    first start; share one file between taps and exporters whose hashes are to be compared."""
    path = Path(settings.key_file or (Path(settings.file).parent / "hash.key"))
    if not settings.key_file and not settings.file:
        if settings.hashes != "off":
            raise BadTapSettings("PREFIXSCOPE_TAP_HASHES needs PREFIXSCOPE_TAP_KEY_FILE")
        return ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _read_or_make(path)
    except (OSError, UnicodeDecodeError) as error:
        if settings.key_file:
            raise BadTapSettings(f"PREFIXSCOPE_TAP_KEY_FILE: {path}: {error}") from error
        tap_log.warning("no key for hashes: %s: %s", path, type(error).__name__)
        return ""


def _read_or_make(path: Path) -> str:
    """Another process may make the file at the same moment: whoever is second reads."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    if not path.exists():
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(32) + "\n")
            path.hardlink_to(beside)
        except FileExistsError:
            pass
        finally:
            beside.unlink()
    key = path.read_text(encoding="utf-8").strip()
    if not key:
        raise BadTapSettings(f"{path} is empty: remove it, or put a secret into it")
    return key
