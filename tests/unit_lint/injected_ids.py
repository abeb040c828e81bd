"""A small tokenizer whose joins differ as those of real ones do: what was generated as two newlines
is encoded as one token when it comes back as text."""

from collections.abc import Iterator


def _pieces(text: str) -> Iterator[str]:
    word = ""
    for sign in text:
        if sign.isalnum() and len(word) < 5 and (not word or word[-1].isalnum() or word == " "):
            word += sign
            continue
        if word:
            yield word
        word = sign
    if word:
        yield word


def _number(piece: str) -> int:
    return int.from_bytes(piece.encode()[:7], "big")


def generated_ids(text: str) -> list[int]:
    """One id a piece, as an engine generates them: two newlines are two ids."""
    return [_number(piece) for piece in _pieces(text)]


def ids_of(text: str) -> list[int]:
    """The same text encoded anew: two newlines are one id."""
    ids: list[int] = []
    newline = _number("\n")
    for number in generated_ids(text):
        if number == newline and ids and ids[-1] == newline:
            ids[-1] = 271
        else:
            ids.append(number)
    return ids
