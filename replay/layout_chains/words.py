"""Findings in words: what was seen, what to do about it, and what that would win at best."""

from datetime import UTC, datetime

from replay.counted import counted
from replay.layout_chains.findings import LayoutFinding

# Said to be of all where it is of next to all.
_NEXT_TO_ALL_RATIO = 0.9
_CHANGES = {
    "request": "with every request",
    "session": "with every session",
    "user": "with every user",
    "day": "with every day",
}


def place_of(found: LayoutFinding) -> str:
    """Where it is, as whole blocks tell it: a place may begin anywhere in the first."""
    return f"within tokens {found.from_token:,} to {found.until_token - 1:,}"


def advice_on(found: LayoutFinding, prompt_tokens: int, block_tokens: int) -> str:
    """The finding in a few sentences. `prompt_tokens`: of the requests looked at; `block_tokens`:
    of the cache that serves them."""
    said = _in_turns(found) if found.in_turns else _said(found, block_tokens)
    if not found.gain_tokens:
        return said
    share = 100 * found.gain_tokens / max(prompt_tokens, 1)
    return (
        f"{said} At best {found.gain_tokens:,} more of {prompt_tokens:,} prompt tokens"
        f" ({share:.1f} %) would be reused: replayed without it, in a cache that never loses a"
        " block."
    )


def mended_words(found: LayoutFinding, template: str) -> str:
    """What is taken to be mended, in a sentence without its full stop."""
    kind = "something" if found.kind == "unknown" else found.kind.replace("_", " ")
    where = f"{template or 'requests without a template'}: {kind} {place_of(found)}"
    if found.in_turns:
        return f"{where}, as if later turns went on where the one before ended"
    if found.kind == "tool_order":
        return f"{where}, as if the same parts stood in one order"
    changes = _CHANGES[found.frequency]
    return f"{where}, which changes {changes}, as if it stood behind what stays the same"


def _said(found: LayoutFinding, block_tokens: int) -> str:
    if found.frequency == "once":
        return _changed_once(found)
    if found.kind == "tool_order":
        return (
            f"The same parts stand in another order with every request, {place_of(found)}, as where"
            " tools come from an unordered map. Sort them, by name for example."
        )
    if found.kind in _OTHERS:
        return _OTHERS[found.kind].format(
            tokens=f"{found.until_token:,}", block=f"{block_tokens:,}",
            requests=counted(found.requests, "request"), changes=counted(found.changes, "time"),
            prompts=counted(found.requests, "prompt is", "prompts are"),
        )  # fmt: skip
    some = found.requests < _NEXT_TO_ALL_RATIO * found.template_requests
    count = f"In {found.requests:,} of {counted(found.template_requests, 'request')} something"
    return (
        f"{count if some else 'Something'} {place_of(found)} changes {_CHANGES[found.frequency]},"
        " and what follows is the same again. Move it behind what stays the same, or leave it out;"
        " run lint to see what it is."
    )


def _changed_once(found: LayoutFinding) -> str:
    since = f" at {_moment(found.since)}" if found.since is not None else ""
    warm = (
        f", warm again by {_moment(found.warm_again_by)}" if found.warm_again_by is not None else ""
    )
    return (
        f"The template changed{since}, from token {found.from_token:,} on: {found.lost_tokens:,}"
        f" tokens had to be computed anew, once on each replica{warm}. There is nothing to mend."
    )


def _in_turns(found: LayoutFinding) -> str:
    if found.kind == "thinking_removed":
        return (
            f"The next turn parts from the one before just where its answer began (often"
            f" {place_of(found)}): what opens an answer, thinking markers for example, is rendered"
            " in another way once it is history. Use a template that leaves history as it was."
        )
    if found.kind == "tokenizer_join":
        return (
            "Prompts come back whole in the next turn, and never a block of the answer: it is cut"
            " into other tokens or rewritten once it is history, or the engine does not keep"
            " answers. Send back the generated token ids, or the text as it was."
        )
    return (
        f"Later turns do not go on where the one before ended (often {place_of(found)}): history is"
        " shortened or rewritten, or something is put at the end of each prompt and not kept."
        " Append to history and change nothing in it."
    )


_OTHERS = {
    "below_minimum": (
        "{prompts} shorter than the provider caches at all: not eligible, and no other order of"
        " what is in them helps."
    ),
    "short_prefix": (
        "{tokens} tokens are shared, which is less than a block of the cache ({block} tokens), so"
        " that nothing can be reused. This is another thing than nothing shared: make the shared"
        " beginning longer, or the block smaller."
    ),
    "key_lineage": (
        "Every miss of a known beginning ({tokens} tokens) follows a new cache key or a restart,"
        " {changes}: the key is made anew, and prompts are not to blame. Keep the key."
    ),
    "routing_key": (
        "The first request of a session misses {tokens} tokens that others had just used, and its"
        " later turns hit: something, such as a routing or cache key by conversation, parts an"
        " equal beginning. Use a key per agent or template; mind the rate of requests per key."
    ),
    "no_local_cause": (
        "{requests} had a beginning of {tokens} tokens that was asked for minutes before, and got"
        " none of it from cache. No local cause was found: this is the provider's side, and no"
        " other layout would help."
    ),
}  # fmt: skip


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
