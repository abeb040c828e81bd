"""The report in at most 600 characters of plain text, for chats and webhooks."""

from dashboard.report import words
from dashboard.report.text import told
from dashboard.report.week import WeekReport

LONGEST = 600


def summary(report: WeekReport) -> str:
    """The sentence first, then as much as fits, most important first; never cut in a line."""
    lines = [told(report.headline.sentence, 300), *_rest(report)]
    text = f"{words.title(report)} ({report.week.zone})"
    for line in lines:
        if line and len(text) + 1 + len(line) <= LONGEST:
            text += f"\n{line}"
    return text


def _rest(report: WeekReport) -> list[str]:
    lines = [told(mark, 150) for mark in words.marks(report)]
    if report.peak is not None and not report.peak.was_expected:
        lines.append(f"Worst hour: {told(report.peak.sentence, 200)}")
    lines += [
        f"Change: {told(each.sentence, 120)}, {words.change_tokens(each)}"
        for each in report.changes[:1]
    ]
    if report.billed is not None:
        lines.append(f"Billed saving, net: {words.usd(report.billed.net_saved_usd)}")
    if report.freed is not None:
        lines.append(f"Prefill avoided: {words.gpu_hours(report.freed.gpu_hours)} GPU-hours")
    lines += [
        told(f"{way}: {each.name} {words.mover_words(each)}", 180)
        for way, movers in (("Down", report.down), ("Up", report.up))
        for each in movers[:1]
    ]
    return lines
