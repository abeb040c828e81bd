"""A log with the text of prompts as traffic to replay."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prefixscope.lint.reading import PromptLog, first_has_prompt, read_prompts
from prefixscope.traces.file import name_of
from prefixscope.traces.lines import kind_of
from replay.counted import counted
from replay.layout.recorded import has_times, recorded_of
from replay.recorded import Recorded

USUAL_BLOCK_TOKENS = 16


@dataclass(frozen=True)
class LogTraffic:
    """A log and what was assumed of it. Nothing of its text is in it."""

    recorded: Recorded
    name: str
    notes: tuple[str, ...]

    @property
    def measured(self) -> None:
        """A log of prompts tells nothing of speeds and memory."""
        return None

    def words(self) -> str:
        """What was read, for a person to check before believing a figure."""
        prompts = self.recorded.prompts
        told = (
            f"{self.name}: {counted(len(prompts), 'request')} with their text, "
            f"{int(prompts.prompt_tokens.sum()):,} prompt tokens, "
            f"{counted(len(prompts.blocks), 'block')} of {prompts.block_tokens} tokens, "
            f"{prompts.distinct_blocks:,} different"
        )
        return ". ".join((told, *self.notes))


def holds_prompts(path: Path) -> bool:
    """Has the first line the text of a prompt, and is no line of a trace? False for a file that
    cannot be read: whoever reads it says why."""
    return first_has_prompt(path, unless=lambda line: kind_of(line) is not None)


def log_traffic(
    paths: Sequence[Path], block_tokens: int | None = None, mends: bool = False
) -> LogTraffic:
    """The requests of logs that `lint` reads; with `mends` also as lint mends them.

    Raises PrefixscopeError for a file that cannot be read or has no prompt at all.
    """
    log = read_prompts(paths)
    recorded = recorded_of(log.prompts, block_tokens or USUAL_BLOCK_TOKENS, mends)
    return LogTraffic(recorded, name_of(paths), tuple(_notes(log)))


def _notes(log: PromptLog) -> list[str]:
    notes = ["Tokens are approximate: equal text is equal tokens"]
    if not has_times(log.prompts):
        notes.append("Not all rows have a time: they are taken as they stand, a second apart")
    if log.skipped:
        notes.append(f"{counted(sum(log.skipped.values()), 'row')} left out; {log.first_skipped}")
    return notes
