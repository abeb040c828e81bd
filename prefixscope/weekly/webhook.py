"""Tells a webhook of a report, without ever naming its address: whoever knows it can post."""

from collections.abc import Mapping

import requests

TIMEOUT_SECONDS = (3.0, 10.0)  # to connect, to answer
LONGEST_TEXT = 600
# These may pass; any other 4xx is the same the next time.
_TRY_AGAIN = {408, 429}


class WebhookFailed(Exception):
    """The webhook did not take a message; it may the next time."""


class WebhookRefused(Exception):
    """The webhook will not take this message, however often it is sent."""


def post(webhook: str, message: Mapping[str, object]) -> None:
    """Post a message. Anything but a 2xx has failed, redirects too; most 4xx are refusals."""
    try:
        answer = requests.post(
            webhook, json=message, timeout=TIMEOUT_SECONDS, allow_redirects=False
        )
    except (requests.RequestException, ValueError) as error:
        # Its own text holds the address.
        raise WebhookFailed(f"the webhook gives {type(error).__name__}") from None
    said = f"the webhook answers {answer.status_code}"
    if 400 <= answer.status_code < 500 and answer.status_code not in _TRY_AGAIN:
        raise WebhookRefused(said)
    if not 200 <= answer.status_code < 300:
        raise WebhookFailed(said)


def chat_text(text: str) -> str:
    """A summary that calls nobody and hides no address: names in it come from outside.

    Chats read <…> as mentions and links, and @ as a call; & introduces how they write those. Lines
    that do not fit any more are left out, the last ones first.
    """
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    lines = plain.replace("@", "@\N{ZERO WIDTH SPACE}").split("\n")
    while len(lines) > 1 and len("\n".join(lines)) > LONGEST_TEXT:
        lines.pop()
    return "\n".join(lines)
