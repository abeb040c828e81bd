"""The one error type that reaches a person as a message instead of a traceback."""


class PrefixscopeError(Exception):
    """Something a person can act on. The message says what is wrong and what to do."""


class StoreLocked(PrefixscopeError):
    """Another process owns the store; the message names it and how to ask it instead."""
