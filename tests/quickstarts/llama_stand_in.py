"""Stands in for llama-server where none is installed: its flags, its metrics page, its answers.

Answers have 200 prompt tokens each; all but the first had 180 of them cached.
"""

import argparse
import http.server
import itertools
import json
from pathlib import Path

PAGE = Path(__file__).parents[1] / "unit_engines/pages/llamacpp/2026-cached-counter.txt"
_numbers = itertools.count()


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._send(PAGE.read_bytes(), "text/plain; version=0.0.4")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number = next(_numbers)
        cached_tokens = 180 if number else 0
        answer = {
            "id": f"chatcmpl-{number}", "object": "chat.completion", "model": asked["model"],
            "choices": [{"index": 0, "finish_reason": "length",
                         "message": {"role": "assistant", "content": "x"}}],
            "usage": {"prompt_tokens": 200, "completion_tokens": 8, "total_tokens": 208,
                      "prompt_tokens_details": {"cached_tokens": cached_tokens}},
            "timings": {"cache_n": cached_tokens, "prompt_n": 200 - cached_tokens,
                        "prompt_ms": 1.5, "predicted_n": 8},
        }  # fmt: skip
        self._send(json.dumps(answer).encode(), "application/json")

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Listen as told; `--metrics` must be there, as the page is refused without it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", required=True)
    parser.add_argument("--metrics", action="store_true", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    http.server.ThreadingHTTPServer((arguments.host, arguments.port), Answers).serve_forever()


if __name__ == "__main__":
    main()
