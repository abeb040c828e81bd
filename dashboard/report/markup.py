"""A little HTML: text is escaped, always; only what was made here is markup."""

from html import escape


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = Markup | str | None


def tag(name: str, /, *children: Child, **attributes: object) -> Markup:
    """An element. `class_` is class, `_` in names is `-`; attributes that are None are left out."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{told}>{joined(*children)}</{name}>")


def void(name: str, /, **attributes: object) -> Markup:
    """An element without content, closed as SVG wants it."""
    return Markup(f"{tag(name, **attributes)[: -len(name) - 4]}/>")


def joined(*children: Child) -> Markup:
    """Children one after another; None is nothing."""
    return Markup("".join(_child(each) for each in children))


def _child(child: Child) -> str:
    if child is None:
        return ""
    return child if isinstance(child, Markup) else escape(child)


def bdi(text: str) -> Markup:
    """A name from outside: its writing direction stays inside it."""
    return tag("bdi", text)
