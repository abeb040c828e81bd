"""The few words everything in this demo is written with, and prose made of them.

Each word is one token of the demo's model, so a prompt of so many words has about as many tokens.
"""

import random

WORDS = (
    "account", "address", "agent", "amount", "answer", "balance", "batch", "branch", "budget",
    "change", "charge", "check", "claim", "client", "contract", "copy", "credit", "customer",
    "date", "delay", "delivery", "deposit", "detail", "discount", "document", "entry", "error",
    "event", "fee", "field", "file", "form", "group", "history", "index", "invoice", "item",
    "journal", "letter", "limit", "list", "manager", "market", "message", "month", "network",
    "note", "notice", "number", "offer", "office", "order", "page", "parcel", "partner",
    "payment", "period", "person", "phone", "plan", "policy", "price", "process", "product",
    "project", "purchase", "quarter", "question", "rate", "reason", "receipt", "record",
    "refund", "region", "report", "request", "return", "review", "rule", "sample", "schedule",
    "section", "service", "session", "share", "signature", "stock", "store", "supply", "table",
    "target", "tax", "team", "term", "ticket", "total", "trade", "transfer", "update", "user",
    "value", "vendor", "version", "visit", "warranty", "week", "window", "year",
)  # fmt: skip


def prose(seed: str, words: int) -> str:
    """So many words, always the same for a seed; nothing for 0 or less."""
    chooser = random.Random(seed)  # noqa: S311 - it only has to be reproducible
    return " ".join(chooser.choice(WORDS) for _ in range(words))
