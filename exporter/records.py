"""The vocabulary: one request, and one interval of one engine replica, as typed models.

Token counts are whole tokens, times are seconds, time stamps are UTC. `None` always means
"not reported"; it is never the same as 0.
"""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Outcome = Literal["miss", "partial", "hit", "unknown"]
PromptBasis = Literal["inclusive", "exclusive", "assumed", "unknown"]
ReplicaRole = Literal["unified", "prefill", "decode"]
HashScope = Literal["global", "engine", "trace"]
Side = Literal["gateway", "engine"]
Status = Literal["ok", "error", "cancelled", "incomplete"]
Observer = Literal["engine", "kv_store", "router", "gateway"]
Origin = Literal["scrape", "prometheus", "backfill", "file"]
Tier = Literal["device", "host", "disk", "remote"]
TtftPoint = Literal["client", "gateway", "engine_arrival", "engine_scheduled"]

TIERS: tuple[Tier, ...] = ("device", "host", "disk", "remote")
OUTCOMES: tuple[Outcome, ...] = ("miss", "partial", "hit", "unknown")


class Request(BaseModel):
    """One attempt of one request, as the store keeps it.

    The field names are the columns of the `requests` table, in order. `prompt_tokens` is
    inclusive: every input token, cached or not. A row counts as *reported* when both
    `prompt_tokens` and `cached_tokens` are known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    ts: datetime = Field(description="start of the request at the measuring point, UTC")
    arrived: datetime = Field(description="when we received the row, UTC")
    source: str = Field(description="configured stream name, never a path")
    source_format: str = Field(description="format whose mapping read the row")
    request_id: str | None = Field(default=None, description="id to join and de-duplicate by")
    attempt: int = Field(default=1, description="1-based attempt of the request")
    session: str | None = None
    turn: int | None = Field(default=None, description="1-based turn of the session")
    trace_id: str | None = None
    response_id: str | None = Field(default=None, description="id the answer carries")
    side: Side | None = Field(default=None, description="where it was written, for joining")
    replica: str | None = Field(default=None, description="engine process that served it")
    replica_role: ReplicaRole | None = None
    provider: str | None = None
    model: str | None = Field(default=None, description="model that answered, else requested")
    model_fingerprint: str | None = Field(default=None, description="weight version")
    route: str | None = None
    template: str | None = None
    template_version: str | None = None
    tenant: str | None = None
    scope: str | None = Field(default=None, description="keyed hash of the trust boundary")
    adapter: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    cached_device: int | None = None
    cached_host: int | None = None
    cached_disk: int | None = None
    cached_remote: int | None = None
    cache_write_tokens: int | None = None
    cache_write_5m: int | None = None
    cache_write_1h: int | None = None
    cache_write_other: int | None = None
    output_tokens: int | None = None
    ttft_seconds: float | None = None
    ttft_point: TtftPoint | None = None
    queue_seconds: float | None = None
    prefill_seconds: float | None = None
    e2e_seconds: float | None = None
    stream: bool | None = None
    status: Status = "ok"
    outcome: Outcome = "unknown"
    ineligible_reason: str | None = Field(
        default=None,
        description="why no prefix cache could serve it: lookup_skipped, caching_off,"
        " response_cache, no_generation",
    )
    prompt_basis: PromptBasis = "assumed"
    block_size: int | None = Field(default=None, description="tokens per block")
    block_hashes: list[int] | None = Field(default=None, description="chain, first block first")
    content_hashes: list[int] | None = Field(
        default=None, description="the same blocks, each named by its own tokens only"
    )
    piece_hashes: list[int] | None = Field(
        default=None, description="pieces cut where the content says so, by their own tokens"
    )
    piece_lengths: list[int] | None = Field(
        default=None, description="of each piece in tokens, or in bytes where the text was cut"
    )
    text_bytes: int | None = Field(
        default=None,
        description="length of the text whose chunks of bytes the hashes name; NULL: of tokens",
    )
    hash_scope: HashScope | None = None
    hash_key_id: str | None = None
    flags: list[str] | None = Field(default=None, description="data-quality flags")


class EngineSample(BaseModel):
    """What one program's counters rose by between two scrapes, and its gauges at the second.

    `observer` says who counted. Only an engine's own samples enter engine figures: a KV store,
    a router or a gateway counts the same prompts once more.

    Increases belong to the interval (`since`, `ts`]. They are taken per full label set first
    and then summed. The first scrape of a process is a *baseline*: its increases are None.
    A metric the page did not have is None, never 0.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: str = Field(description="configured name or address of the page")
    replica: str = Field(description="one engine process; data-parallel ranks apart")
    engine: str = Field(description="whose table read the page: vllm, sglang, lmcache ...")
    observer: Observer = "engine"
    exported_by: str | None = Field(
        default=None, description="program on whose page the engine's series were found"
    )
    version: str | None = None
    model: str | None = None
    tenant: str | None = None
    route: str | None = None
    role: ReplicaRole = "unified"
    since: datetime | None = Field(default=None, description="None on a baseline")
    ts: datetime
    reset: bool = Field(default=False, description="the process restarted inside the interval")
    gap: bool = Field(default=False, description="scrapes were missed inside the interval")
    provenance: str | None = Field(
        default=None, description="{lookup|finish}/{attempt|once}/{tokens|blocks|objects|requests}"
    )
    origin: Origin = Field(
        default="scrape",
        description="how its page came: polled by us, read from a Prometheus as it goes or as"
        " history, or recorded in files",
    )
    origin_name: str | None = Field(default=None, description="address of that Prometheus")

    # increases of counters
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    cached_device: int | None = None
    cached_host: int | None = None
    cached_disk: int | None = None
    cached_remote: int | None = None
    lookup_tokens: int | None = Field(default=None, description="tokens looked up locally")
    lookup_hit_tokens: int | None = None
    external_lookup_tokens: int | None = None
    external_hit_tokens: int | None = None
    output_tokens: int | None = None
    finished_requests: int | None = None
    preemptions: int | None = None
    lookup_count: int | None = Field(default=None, description="look-ups that are no tokens")
    hit_count: int | None = None
    skipped_count: int | None = Field(
        default=None, description="of the same, those that could not be looked up at all"
    )
    count_unit: str | None = Field(default=None, description="what the three count")
    evicted: dict[str, int] | None = Field(default=None, description="{tier}/{unit} -> lost there")
    demoted: dict[str, int] | None = Field(
        default=None, description="{tier}/{unit} -> moved to that lower tier"
    )
    offload_tokens: dict[str, int] | None = Field(
        default=None, description="{store|load}/{tier} -> written to or brought back from it"
    )
    offload_bytes: dict[str, int] | None = None
    offload_seconds: dict[str, float] | None = None
    offload_dropped: dict[str, int] | None = Field(
        default=None, description="{tier} -> tokens that were meant for it and not written"
    )
    prefill_seconds: float | None = None
    queue_seconds: float | None = None
    ttft_sum_seconds: float | None = None
    ttft_buckets: dict[float, int] | None = Field(
        default=None, description="upper bound in seconds -> cumulative increase; inf included"
    )
    block_lifetime_sum_seconds: float | None = None
    block_lifetime_buckets: dict[float, int] | None = Field(
        default=None, description="age of sampled blocks when reused for others; likewise"
    )
    block_idle_sum_seconds: float | None = None
    block_idle_buckets: dict[float, int] | None = Field(
        default=None, description="time since their last use then"
    )
    block_reuse_gap_sum_seconds: float | None = None
    block_reuse_gap_buckets: dict[float, int] | None = Field(
        default=None, description="time between two uses of sampled blocks"
    )

    # gauges and facts
    running_requests: int | None = None
    waiting_requests: int | None = None
    kv_usage_ratio: float | None = Field(default=None, description="share held by running requests")
    kv_running_tokens: int | None = None
    kv_cached_tokens: int | None = None
    kv_free_tokens: int | None = None
    kv_capacity_tokens: int | None = None
    block_size: int | None = None
    caching_enabled: bool | None = None
    awake: bool | None = Field(default=None, description="False: asleep, its cache is cleared")
    tier_used: dict[str, int] | None = Field(default=None, description="{tier}/{unit} -> in use")
    tier_capacity: dict[str, int] | None = None
