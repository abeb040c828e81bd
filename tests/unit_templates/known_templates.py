"""Traffic whose templates are known: what a finder of templates is measured against.

Prompts are token ids drawn at random: a template of some version, then what one caller wrote, in
conversations also the turns before. Written from what logs of chat services look like, and without
a look at the finder: nothing of `replay` but the column types is used.
"""

from dataclasses import dataclass, field

import numpy as np

from replay.traffic import Chains, Names, Numbers, Seconds

GRAIN_TOKENS = 16
DAY_SECONDS = 86_400.0
_VOCABULARY = 50_000
_LONGEST_BLOCKS = 20_000
# What a chat template puts around messages: the same everywhere.
_BEGIN, _USER, _ASSISTANT = np.arange(1, 6), np.arange(6, 9), np.arange(9, 12)


@dataclass(frozen=True)
class Kind:
    """What is hard about a world. `tenants_each`: callers of one template."""

    templates: int = 20
    requests: int = 3_000
    largest_to_smallest: float = 100.0
    shortest_tokens: int = 150
    longest_tokens: int = 4_000
    # Templates by families that begin with the same house preamble of so many tokens.
    families: int = 0
    preamble_tokens: tuple[int, int] = (48, 400)
    # So many templates are the whole of another one and more behind it.
    extended: int = 0
    turns: int = 1
    long_conversations: int = 0
    retried_share: float = 0.02
    # Share of first questions that come from a list of some that everybody asks.
    popular_share: float = 0.1
    tenants_each: int = 12
    scopes: int = 1


@dataclass(frozen=True)
class World:
    """Requests in the order of their start. `template` and `version` are what is known of each;
    a version counts on within its template."""

    chains: Chains
    started: Seconds
    session: Numbers
    tenant: Numbers
    route: Numbers
    scope: Numbers
    prompt_tokens: Numbers
    template: Numbers
    version: Numbers

    @property
    def known(self) -> Numbers:
        """A number for each version of each template."""
        return self.template * 10 + self.version

    def rows(self, chosen: Numbers) -> "World":
        """These requests only."""
        columns = {name: getattr(self, name)[chosen] for name in _COLUMNS}
        return World(chains=self.chains.sorted(chosen), **columns)


_COLUMNS = (
    "started", "session", "tenant", "route", "scope", "prompt_tokens", "template", "version",
)  # fmt: skip


@dataclass
class _Maker:
    """Draws a world; `days` are drawn after each other, the templates once."""

    kind: Kind
    random: np.random.Generator
    texts: list[list[Numbers]] = field(default_factory=list)
    volume: Seconds = field(default_factory=lambda: np.empty(0))
    rows: list[tuple[float, int, int, int, int, int, int]] = field(default_factory=list)
    prompts: list[Numbers] = field(default_factory=list)
    sessions: int = 0

    def tokens(self, count: int) -> Numbers:
        return self.random.integers(100, _VOCABULARY, count)

    def length(self, shortest: float, longest: float) -> int:
        """As many short ones as long ones, by order of magnitude."""
        return int(np.exp(self.random.uniform(np.log(shortest), np.log(longest))))

    def draw_templates(self) -> None:
        kind = self.kind
        volume = np.geomspace(1, 1 / kind.largest_to_smallest, kind.templates)
        self.random.shuffle(volume)
        self.volume = volume / volume.sum()
        heads = [self.tokens(self.length(*kind.preamble_tokens)) for _ in range(kind.families)]
        for number in range(kind.templates):
            text = self.tokens(self.length(kind.shortest_tokens, kind.longest_tokens))
            if number < kind.extended * 2 and number % 2:
                text = _joined(self.texts[number - 1][0], text)
            elif heads:
                text = _joined(heads[number % len(heads)], text)
            self.texts.append([text, self._edited(text)])

    def _edited(self, text: Numbers) -> Numbers:
        """The next version: some tokens changed, put in or taken out, anywhere."""
        place = int(self.random.integers(0, len(text)))
        gone, new = self.random.integers(0, 30, 2).tolist()
        return _joined(text[:place], self.tokens(new + 1), text[place + gone :])

    def draw_traffic(self, since: float, seconds: float, turnover: Seconds) -> None:
        kind = self.kind
        popular = [self.tokens(self.length(10, 200)) for _ in range(20)]
        until = len(self.rows) + kind.requests
        for _ in range(kind.long_conversations):
            template = int(self.random.choice(kind.templates, p=self.volume))
            self._converse(template, since, seconds, turnover, popular, 60)
        while len(self.rows) < until:
            template = int(self.random.choice(kind.templates, p=self.volume))
            turns = 1 + int(self.random.geometric(1 / kind.turns)) if kind.turns > 1 else 1
            self._converse(template, since, seconds, turnover, popular, turns)

    def _converse(
        self,
        template: int,
        since: float,
        seconds: float,
        turnover: Seconds,
        popular: list[Numbers],
        turns: int,
    ) -> None:
        kind = self.kind
        at = since + self.random.uniform(0, seconds)
        # Some callers have the new version an hour earlier or later than others.
        version = int(at > turnover[template] + self.random.normal(0, 1_800))
        tenant = template * kind.tenants_each + int(self.random.zipf(1.7) - 1) % kind.tenants_each
        self.sessions += 1
        place = (self.sessions, tenant, template // 3, tenant % kind.scopes, template, version)
        prompt = _joined(_BEGIN, self.texts[template][version])
        for turn in range(turns):
            asked = self.tokens(self.length(4, 600))
            if turn == 0 and self.random.random() < kind.popular_share:
                asked = popular[int(self.random.integers(len(popular)))]
            prompt = _joined(prompt, _USER, asked, _ASSISTANT)
            for _ in range(1 + int(self.random.random() < kind.retried_share)):
                self.rows.append((at, *place))
                self.prompts.append(prompt)
            prompt = _joined(prompt, self.tokens(self.length(10, 400)))
            at += self.random.uniform(5, 120)

    def world(self) -> World:
        order = np.argsort([row[0] for row in self.rows], kind="stable")
        columns = list(zip(*(self.rows[place] for place in order.tolist()), strict=True))
        numbers = [np.array(column, np.int64) for column in columns[1:]]
        session, tenant, route, scope, template, version = numbers
        prompts = [self.prompts[place] for place in order.tolist()]
        return World(
            chains=_chains(prompts, scope),
            started=np.array(columns[0], np.float64),
            session=session,
            tenant=tenant,
            route=route,
            scope=scope,
            prompt_tokens=np.array([len(prompt) for prompt in prompts], np.int64),
            template=template,
            version=version,
        )


def _joined(*parts: Numbers) -> Numbers:
    return np.concatenate(parts)


def made(kind: Kind, seed: int) -> World:
    """One day; every template changes its version between 30 % and 70 % of it."""
    maker = _Maker(kind, np.random.default_rng(seed))
    maker.draw_templates()
    turnover = maker.random.uniform(0.3, 0.7, kind.templates) * DAY_SECONDS
    maker.draw_traffic(0.0, DAY_SECONDS, turnover)
    return maker.world()


def days(kind: Kind, seed: int, count: int) -> list[World]:
    """Days of the same templates, without a new version, other callers asking other things."""
    maker = _Maker(kind, np.random.default_rng(seed))
    maker.draw_templates()
    never = np.full(kind.templates, np.inf)
    found = []
    for day in range(count):
        maker.rows, maker.prompts = [], []
        maker.draw_traffic(day * DAY_SECONDS, DAY_SECONDS, never)
        found.append(maker.world())
    return found


_RANDOM = np.random.default_rng(20_261_130)
_PLACES = _RANDOM.integers(1, 1 << 63, GRAIN_TOKENS, np.uint64) * np.uint64(2) + np.uint64(1)
_DEPTHS = _RANDOM.integers(1, 1 << 63, _LONGEST_BLOCKS, np.uint64) * np.uint64(2) + np.uint64(1)
_ROOTS = _RANDOM.integers(1, 1 << 63, 1_000, np.uint64)


def _chains(prompts: list[Numbers], scope: Numbers) -> Chains:
    """Names of whole blocks; of a block and all before it, scope included, by a running sum."""
    names, contents, lengths = [], [], []
    for tokens, root in zip(prompts, _ROOTS[scope].tolist(), strict=True):
        whole = len(tokens) // GRAIN_TOKENS
        blocks = tokens[: whole * GRAIN_TOKENS].astype(np.uint64).reshape(whole, GRAIN_TOKENS)
        content: Names = blocks @ _PLACES
        chain = np.cumsum(content * _DEPTHS[:whole], dtype=np.uint64) ^ np.uint64(root)
        names.append(chain)
        contents.append(content)
        lengths.append(whole)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Chains(np.concatenate(names), starts, GRAIN_TOKENS, np.concatenate(contents))


def adjusted_rand_index(known: Numbers, found: Numbers) -> float:
    """How far two partitions agree beyond chance: 1 the same, 0 as chance has it (Hubert and
    Arabie). Two partitions that can only agree count as 1."""
    _, first = np.unique(known, return_inverse=True)
    _, second = np.unique(found, return_inverse=True)
    table = np.zeros((first.max() + 1, second.max() + 1), np.int64)
    np.add.at(table, (first, second), 1)
    both, rows, columns = (_pairs(counts) for counts in (table, table.sum(1), table.sum(0)))
    expected = rows * columns / _pairs(np.array([len(known)]))
    most = (rows + columns) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


def _pairs(counts: Numbers) -> float:
    return float((counts * (counts - 1) // 2).sum())
