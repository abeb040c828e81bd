"""A local tokenizer beside a real vLLM: the same ids for every prompt, also for odd ones."""

import importlib.util
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from exporter.prompts.asked import asked
from exporter.prompts.settings import TokenizerSettings
from exporter.prompts.tokenizer import ModelTokenizer
from exporter.sources.formats import openai
from tests.engine.live import ENGINE, ENGINE_DIR, MODEL, needs_engine, running_vllm
from tests.log_path import CAPTURES

pytestmark = needs_engine

# Tools, calls and their answers, as templates of models with tools write them.
TEMPLATE = """{{- bos_token }}
{%- if tools %}
    {{- '<|im_start|>system\\n# Tools' }}
    {%- for tool in tools %}
        {{- '\\n' + tool | tojson }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content %}
        {{- message.content }}
    {%- endif %}
    {%- for call in message.tool_calls or [] %}
        {{- '\\n<call>' + call.function.name + ' ' + call.function.arguments | tojson }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
TOOL = {"function": {"parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
                     "name": "weather", "description": "Of a city: sun & rain"},
        "type": "function"}  # fmt: skip
CALL = {"id": "c1", "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Köln", "days": 2}'}}  # fmt: skip
PARTS = [{"type": "text", "text": "one "}, {"type": "text", "text": " two\n"}]
REQUESTS: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "  Grüße, 你好 🙂 <|im_end|> \t"}]},
    {"messages": [{"role": "system", "content": ""}, {"role": "user", "content": PARTS}]},
    {"messages": [{"role": "developer", "content": "Be brief"}, {"role": "user", "content": "a"}]},
    {"messages": [{"role": "user", "content": "Say A"}, {"role": "assistant", "content": "A and"}],
     "continue_final_message": True, "add_generation_prompt": False},
    {"messages": [{"role": "user", "content": "a"}], "add_generation_prompt": False},
    {"messages": [{"role": "user", "content": "a"}], "add_special_tokens": True},
    {"messages": [{"role": "user", "content": "Rain?"},
                  {"role": "assistant", "content": None, "tool_calls": [CALL]},
                  {"role": "tool", "tool_call_id": "c1", "content": PARTS}]},
    {"messages": [{"role": "user", "content": "Rain?"}], "tools": [TOOL]},
    {"prompt": "the first\n\n  then 1234567890 more"},
    {"prompt": "no token in front", "add_special_tokens": False},
]  # fmt: skip


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ModelTokenizer]]:
    """A server with the template, and the tokenizer of the same files."""
    folder = tmp_path_factory.mktemp("tokenizer")
    template = folder / "chat.jinja"
    template.write_text(TEMPLATE)
    with running_vllm(folder, "--chat-template", str(template)) as address:
        files = TokenizerSettings(tokenizer=ENGINE_DIR / "models" / MODEL, chat_template=template)
        yield address, ModelTokenizer(files)


def local_ids(tokenizer: ModelTokenizer, request: dict[str, Any]) -> list[int]:
    assert openai.FORMAT.prompts is not None
    prompt = asked({"request": request}, openai.FORMAT.prompts)
    assert prompt is not None
    return tokenizer.token_ids(prompt, datetime.now(UTC))


def engine_ids(address: str, request: dict[str, Any]) -> list[int]:
    reply = httpx.post(f"{address}/tokenize", json={"model": MODEL, **request}, timeout=60)
    assert reply.status_code == 200, reply.text
    ids: list[int] = reply.json()["tokens"]
    return ids


@pytest.mark.parametrize("request_body", REQUESTS, ids=lambda body: json.dumps(body)[:40])
def test_ids_are_those_of_the_engine(
    engine: tuple[str, ModelTokenizer], request_body: dict[str, Any]
) -> None:
    address, tokenizer = engine
    assert local_ids(tokenizer, request_body) == engine_ids(address, request_body)


def _workload() -> ModuleType:
    """What was sent when the captures were made; the same prompts every time."""
    spec = importlib.util.spec_from_file_location("workload", ENGINE / "workload.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("capture", "plan"),
    [("main", "mixed"), ("evict", "evict"), ("restart", "mixed"), ("external", "repeat"),
     ("dp2", "mixed"), ("defaults", "mixed"), ("otel", "mixed")],
)  # fmt: skip
def test_ids_of_every_recorded_prompt(capture: str, plan: str) -> None:
    """Prompts rendered by the model's own template; ids as vLLM gave them on the day."""
    model = ENGINE_DIR / "models" / MODEL
    if not (model / "tokenizer.json").exists():
        pytest.skip("the model is built when an engine is first started")
    tokenizer = ModelTokenizer(TokenizerSettings(tokenizer=model))
    path = Path(CAPTURES / "vllm-0.32.0" / capture / "requests.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    sent = [each for _, requests, _ in _workload().PLANS[plan]() for each in requests]
    told = [row for row in rows if row["prompt_token_ids"] and row["index"] < len(sent)]
    assert len(told) >= 6
    for row in told:
        request = {"messages": sent[row["index"]]["messages"]}
        assert local_ids(tokenizer, request) == row["prompt_token_ids"]
