"""Where an engine sends no KV-cache events: which flag makes it, and which setting reads them."""

from dashboard.answers import Answers
from dashboard.figures.rows import Rows

_VLLM = (
    '--kv-events-config \'{"enable_kv_cache_events": true, "publisher": "zmq", '
    '"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5657"}\''
)
_SGLANG = (
    '--kv-events-config \'{"publisher": "zmq", "endpoint": "tcp://*:5557", '
    '"replay_endpoint": "tcp://*:5657"}\''
)
# Engine -> (its name for people, the flag of its server). Others send none that are read here.
FLAGS = {"vllm": ("vLLM", _VLLM), "sglang": ("SGLang", _SGLANG)}
SETTING = (
    "events:\n  - endpoint: tcp://{host}:5557  # on the host of every scraped engine\n"
    "    replay_endpoint: tcp://{host}:5657"
)


def told_replicas(answers: Answers) -> set[str]:
    """Replicas that KV-cache events ever told of."""
    return {str(row["replica"]) for row in answers.rows("block_streams")}


def silent(answers: Answers) -> Rows:
    """Scraped engines that could send events, and of which none ever told."""
    told = told_replicas(answers)
    return [
        row for row in answers.rows("replicas")
        if row.get("engine") in FLAGS and str(row["replica"]) not in told
    ]  # fmt: skip


def flags(rows: Rows) -> list[tuple[str, str]]:
    """(engine, flag) for every kind of engine among the rows that can send events; both that can
    where none is known."""
    found = {str(row["engine"]) for row in rows} & set(FLAGS)
    return [FLAGS[engine] for engine in FLAGS if engine in found or not found]
