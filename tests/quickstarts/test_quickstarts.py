"""The commands of docs/start are run as they stand, where what they talk to can run here.

Those without an engine run with every test. With `make test-engine` the vLLM and the LiteLLM that
the other tests of engines have installed answer to the commands `vllm` (else the one of
`make demo-engine`) and `litellm`, and PREFIXSCOPE_LLAMA_SERVER with PREFIXSCOPE_LLAMA_MODEL to
`llama-server`.
"""

import http.server
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from prefixscope.demo_engine import run_vllm
from prefixscope.demo_engine.install import interpreter, is_installed
from prefixscope.demo_engine.model import write_model
from prefixscope.settings import load_settings
from tests.engine.live import ENGINE_DIR
from tests.engine.proxy import LITELLM_DIR
from tests.quickstarts.pages import FOLDER, Block, blocks
from tests.quickstarts.terminals import Terminals
from tests.running import ROOT

PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
# The rest are run by the tests below that need an engine, or cannot be run at all.
WITHOUT_ENGINE = ["envoy-ai-gateway", "kong", "opentelemetry", "shippers", "sglang"]
MODEL = "Qwen/Qwen3-0.6B"


def _follow(terminals: Terminals, name: str, *, exact: bool) -> None:
    """Type a page from start to end. Where an engine counts, only names can be foretold."""
    typed: Block | None = None
    for block in blocks(FOLDER / f"{name}.md"):
        if block.language == "sh" and block.not_run is None:
            if block.terminal is not None:
                terminals.open(block)
            else:
                terminals.type(block)
                typed = block
        elif block.language == "text":
            assert typed is not None
            header, *rows = block.text.strip().splitlines()
            terminals.see(typed, [header, *(rows if exact else [row.split()[0] for row in rows])])


@pytest.mark.parametrize("name", WITHOUT_ENGINE)
def test_commands_work_as_they_stand(name: str, tmp_path: Path) -> None:
    with Terminals(tmp_path) as terminals:
        _follow(terminals, name, exact=True)


class _Provider(http.server.BaseHTTPRequestHandler):
    """Answers as a hosted API does: the first prompt is written to its cache, the rest read it."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number = int(asked["messages"][-1]["content"].split()[-1])
        details = {"cached_tokens": 1024 if number else 0}
        usage = {"prompt_tokens": 1400, "completion_tokens": 8, "total_tokens": 1408,
                 "prompt_tokens_details": details}  # fmt: skip
        body = json.dumps({
            "id": f"chatcmpl-{number}", "created": 1772452800 + number, "model": asked["model"],
            "choices": [{"message": {"content": "secret"}}], "usage": usage,
        }).encode()  # fmt: skip
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def _provider() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Provider) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()


def test_hosted_api_against_a_stand_in(tmp_path: Path) -> None:
    with _provider() as url, Terminals(tmp_path) as terminals:
        terminals.environment["OPENAI_BASE_URL"] = url
        _follow(terminals, "hosted-apis", exact=False)
        # 2 of 3 prompts of 1,400 tokens read 1,024 from the cache: 2048 / 4200.
        assert "acme 48.76% 100.00% 4,200 2,048" in terminals.output
        assert "secret" not in (tmp_path / "responses.jsonl").read_text(encoding="utf-8")


def test_llamacpp_stand_in_behind_the_tap(tmp_path: Path) -> None:
    with Terminals(tmp_path) as terminals:
        stand_in = ROOT / "tests" / "quickstarts" / "llama_stand_in.py"
        terminals.program("llama-server", f'exec {sys.executable} {stand_in} "$@"')
        _follow(terminals, "llamacpp", exact=False)
        # 5 of 6 prompts of 200 tokens had 180 of them cached: 900 / 1200.
        question = Block("sh", "prefixscope query hit_ratio --by tenant")
        terminals.see(question, ["acme 75.00% 100.00% 1,200 900 300 6 83.33%"])


def _with_vllm(terminals: Terminals) -> None:
    """`vllm serve MODEL …` serves the demo's model under that name, with the page's own flags.

    Its standard input stays open, because the starter that closes it ends it.
    """
    places = [ENGINE_DIR / "vllm", ROOT / ".demo-engine" / "vllm"]
    installed = next(filter(is_installed, places), None)
    if installed is None:
        pytest.skip(f"no vLLM in {ENGINE_DIR}/vllm: make demo-engine installs one")
    model = write_model(terminals.folder / "model")
    terminals.program("vllm", (
        "export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1\n"
        "export VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind\n"
        'name="$2"; shift 2\n'
        f"sleep infinity | {interpreter(installed)} {run_vllm.__file__} serve {model} "
        '--served-model-name "$name" --max-model-len 2048 --block-size 32 --enforce-eager '
        '--num-gpu-blocks-override 256 --host 127.0.0.1 "$@"'
    ))  # fmt: skip


def _hits(terminals: Terminals) -> None:
    """The last answer names a ratio above 0 at full coverage: the engine did reuse."""
    found = re.search(r"(\d+\.\d\d)% 100\.00% [\d,]+ ([\d,]+)", terminals.output)
    assert found, terminals.output
    assert float(found[1]) > 0
    assert int(found[2].replace(",", "")) > 0


@pytest.mark.engine
def test_vllm_with_the_tap(tmp_path: Path) -> None:
    with Terminals(tmp_path) as terminals:
        _with_vllm(terminals)
        _follow(terminals, "vllm", exact=False)
        terminals.see(Block("sh", "prefixscope query hit_ratio --by template"), ["support"])
        _hits(terminals)


@pytest.mark.engine
def test_litellm_in_front_of_vllm(tmp_path: Path) -> None:
    if not (LITELLM_DIR / "bin" / "litellm").is_file():
        pytest.skip(f"no LiteLLM in {LITELLM_DIR}: tests/engine/proxy.py installs one")
    with Terminals(tmp_path) as terminals:
        _with_vllm(terminals)
        start = f"vllm serve {MODEL} --port 8000 --enable-prompt-tokens-details"
        terminals.open(Block("sh", start, "vllm", ("8000",)))
        terminals.environment["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        terminals.program("litellm", f'exec {LITELLM_DIR / "bin" / "litellm"} "$@"')
        _follow(terminals, "litellm", exact=False)
        terminals.see(Block("sh", "prefixscope query hit_ratio --by template"), ["support"])
        _hits(terminals)


@pytest.mark.engine
def test_llamacpp_behind_the_tap(tmp_path: Path) -> None:
    server, model = (os.environ.get(f"PREFIXSCOPE_LLAMA_{name}") for name in ("SERVER", "MODEL"))
    if not server or not model:
        pytest.skip("PREFIXSCOPE_LLAMA_SERVER and PREFIXSCOPE_LLAMA_MODEL name none to run")
    with Terminals(tmp_path) as terminals:
        (tmp_path / "model.gguf").symlink_to(model)
        terminals.program("llama-server", f'exec {server} "$@"')
        _follow(terminals, "llamacpp", exact=False)
        terminals.see(Block("sh", "prefixscope query hit_ratio --by tenant"), ["acme"])
        _hits(terminals)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_settings_of_a_page_are_valid(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        for text in re.findall(r"cat > prefixscope\.yml <<'END'\n(.*?)^END$", block.text,
                               re.MULTILINE | re.DOTALL):  # fmt: skip
            file = tmp_path / "prefixscope.yml"
            file.write_text(text, encoding="utf-8")
            load_settings(file, {})
        if block.language == "yaml":
            assert yaml.safe_load(block.text)


@pytest.mark.parametrize("page", sorted(FOLDER.glob("*.md")), ids=lambda path: path.stem)
def test_links_and_pictures_of_a_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_page_is_in_the_table_that_says_what_was_run() -> None:
    table = (FOLDER / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| \[[^]]+\]\(([a-z-]+)\.md\) \|", table, re.MULTILINE))
    assert listed == {page.stem for page in PAGES}
