"""Many small objects of an S3 API server on loopback, one request each, into a store.

Against the same rows in one file, in the same run. The server is moto's, a process of its own
with bounded memory; it is written in Python and shares the machine, so beside the rate stand
the CPU seconds of the reading process alone. Objects are made inside the server before anything
is measured. Needs the extras s3 and dev.
"""

import argparse
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from bench.logs import rows

BUCKET = "litellm-logs"
SERVER_MEMORY_BYTES = 8 << 30
OBJECTS_A_DAY_FOLDER = 20_000


def payload(row: dict[str, object]) -> dict[str, object]:
    """A row as LiteLLM's object-store logger writes it, prompts left out."""
    start = datetime.fromisoformat(str(row["ts"])).timestamp()
    details = {"prompt_tokens_details": {"cached_tokens": row["cached_tokens"]}}
    usage = {"prompt_tokens": row["prompt_tokens"], **details}
    return {
        "id": row["request_id"],
        "trace_id": row["trace_id"],
        "call_type": "acompletion",
        "stream": row["stream"],
        "status": "success",
        "custom_llm_provider": "hosted_vllm",
        "startTime": start,
        "endTime": start + float(str(row["e2e_seconds"])),
        "completionStartTime": start + float(str(row["ttft_seconds"])),
        "model": row["model"],
        "model_id": row["replica"],
        "model_group": row["route"],
        "api_base": "http://replica:8000/v1",
        "prompt_tokens": row["prompt_tokens"],
        "completion_tokens": row["output_tokens"],
        "cache_hit": None,
        "model_parameters": {"temperature": 0.2, "max_tokens": 800},
        "metadata": {"user_api_key_team_id": row["tenant"], "usage_object": usage},
        "hidden_params": {"model_id": row["replica"], "usage_object": usage},
        "messages": [{"role": "user", "content": "redacted-by-litellm"}],
        "response": {"choices": [{"message": {"content": "redacted-by-litellm"}}]},
    }


def lines(count: int) -> Iterator[str]:
    return (json.dumps(payload(row)) for row in rows(count))


def serve(count: int) -> None:
    """The server: makes the objects, says where it listens, serves until standard input ends."""
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends
    from moto.server import ThreadedMotoServer

    resource.setrlimit(resource.RLIMIT_AS, (SERVER_MEMORY_BYTES, SERVER_MEMORY_BYTES))
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    backend.create_bucket(BUCKET, "us-east-1")
    for index, line in enumerate(lines(count)):
        folder = index // OBJECTS_A_DAY_FOLDER
        backend.put_object(BUCKET, f"logs/day-{folder:03}/{index:08}.json", line.encode())
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(f"http://{host}:{port}", flush=True)
    sys.stdin.read()
    server.stop()


def measure(what: str, path: str) -> None:
    """One load in a process of its own; prints what it took as JSON."""
    from exporter.sources.intake import Intake
    from exporter.sources.objects.intake import ObjectReader
    from exporter.store.store import Store

    with tempfile.TemporaryDirectory() as directory:
        store = Store.open(Path(directory))
        idle_bytes = peak_bytes()
        began, used = time.perf_counter(), time.process_time()
        if what == "objects":
            reader = ObjectReader(store, path, source="bench")
            summary = reader.run(Telling())
            problems = reader.problems
        else:
            with Path(path).open("rb") as file:
                summary, problems = Intake(store).ingest(file, source="bench"), []
        result = {
            "rows": summary.accepted,
            "prompt_tokens": summary.prompt_tokens,
            "cached_tokens": summary.cached_tokens,
            "seconds": time.perf_counter() - began,
            "cpu_seconds": time.process_time() - used,
            "peak_bytes": peak_bytes(),
            "idle_bytes": idle_bytes,
            "problems": problems,
        }
        if what == "objects":
            began, used = time.perf_counter(), time.process_time()
            assert reader.run().accepted == 0
            result["again_seconds"] = time.perf_counter() - began
            result["again_cpu_seconds"] = time.process_time() - used
        store.close()
    print(json.dumps(result))


class Telling:
    """Says on standard error how far a long run is."""

    def __init__(self) -> None:
        self.objects, self.began = 0, time.perf_counter()

    def __call__(self, _: int) -> None:
        self.objects += 1
        if self.objects % 10_000 == 0:
            seconds, used = time.perf_counter() - self.began, time.process_time()
            print(f"{self.objects:,} objects, {seconds:.0f} s, {used:.0f} s CPU, "
                  f"peak {peak_bytes() / 2**20:.0f} MiB", file=sys.stderr, flush=True)  # fmt: skip


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(*arguments: str, environment: dict[str, str] | None = None) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.bench_objects", *arguments],
        env=os.environ | (environment or {}), stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "rows.jsonl"
        with file.open("w") as out:
            out.writelines(f"{line}\n" for line in lines(count))
        server = subprocess.Popen(
            [sys.executable, "-m", "bench.bench_objects", "--serve", "--objects", str(count)],
            # The server sorts every name for every page: with pages as short as those of S3 the
            # listing of so many objects would be all that is measured.
            env=os.environ | {"MOTO_S3_DEFAULT_MAX_KEYS": "10000"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            url = next(line.strip() for line in server.stdout if line.startswith("http"))
            of_file = run("--measure", "file", str(file))
            names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
            of_objects = run(
                "--measure", "objects", f"s3://{BUCKET}/logs/",
                environment={"AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "us-east-1",
                             **dict.fromkeys(names, "testing")},
            )  # fmt: skip
        finally:
            server.stdin.close()
            server.wait(60)
        report(count, file.stat().st_size, of_file, of_objects)


def report(
    count: int, size_bytes: int, of_file: dict[str, float], of_objects: dict[str, float]
) -> None:
    for name in ("rows", "prompt_tokens", "cached_tokens"):
        assert of_file[name] == of_objects[name], (name, of_file[name], of_objects[name])
    assert of_objects["rows"] == count, of_objects
    assert not of_objects["problems"], of_objects["problems"]
    print(f"{count:,} objects of {size_bytes / count:,.0f} bytes; the same rows and tokens")
    for name, result in (("objects", of_objects), ("one file", of_file)):
        print(
            f"{name:9} {result['seconds']:8.1f} s ({count / result['seconds']:,.0f} rows/s), "
            f"{result['cpu_seconds']:8.1f} s CPU ({result['cpu_seconds'] / count * 1e6:,.0f} µs "
            f"a row), peak {result['peak_bytes'] / 2**20:,.0f} MiB "
            f"({(result['peak_bytes'] - result['idle_bytes']) / 2**20:,.0f} above idle)"
        )
    print(
        f"objects / file: {of_objects['seconds'] / of_file['seconds']:.1f} x the time, "
        f"{of_objects['cpu_seconds'] / of_file['cpu_seconds']:.1f} x the CPU"
    )
    print(
        f"pass without news: {of_objects['again_seconds']:.1f} s, "
        f"{of_objects['again_cpu_seconds']:.1f} s CPU"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=200_000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.objects)
    elif arguments.measure:
        measure(*arguments.measure)
    else:
        compare(arguments.objects)


if __name__ == "__main__":
    main()
