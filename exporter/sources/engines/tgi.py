"""The metric page of Hugging Face's text-generation-inference, at /metrics.

Read against v3.3.7 (in maintenance). It reuses prefixes by default where the attention backend
allows, but nothing reports it: no metric, no field of a response; only a log line per
allocation. So the page tells that the server lives and how much it served, and the hit ratio is
not observable from anything but prompts seen on the way (a tap).
"""

from exporter.sources.engines.mapping import Engine, Row

ROWS = (
    Row(
        "prompt_tokens", "counter", "tokens", ("tgi_request_input_length_sum",),
        "prompt length as the router counted it, per accepted request",
        provenance="finish/once/tokens", expected=False,
    ),
    Row(
        "output_tokens", "counter", "tokens", ("tgi_request_generated_tokens_sum",),
        "generated tokens", expected=False,
    ),
    Row(
        "finished_requests", "counter", "requests", ("tgi_request_success_total",),
        "requests answered",
    ),
    Row(
        "queue_seconds", "counter", "seconds", ("tgi_request_queue_duration_sum",),
        "time in the queue", expected=False,
    ),
    Row(
        "running_requests", "gauge", "requests", ("tgi_batch_current_size",), "being served",
        expected=False,
    ),
    Row(
        "waiting_requests", "gauge", "requests", ("tgi_queue_size",), "queued", expected=False,
    ),
)  # fmt: skip

SKIPPED = {
    "tgi_batch_": "batching, not reuse",
    "tgi_request_": "durations and counts no figure uses",
}

TGI = Engine(
    name="tgi",
    title="Hugging Face text-generation-inference",
    versions="3.3.7",
    rows=ROWS,
    skipped=SKIPPED,
    marks=("tgi_",),
    notice="prefix reuse is not observable: TGI reports cached tokens in no metric and no response",
)
