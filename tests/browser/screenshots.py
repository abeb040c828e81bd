"""Photographs every page of a running dashboard, light and dark, and reports its errors.

    python tests/browser/screenshots.py --url http://127.0.0.1:8501 --out screenshots

Prints the seconds to the first content of each page. Exit code 1 when a page complained.
"""

import argparse
import sys
from pathlib import Path

from tests.browser import chromium


def photograph(
    url: str, out: Path, executable: str, query: str, height: int
) -> list[chromium.Visit]:
    """One PNG a page (or tab of one) and theme in `out`, named page-theme.png."""
    out.mkdir(parents=True, exist_ok=True)
    visits = []
    with chromium.browser(executable) as running:
        # The first visitor of a fresh dashboard pays for imports; the timed ones are warm.
        chromium.visit(running, url, chromium.PAGES[0], "light")
        for name, tab in _views():
            for theme in chromium.THEMES:
                picture = out / f"{'-'.join(filter(None, (name, tab, theme)))}.png"
                asked = f"{query}{'&' if query else '?'}tab={tab}" if tab else query
                where = chromium.address(url, name, asked)
                visit = chromium.visit(running, where, name, theme, picture, height)
                visits.append(visit)
                print(
                    f"{picture}: first content {visit.first_content_seconds:.2f} s, "
                    f"at rest {visit.settled_seconds:.2f} s"
                )
    return visits


def _views() -> list[tuple[str, str]]:
    """Every page, and each tab of those that have some."""
    return [(name, tab) for name in chromium.PAGES for tab in chromium.TABS.get(name, ("",))]


def main() -> int:
    """Parse the arguments, take the pictures, print what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8501", help="a running dashboard")
    parser.add_argument("--out", type=Path, default=Path("screenshots"), help="folder for PNGs")
    parser.add_argument("--query", default="", help="filters of a view, like '?since=7d'")
    parser.add_argument("--height", type=int, default=1800, help="pixels; whole pages need 1800")
    arguments = parser.parse_args()
    executable = chromium.installed()
    if executable is None:
        print("no chromium on the path; install it, e.g. apt-get install chromium", file=sys.stderr)
        return 2
    visits = photograph(arguments.url, arguments.out, executable, arguments.query, arguments.height)
    errors = [f"{seen.page} ({seen.theme}): {error}" for seen in visits for error in seen.errors]
    print("\n".join(errors) or "no errors on any page", file=sys.stderr if errors else sys.stdout)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
