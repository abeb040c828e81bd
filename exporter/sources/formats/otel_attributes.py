"""Names of span attributes: which hold what we read, and which may be kept at all.

Spans carry prompts and answers in attributes. So only short values that stand alone are ever
read out of a request, and none whose name says that somebody's words are in it; the rest is
gone before a row exists. What is kept beside the fields below is for the user's naming rules.
"""

from functools import lru_cache

from exporter.sources.name_checks import forbidden

Scalar = str | int | float | bool

# Longer texts are no names or ids.
TEXT_LIMIT = 256
_KEY_LIMIT = 128

# Per field the first that holds a value wins: the current names of the GenAI convention, then
# its older ones, then those of engines and libraries.
RESPONSE_ID = ("gen_ai.response.id",)
REQUEST_ID = (*RESPONSE_ID, "gen_ai.request.id")
SESSION = ("gen_ai.conversation.id", "session.id")
PROVIDER = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system")
MODEL = (
    "gen_ai.response.model",
    "gen_ai.request.model",
    "llm.model_name",
    "llm.response.model",
    "llm.request.model",
)
TEMPLATE = ("gen_ai.prompt.name",)
TEMPLATE_VERSION = ("gen_ai.prompt.version", "llm.prompt_template.version")
TENANT = ("user.id", "enduser.id")
PROMPT_TOKENS = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "llm.token_count.prompt",
    "llm.usage.prompt_tokens",
)
# The two whose definition says that the prompt includes them.
INCLUDED_CACHED = (
    "gen_ai.usage.cache_read.input_tokens",
    "llm.token_count.prompt_details.cache_read",
)
CACHED_TOKENS = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.cached_tokens",
    "gen_ai.usage.input_cached_tokens",
    "gen_ai.usage.cached_input_tokens",
    "gen_ai.usage.details.cache_read_tokens",
    "llm.token_count.prompt_details.cache_read",
    "llm.usage.cache_read_input_tokens",
)
CACHE_WRITE_TOKENS = (
    "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens",
    "gen_ai.usage.cache_write_input_tokens",
    "gen_ai.usage.details.cache_write_tokens",
    "llm.token_count.prompt_details.cache_write",
    "llm.usage.cache_creation_input_tokens",
)
OUTPUT_TOKENS = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.token_count.completion",
    "llm.usage.completion_tokens",
)
TOTAL_TOKENS = ("gen_ai.usage.total_tokens", "llm.token_count.total", "llm.usage.total_tokens")
CHOICES = ("gen_ai.request.choice.count", "gen_ai.request.n")
CLIENT_TTFT = "gen_ai.response.time_to_first_chunk"
ENGINE_TTFT = "gen_ai.latency.time_to_first_token"
QUEUE = "gen_ai.latency.time_in_queue"
PREFILL = "gen_ai.latency.time_in_model_prefill"
STREAM = ("gen_ai.request.stream", "llm.is_streaming", "gen_ai.request.is_stream")

# What says which spans count, where they were made and how they ended.
OPERATION = "gen_ai.operation.name"
OPENINFERENCE = "openinference.span.kind"
TRACELOOP = "traceloop.span.kind"
REQUEST_TYPE = "llm.request.type"
FINISH_REASONS = "gen_ai.response.finish_reasons"
ERROR = "error.type"
PLACE = ("service.instance.id", "k8s.pod.name", "host.name")
SERVER = ("server.address", "server.port")
SERVICE = "service.name"
HEADER = "http.request.header."

_READ = frozenset({
    *REQUEST_ID, *SESSION, *PROVIDER, *MODEL, *TEMPLATE, *TEMPLATE_VERSION, *TENANT,
    *PROMPT_TOKENS, *CACHED_TOKENS, *CACHE_WRITE_TOKENS, *OUTPUT_TOKENS, *TOTAL_TOKENS, *CHOICES,
    CLIENT_TTFT, ENGINE_TTFT, QUEUE, PREFILL, *STREAM, OPERATION, OPENINFERENCE, TRACELOOP,
    REQUEST_TYPE, FINISH_REASONS, ERROR, *PLACE, *SERVER, SERVICE,
})  # fmt: skip
# Families of names under which instrumentations put words of people, models and tools, or what
# tells nobody where a request came from.
_NOT_KEPT = (
    "gen_ai.prompt", "gen_ai.completion", "gen_ai.input", "gen_ai.output", "gen_ai.system_",
    "gen_ai.tool", "gen_ai.content", "llm.prompt", "llm.completion", "llm.input", "llm.output",
    "llm.function", "llm.tools", "llm.invocation", "input", "output", "tool", "retrieval",
    "document", "embedding", "reranker", "message", "exception", "traceloop.entity", "ai.",
    "langfuse.observation", "langfuse.trace", "db.", "process.", "telemetry.", "code.",
)  # fmt: skip


@lru_cache(4096)
def _may_keep(name: str) -> bool:
    if name in _READ:
        return True
    last = name.rpartition(".")[2]
    return not (name.lower().startswith(_NOT_KEPT) or forbidden(name) or forbidden(last))


def may_keep(name: object) -> bool:
    """Whether an attribute of this name may be read out of a request."""
    return isinstance(name, str) and 0 < len(name) <= _KEY_LIMIT and _may_keep(name)


def may_list(name: str) -> bool:
    """Whether the attribute is a list that we read: of reasons, or of values of one header."""
    return name == FINISH_REASONS or name.startswith(HEADER)


def kept(name: str, value: Scalar) -> Scalar | None:
    """The value as it is kept: a name we read is cut short, any other long text left out."""
    if not isinstance(value, str):
        return value
    if len(value) > TEXT_LIMIT and name not in _READ:
        return None
    return value[:TEXT_LIMIT]
