"""The LiteLLM proxy's own metric page, at /metrics/ with `callbacks: ["prometheus"]`.

Recorded from 1.108.7. Counters are per key, team, user and model, and a cached count is only
counted where the provider reported one above 0. A team with prompt tokens and no cached series
is therefore unknown, never 0 %. Labels without a value hold the text "None".

The proxy has a *response* cache too. An answer from it makes no model call, yet the page counts
its replayed usage, prompt and cached tokens alike. How many of the tokens were replayed cannot
be told, so an interval with such hits has no counts for that team and model (the request log
tells the replayed ones apart). `litellm_cached_tokens_metric` counts them: no prefix cache figure.
"""

from exporter.sources.engines.mapping import Engine, Fields, Row, counts_aside

_FINISH = "finish/once/tokens"

ROWS = (
    Row(
        "prompt_tokens", "counter", "tokens", ("litellm_input_tokens_metric_total",),
        "prompt tokens of the usage in answers, cached or not", provenance=_FINISH,
    ),
    Row(
        "cached_tokens", "counter", "tokens", ("litellm_input_cached_tokens_metric_total",),
        "cached tokens of the same usage, where the provider reported more than 0",
        provenance=_FINISH, expected=False,
    ),
    Row(
        "cached_tokens", "counter", "tokens",
        ("litellm_provider_cache_read_input_tokens_metric_total",),
        "the same counted by another part of the proxy", provenance=_FINISH, expected=False,
    ),
    Row(
        "offload_tokens/store/remote", "counter", "tokens",
        ("litellm_input_cache_creation_tokens_metric_total",),
        "prompt tokens written to the provider's cache", expected=False,
    ),
    Row(
        "output_tokens", "counter", "tokens", ("litellm_output_tokens_metric_total",),
        "generated tokens of the usage in answers", expected=False,
    ),
    Row(
        "finished_requests", "counter", "requests", ("litellm_requests_metric_total",),
        "calls to a model, answers from the response cache included", expected=False,
    ),
    Row(
        "aside/response_cache_hits", "counter", "requests", ("litellm_cache_hits_metric_total",),
        "answers from the response cache, whose old usage was counted again", expected=False,
    ),
)  # fmt: skip

SKIPPED = {
    "litellm_cached_tokens_metric": "tokens of answers from the response cache, no prefix cache",
    "litellm_cache_misses_metric": "of the response cache",
    "litellm_provider_cache_creation_input_tokens_metric": "the same as input_cache_creation",
    "litellm_total_tokens_metric": "prompt and output tokens together",
    "litellm_spend_metric": "money comes from the request log",
    "litellm_remaining_": "budgets and limits",
    "litellm_deployment_": "health of deployments",
    "litellm_": "latencies, limits and health no figure uses",
}


def _settle(fields: Fields, _names: frozenset[str]) -> None:
    """Where answers were replayed from the response cache, the counts mix old usage with new."""
    if counts_aside(fields).get("response_cache_hits"):
        fields.update(prompt_tokens=None, cached_tokens=None, offload_tokens=None)


LITELLM = Engine(
    name="litellm",
    title="LiteLLM proxy, its own metrics",
    versions="1.108.7",
    recorded="1.108.7",
    observer="gateway",
    rows=ROWS,
    skipped=SKIPPED,
    marks=("litellm_",),
    empty_mark="# TYPE litellm_input_tokens_metric",
    model_labels=("model",),
    tenant_labels=("team_alias", "team", "api_key_alias"),
    # People and keys tell series apart and are kept as nothing else.
    secret_labels=("hashed_api_key", "user", "user_email", "end_user", "client_ip", "user_agent"),
    absent_values=("", "None"),
    settle=_settle,
    remedy='set litellm_settings.callbacks: ["prometheus"]',
)
