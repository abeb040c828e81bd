"""What is given as a file and is an address with a password in it: refused before it is shown."""

import re

from exporter.errors import PrefixscopeError

# `scheme://user:password@host`, also with the one slash a path of files is left with.
_IN_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*:)+/+[^@]*:[^@]*@", re.IGNORECASE)
# `?password=…` of an address, `password=…` of a connection string.
_BY_NAME = re.compile(r"(^|[?&;\s])\w*(password|passwd|pwd)\s*=", re.IGNORECASE)


def refuse_password(path: str) -> None:
    """Raises PrefixscopeError, without the path, where it holds a password.

    For paths of files alone: addresses that are understood have refusals with better advice.
    """
    if _IN_ADDRESS.match(path) or _BY_NAME.search(path):
        raise PrefixscopeError(
            "what is given as a file looks like an address with a password, and so is not shown: "
            "take the password out; logs are files, s3://, gs:// or az:// prefixes, or LiteLLM's "
            "database as postgresql://USER@HOST/NAME"
        )
