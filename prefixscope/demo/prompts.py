"""What the demo's sessions send: lengths in tokens and the chain of blocks behind them.

A block stands for its chain hash and says which text it has (`blocks`), but text is never made
up: no figure depends on what it says, only on where the same comes again.
"""

from dataclasses import dataclass, field
from random import Random

from prefixscope.demo.blocks import BlockNumbers, salted
from prefixscope.demo.scenario import BLOCK_TOKENS, CONTEXT_TOKENS, Template, salt_number

GREETING_TOKENS = 40


@dataclass(slots=True)
class Session:
    """One conversation. `chain` and `tokens` grow with every turn: prompt, then answer."""

    name: str
    template: Template
    version: str
    tenant: str
    turns: int
    replica: int
    turn: int = 1
    tokens: int = 0
    chain: list[int] = field(default_factory=list)


class PromptBook:
    """Hands out blocks and draws lengths; one per run, so that blocks are unique in it."""

    def __init__(self, draws: Random) -> None:
        self._draws = draws
        self._numbers = BlockNumbers()
        self._heads: dict[tuple[str, ...], tuple[int, list[int]]] = {}
        self._documents: dict[tuple[str, ...], int] = {}

    def open(self, session: Session) -> None:
        """Give a new session the part of its prompt that comes before the conversation."""
        session.tokens, shared = self._head(session)
        # The greeting names the person in front of everything: nothing is shared any more.
        is_greeted = session.version == session.template.next_version
        session.chain = self._behind_own_block(shared, session) if is_greeted else shared.copy()

    def ask(self, session: Session) -> int:
        """Append the user's part of this turn; returns the prompt's length in tokens."""
        session.tokens += self._length(session.template.user_tokens)
        if session.template.clock:
            session.chain = self._behind_own_block(session.chain, session)
        self._extended(session.chain, session.tokens)
        return session.tokens

    def answer(self, session: Session) -> int:
        """Append the answer of this turn; returns its length in tokens."""
        output_tokens = self._length(session.template.output_tokens)
        session.tokens += output_tokens
        self._extended(session.chain, session.tokens)
        return output_tokens

    def fits(self, session: Session) -> bool:
        """Say whether one more turn of ordinary length stays inside the model's context."""
        template = session.template
        return session.tokens + 3 * (template.user_tokens + template.output_tokens) < CONTEXT_TOKENS

    def _head(self, session: Session) -> tuple[int, list[int]]:
        template = session.template
        key: tuple[str, ...] = (template.name, session.version)
        if key not in self._heads:
            greeting_tokens = GREETING_TOKENS if session.version == template.next_version else 0
            tokens = greeting_tokens + template.system_tokens
            self._heads[key] = (tokens, self._extended([], tokens))
        if salt := salt_number(session.tenant):
            key = self._salted_head(key, salt)
        if not template.document_tokens:
            return self._heads[key]
        # Low numbers are drawn more often: some documents are asked about again and again.
        document = int(template.documents_per_tenant * self._draws.random() ** 2)
        longer = (*key, session.tenant, str(document))
        if longer not in self._heads:
            tokens, chain = self._heads[key]
            tokens += self._document_tokens(template, longer[-2:])
            self._heads[longer] = (tokens, self._extended(chain.copy(), tokens))
        return self._heads[longer]

    def _document_tokens(self, template: Template, document: tuple[str, ...]) -> int:
        """The length of a tenant's document, which a new version of the template leaves alone."""
        known = (template.name, *document)
        if known not in self._documents:
            self._documents[known] = self._length(template.document_tokens)
        return self._documents[known]

    def _salted_head(self, key: tuple[str, ...], salt: int) -> tuple[str, ...]:
        """The same text, and no block of it shared with anybody of another salt or of none."""
        own = (*key, f"salt {salt}")
        if own not in self._heads:
            tokens, chain = self._heads[key]
            self._heads[own] = (tokens, salted(self._numbers.of_same_text(chain), salt))
        return own

    def _behind_own_block(self, chain: list[int], session: Session) -> list[int]:
        """The same text behind a first block that nobody else has."""
        anew = [*self._numbers.of_own_text(1), *self._numbers.of_same_text(chain[1:])]
        return salted(anew, salt_number(session.tenant))

    def _extended(self, chain: list[int], tokens: int) -> list[int]:
        missing = tokens // BLOCK_TOKENS - len(chain)
        if missing > 0:
            chain.extend(self._numbers.of_own_text(missing))
        return chain

    def _length(self, mean_tokens: int) -> int:
        """Draw a length between a quarter and three times the mean, long ones rarer."""
        return max(1, int(mean_tokens * (0.25 + min(self._draws.expovariate(1 / 0.75), 2.75))))
