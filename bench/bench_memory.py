"""Peak memory of loading a log, at two sizes: it must not grow with the log.

Each size is loaded by a process of its own; its peak is what the kernel says of it.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.logs import write_log

LOAD = """
import sys
from pathlib import Path
from exporter.sources.intake import Intake
from exporter.store.store import Store
store = Store.open(Path(sys.argv[2]))
with open(sys.argv[1], "rb") as stream:
    print(Intake(store).ingest(stream, source="bench").accepted)
store.close()
"""


def peak_megabytes(log: Path) -> float:
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-c", LOAD, str(log), directory]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"loading {log} failed")
    return usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs=2, default=(1_000_000, 5_000_000))
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    peaks = []
    for rows in arguments.rows:
        peaks.append(peak_megabytes(write_log(arguments.directory / f"bench-{rows}.jsonl", rows)))
        print(f"{rows:,} rows: peak {peaks[-1]:.0f} MB (bar 700)")
    print(f"ratio {peaks[1] / peaks[0]:.2f} (bar 0.9 to 1.1)")


if __name__ == "__main__":
    main()
