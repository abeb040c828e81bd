"""The invented fleet of the demo: what it serves, for whom, when, and what goes wrong.

Nothing here is a result. These tables say what is *sent*; which tokens come from cache follows
from sending it through the cache model of `replay.blocks`. Lengths are tokens, times seconds.
"""

from bisect import bisect
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate

MODEL = "demo-8b"
BLOCK_TOKENS = 64
KV_BYTES_PER_TOKEN = 131_072  # 32 layers x 8 KV heads x 256 values x 2 bytes: an 8B model
REPLICA_BLOCKS = 256
RESTARTED_BLOCKS = 176  # the restarted replica comes back with less memory for KV
CONTEXT_TOKENS = 8_192  # a session ends before it outgrows the model
PREFILL_TOKENS_PER_SECOND = (1_900.0, 1_850.0, 1_950.0, 1_500.0)  # one per replica
DECODE_TOKENS_PER_SECOND = 16.0  # of a request that runs alone
DECODE_SLOWDOWN = 0.25  # for every further running request

GATEWAY = "demo-gateway"
LEGACY_GATEWAY = "demo-legacy-gateway"  # does not report cached tokens

# Relative load by hour of the fleet's day: people at work, people and agents in the evening.
# The fleet's clock is set so that the demo's end is late in its afternoon, whatever the time
# is where it runs: live traffic then rises into a peak instead of starting in a dead night.
END_HOUR = 17.5
OFFICE_HOURS = (
    *(0.15, 0.1, 0.08, 0.06, 0.06, 0.1, 0.25, 0.55, 0.9, 1.1, 1.15, 1.1),
    *(0.95, 1.05, 1.15, 1.1, 1.0, 0.8, 0.7, 0.7, 0.65, 0.5, 0.3, 0.2),
)
EVENING_HOURS = (
    *(0.25, 0.15, 0.1, 0.06, 0.06, 0.08, 0.12, 0.2, 0.3, 0.35, 0.4, 0.4),
    *(0.4, 0.4, 0.45, 0.55, 0.8, 1.4, 2.4, 3.3, 3.4, 2.6, 1.2, 0.5),
)
WEEKEND_OFFICE, WEEKEND_EVENING = 0.35, 0.9


@dataclass(frozen=True)
class Template:
    """One prompt template: system text, then a document of the tenant, then the conversation."""

    name: str
    route: str
    version: str
    share: float  # of all sessions at equal load
    system_tokens: int
    user_tokens: int
    output_tokens: int
    document_tokens: int = 0
    documents_per_tenant: int = 1
    turns: float = 1.0  # mean per session
    think_seconds: float = 60.0
    evening: bool = False
    # The current time stands in front, in a header of a block: no two prompts share one.
    clock: bool = False
    stream: bool = True
    source: str = GATEWAY
    next_version: str | None = None  # from the version change on; a greeting by name in front


TEMPLATES = (
    Template(
        "assistant", "chat", "v3", 20, 900, 110, 300, turns=5, think_seconds=100, evening=True
    ),
    Template("translate", "chat", "v2", 9, 450, 420, 450),
    Template(
        *("support-desk", "support", "v7", 22, 1_500, 90, 220),
        document_tokens=900,
        turns=4,
        think_seconds=110,
        next_version="v8",
    ),
    Template("triage", "support", "v2", 14, 850, 160, 40, clock=True),
    Template(
        *("agent-tools", "agent", "v12", 9, 2_600, 320, 260),
        turns=8,
        think_seconds=9,
        evening=True,
    ),
    Template(
        *("code-review", "agent", "v2", 8, 800, 600, 420),
        document_tokens=1_500,
        documents_per_tenant=3,
        turns=2,
        think_seconds=45,
    ),
    Template(
        *("rag-answer", "search", "v5", 24, 520, 90, 240),
        document_tokens=1_100,
        documents_per_tenant=12,
        evening=True,
    ),
    Template("summary", "documents", "v1", 9, 260, 2_300, 280),
    Template("extract-invoice", "documents", "v4", 16, 1_300, 400, 90, stream=False),
    Template(
        *("batch-labels", "batch", "v1", 18, 700, 300, 30),
        evening=True,
        stream=False,
        source=LEGACY_GATEWAY,
    ),
)

TENANTS = (
    *("alder", "birch", "cedar", "dogwood", "elm", "fir", "ginkgo", "hazel", "ivy", "juniper"),
    *("kauri", "larch", "maple", "nettle", "oak", "pine", "quince", "rowan", "spruce", "tamarisk"),
    *("umbra", "viburnum", "willow", "xylia", "yew", "zelkova", "acacia", "beech", "chestnut"),
    *(
        "damson",
        "ebony",
        "fig",
        "gorse",
        "holly",
        "iroko",
        "jasmine",
        "katsura",
        "linden",
        "myrtle",
    ),
    'O\'Hara "R&D" \\ labs',  # names are other people's: quotes and a backslash must survive
)
TENANT_WEIGHTS = tuple(accumulate(1 / (rank + 1) ** 1.1 for rank in range(len(TENANTS))))

# Tenants who keep what they leave in the cache to themselves: each gives a salt of its own with
# every request, and asks the same templates as everybody.
SALTED_TENANTS = ("cedar", "dogwood")

ERROR_RATIO = 0.006  # of attempts the gateway gives up on before they reach a replica
CANCELLED_RATIO = 0.015  # of streamed answers the caller stops reading


@dataclass(frozen=True)
class Story:
    """When the two incidents happen, in Unix seconds, and to whom.

    A new version of one template puts a greeting by name in front of everything. One replica is
    drained and restarted, and comes back with a smaller cache.
    """

    version_change: float
    restart: float
    restarted_replica: int = 2

    @classmethod
    def between(cls, start: float, end: float) -> "Story":
        """Place both early in an afternoon: eight and two days before the end of five weeks."""
        days = (end - start) / 86_400
        two_o_clock = end - (END_HOUR - 14) * 3_600 + 260
        return cls(
            version_change=two_o_clock - round(0.23 * days) * 86_400,
            restart=two_o_clock - round(0.06 * days) * 86_400,
        )


def salt_number(tenant: str) -> int:
    """Which salt the requests of a tenant carry, from 1 on; 0 for none."""
    return SALTED_TENANTS.index(tenant) + 1 if tenant in SALTED_TENANTS else 0


def salt_text(number: int) -> str | None:
    """The salt as requests and KV-cache events carry it, None for 0. Rows name its scope only."""
    return f"salt of {SALTED_TENANTS[number - 1]}" if number else None


class LoadCurve:
    """Session starts per second by template, over the week; scaled to a number of requests.

    `end` is the Unix time at which the fleet's clock shows `END_HOUR`.
    """

    def __init__(self, requests_per_second: float, end: float) -> None:
        self._offset_seconds = END_HOUR * 3_600 - end % 86_400
        weekly = [_weights_at(minute * 60.0) for minute in range(7 * 24 * 60)]
        turns = [_expected_turns(template) for template in TEMPLATES]
        requests = sum(
            weight * number
            for weights in weekly
            for weight, number in zip(weights, turns, strict=True)
        )
        scale = requests_per_second * len(weekly) / requests
        self._cumulative = [list(accumulate(w * scale for w in weights)) for weights in weekly]
        self.peak_sessions_per_second = max(line[-1] for line in self._cumulative)

    def sessions_per_second(self, moment: float) -> float:
        """Return the rate of session starts at a Unix time."""
        return self._line(moment)[-1]

    def template(self, moment: float, draw: float) -> Template:
        """Choose the template of a session that starts at `moment`; `draw` is in [0, 1)."""
        line = self._line(moment)
        return TEMPLATES[bisect(line, draw * line[-1])]

    def _line(self, moment: float) -> list[float]:
        minute = int((moment + self._offset_seconds) // 60)
        return self._cumulative[minute % len(self._cumulative)]


def _expected_turns(template: Template) -> float:
    # Another turn follows unless the session is over, was cancelled, or fills the context.
    go_on = (1 - 1 / template.turns) * (1 - CANCELLED_RATIO * template.stream)
    per_turn = template.user_tokens + template.output_tokens
    room = CONTEXT_TOKENS - template.system_tokens - template.document_tokens - 3 * per_turn
    most = max(1, round(room / per_turn))
    return sum(go_on**turn for turn in range(most))


def _weights_at(moment: float) -> list[float]:
    # Minute 0 of the table is the start of the Unix epoch, a Thursday.
    weekend = datetime.fromtimestamp(moment, UTC).weekday() >= 5
    office = _interpolate(OFFICE_HOURS, moment) * (WEEKEND_OFFICE if weekend else 1)
    evening = _interpolate(EVENING_HOURS, moment) * (WEEKEND_EVENING if weekend else 1)
    return [t.share * (evening if t.evening else office) for t in TEMPLATES]


def _interpolate(hours: tuple[float, ...], moment: float) -> float:
    position = moment / 3_600 % 24
    hour = int(position)
    return hours[hour] + (hours[(hour + 1) % 24] - hours[hour]) * (position - hour)
