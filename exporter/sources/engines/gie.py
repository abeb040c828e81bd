"""The endpoint picker (EPP) of the Gateway API Inference Extension, up to v1.5.

Read from source at v1.5.0; the picker's code lives in llm-d now (`llm_d`). It counts prompt and
cached tokens of the usage in answers, as histograms whose sums are read. Where an engine
reports no cached count it writes 0, so that 0 % may mean "not reported". Its `prefix_indexer_*`
figures are predictions: a distribution of ratios, and characters.
"""

from exporter.sources.engines.mapping import Engine, Row

_FINISH = "finish/once/tokens"

ROWS = (
    Row(
        "prompt_tokens", "counter", "tokens", ("inference_objective_input_tokens_sum",),
        "prompt tokens of the usage in answers", provenance=_FINISH,
        remedy="no series before the first answer with usage",
    ),
    Row(
        "prompt_tokens", "counter", "tokens", ("inference_model_input_tokens_sum",),
        "the name before 1.0", provenance=_FINISH,
    ),
    Row(
        "cached_tokens", "counter", "tokens", ("inference_objective_prompt_cached_tokens_sum",),
        "cached tokens of the same usage; 0 where the engine does not report them",
        provenance=_FINISH, expected=False,
        remedy="vLLM needs --enable-prompt-tokens-details, SGLang --enable-cache-report",
    ),
    Row(
        "output_tokens", "counter", "tokens", ("inference_objective_output_tokens_sum",),
        "generated tokens of the usage in answers", expected=False,
    ),
    Row(
        "finished_requests", "counter", "requests", ("inference_objective_request_total",),
        "requests picked for", expected=False,
    ),
    Row(
        "running_requests", "gauge", "requests", ("inference_objective_running_requests",),
        "under way", expected=False,
    ),
)  # fmt: skip

SKIPPED = {
    "inference_extension_prefix_indexer_hit_ratio": "a distribution of predicted ratios",
    "inference_extension_prefix_indexer_hit_bytes": "predicted, and in characters",
    "inference_extension_prefix_indexer_size": "the picker's own index",
    "inference_pool_average_": "means over replicas of any size",
    "inference_objective_": "latencies and sizes no figure uses",
    "inference_model_": "latencies and sizes no figure uses",
}

GIE = Engine(
    name="gie",
    title="Gateway API Inference Extension, endpoint picker",
    versions="1.5.0",
    observer="router",
    rows=ROWS,
    skipped=SKIPPED,
    marks=("inference_objective_", "inference_model_", "inference_extension_"),
    model_labels=("target_model_name", "model_name"),
    notice="0 cached tokens may mean that the engines behind it do not report them",
)
