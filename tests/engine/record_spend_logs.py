"""Records what a real LiteLLM proxy would write to its database, beside what it logs meanwhile.

    PREFIXSCOPE_LITELLM_DIR=DIR python -m tests.engine.record_spend_logs OUT

The proxy's database client fetches a program of its own when it is installed, so it cannot be had
everywhere. Here the proxy runs as always, with stand-ins for the providers whose counts are known;
its own code builds each row of `LiteLLM_SpendLogs` and what each call adds to the daily tables,
and only the client that would send them on is left out: they are written down instead.
"""

import json
import secrets
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import yaml

from tests.engine.proxy import KEYS, START_SECONDS, proxy_python
from tests.running import free_port, get, running, wait_for

_KEEPER = '''"""Writes down what the proxy's own writer of spend is given."""
import json
from pathlib import Path

from litellm.proxy._types import UserAPIKeyAuth
from litellm.proxy.db.db_spend_update_writer import DBSpendUpdateWriter
from litellm.proxy.hooks.proxy_track_cost_callback import _ProxyDBLogger
from litellm.proxy.spend_tracking.spend_tracking_utils import get_logging_payload
from litellm.proxy.utils import PrismaClient

KEYS = {keys!r}
OUT = Path({out!r})
status_of = PrismaClient.get_request_status


class NoClient:
    def get_request_status(self, payload):
        return status_of(self, payload)


async def whose(request, api_key):
    team = KEYS[api_key]
    user = "user-" + (team or "alone")
    return UserAPIKeyAuth(api_key=api_key, key_alias=team, team_id=team, user_id=user)


async def keep(self, token, user_id, end_user_id, team_id, org_id, kwargs, completion_response,
               start_time, end_time, response_cost, **more):
    row = get_logging_payload(kwargs=kwargs, response_obj=completion_response,
                              start_time=start_time, end_time=end_time)
    row["spend"] = response_cost or 0.0
    for name in ("startTime", "endTime"):
        row[name] = row[name].isoformat()
    if org_id:
        row["organization_id"] = org_id
    if team_id:
        row["team_id"] = team_id
    daily = {{}}
    for kind, entity in (("user", "user"), ("team", "team_id")):
        adds = await self._common_add_spend_log_transaction_to_daily_transaction(
            row, NoClient(), kind)
        if adds is not None and row[entity] is not None:
            daily[kind] = {{kind + "_id": row[entity], **adds}}
    kept = {{"spend_log": row, "payload": kwargs.get("standard_logging_object"), "daily": daily}}
    with OUT.open("a") as file:
        file.write(json.dumps(kept, default=str) + "\\n")
    return True


DBSpendUpdateWriter.update_database = keep
logger = _ProxyDBLogger()
'''

# What each stand-in says it counted: prompt (Anthropic's excludes the other two), cached, written.
OPENAI, ANTHROPIC = (2100, 1536, 0), (21, 17920, 592)


class _Provider(BaseHTTPRequestHandler):
    """Answers as an OpenAI-compatible engine and as Anthropic, streamed where asked."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "fail" in json.dumps(body["messages"]):
            self._send(500, "application/json", '{"error": {"message": "out of order"}}')
        elif self.path.endswith("/v1/messages"):
            self._anthropic(bool(body.get("stream")))
        else:
            self._openai(bool(body.get("stream")))

    def _openai(self, streams: bool) -> None:
        prompt, cached, _ = OPENAI
        usage = {
            "prompt_tokens": prompt, "completion_tokens": 7, "total_tokens": prompt + 7,
            "prompt_tokens_details": {"cached_tokens": cached},
        }  # fmt: skip
        base = {"id": f"chatcmpl-{secrets.token_hex(8)}", "created": 1796000000, "model": "tiny"}
        if not streams:
            choice = {"index": 0, "finish_reason": "stop",
                      "message": {"role": "assistant", "content": "well"}}  # fmt: skip
            answer = {**base, "object": "chat.completion", "choices": [choice], "usage": usage}
            self._send(200, "application/json", json.dumps(answer))
            return
        chunk = {**base, "object": "chat.completion.chunk"}
        word = {"index": 0, "delta": {"role": "assistant", "content": "well"}}
        last = {"index": 0, "delta": {}, "finish_reason": "stop"}
        parts = [
            {**chunk, "choices": [word]}, {**chunk, "choices": [last]},
            {**chunk, "choices": [], "usage": usage},
        ]  # fmt: skip
        text = "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"
        self._send(200, "text/event-stream", text)

    def _anthropic(self, streams: bool) -> None:
        fresh, cached, written = ANTHROPIC
        usage = {
            "input_tokens": fresh, "output_tokens": 9, "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": written,
            "cache_creation": {"ephemeral_5m_input_tokens": written,
                               "ephemeral_1h_input_tokens": 0},
        }  # fmt: skip
        message = {
            "id": f"msg_{secrets.token_hex(8)}", "type": "message", "role": "assistant",
            "model": "claude-sonnet-4-5", "stop_reason": "end_turn", "stop_sequence": None,
        }  # fmt: skip
        if not streams:
            text = [{"type": "text", "text": "well"}]
            answer = json.dumps({**message, "content": text, "usage": usage})
            self._send(200, "application/json", answer)
            return
        begun = {**usage, "output_tokens": 1}
        start = {**message, "content": [], "stop_reason": None, "usage": begun}
        empty, word = {"type": "text", "text": ""}, {"type": "text_delta", "text": "well"}
        events = [
            {"type": "message_start", "message": start},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": word},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
             "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ]  # fmt: skip
        lines = (f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)
        self._send(200, "text/event-stream", "".join(lines))

    def _send(self, status: int, kind: str, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _providers() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@contextmanager
def _proxy(folder: Path, providers: str, out: Path) -> Iterator[str]:
    keeper = _KEEPER.format(keys=KEYS, out=str(out))
    (folder / "keeper.py").write_text(keeper, encoding="utf-8")
    served = {
        "assistant": {"model": "hosted_vllm/tiny", "api_base": f"{providers}/v1"},
        "smart": {"model": "anthropic/claude-sonnet-4-5", "api_base": providers, "api_key": "none"},
    }
    cache = {"type": "local", "supported_call_types": ["acompletion"], "mode": "default_off"}
    settings = {
        "model_list": [{"model_name": n, "litellm_params": p} for n, p in served.items()],
        "litellm_settings": {
            "callbacks": ["keeper.logger"], "num_retries": 0, "cache": True, "cache_params": cache,
        },
        "general_settings": {
            "master_key": f"sk-{secrets.token_hex(16)}", "custom_auth": "keeper.whose",
        },
    }  # fmt: skip
    config, log, port = folder / "litellm.yaml", folder / "litellm.log", free_port()
    config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    command = [
        "env", "LITELLM_LOCAL_MODEL_COST_MAP=True", str(proxy_python().with_name("litellm")),
        "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--telemetry", "False",
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with running(command, log) as process:
        alive = f"{url}/health/liveliness"
        wait_for("LiteLLM", lambda: bool(get(alive)), START_SECONDS, process, log)
        yield url


def _calls() -> Iterator[tuple[str, dict[str, object]]]:
    """Every caller, both providers, streamed and not, a failure, a hit of the response cache."""
    for key in KEYS:
        for model in ("assistant", "smart"):
            for streams in (False, True):
                yield key, {"model": model, "stream": streams}
    key = next(iter(KEYS))
    for _ in range(2):
        yield key, {"model": "assistant", "cache": {"use-cache": True}, "user": "someone"}
    yield key, {"model": "assistant", "messages": [{"role": "user", "content": "fail"}]}


def _send(client: httpx.Client, key: str, asked: dict[str, object]) -> None:
    body = {
        "messages": [{"role": "user", "content": "how are you"}],
        "metadata": {"template": "support", "template_version": "3"}, "max_tokens": 9, **asked,
    }  # fmt: skip
    headers = {"Authorization": f"Bearer {key}"}
    client.post("/v1/chat/completions", json=body, headers=headers, timeout=60)


def record(out: Path) -> None:
    """Every call as one line: the spend log, the logged payload, what the daily tables gain."""
    with tempfile.TemporaryDirectory() as name, _providers() as providers:
        kept = Path(name) / "kept.jsonl"
        with _proxy(Path(name), providers, kept) as url, httpx.Client(base_url=url) as client:
            for number, (key, asked) in enumerate(_calls(), 1):
                _send(client, key, asked)
                while not kept.exists() or len(kept.read_text().splitlines()) < number:
                    threading.Event().wait(0.1)
        rows = [_without_texts(json.loads(line)) for line in kept.read_text().splitlines()]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _without_texts(kept: dict[str, object]) -> dict[str, object]:
    """Without the price table, which every row repeats, and texts of errors, which name folders;
    texts of prompts the proxy left out itself."""
    row, payload = kept["spend_log"], kept["payload"]
    assert isinstance(row, dict)
    metadata = json.loads(str(row["metadata"]))
    for holder in (metadata, payload or {}):
        assert isinstance(holder, dict)
        if isinstance(holder.get("model_map_information"), dict):
            holder["model_map_information"]["model_map_value"] = None
        if isinstance(holder.get("error_information"), dict):
            holder["error_information"] |= {"traceback": None, "error_message": None}
    row["metadata"] = json.dumps(metadata)
    if isinstance(payload, dict):
        payload |= {"messages": None, "response": None, "error_str": None}
    return kept


if __name__ == "__main__":
    record(Path(sys.argv[1]))
