"""`make docs`: the site in build/site. Warnings are errors, and no page may make a browser ask another server.

mkdocs comes from requirements.lock into an environment of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SITE = ROOT / "build" / "site"
sys.path.insert(0, str(ROOT))

from tests.consumers.run import environment  # noqa: E402

# What a browser fetches by itself; an <a href> waits for a reader.
FETCHED = re.compile(
    r"""<(?!a\b)[a-z]+\b[^>]*?\b(?:src|srcset|poster|data|href)\s*=\s*["']?\s*((?:https?:)?//[^"'\s>]+)"""
    r"""|url\(\s*["']?((?:https?:)?//[^"')]+)|@import\s+["']((?:https?:)?//[^"']+)""",
    re.IGNORECASE,
)
# The theme's program loads these from elsewhere where a page has such a block.
LOADED_BY_THE_THEME = re.compile(r"""<[a-z]+\b[^>]*class=["'][^"']*\b(mermaid|md-source)\b""")


def foreign_requests(text: str) -> Iterator[str]:
    """What a page or a style sheet makes a browser fetch from another server."""
    for match in FETCHED.finditer(text):
        yield next(filter(None, match.groups()))
    yield from LOADED_BY_THE_THEME.findall(text)


def main() -> int:
    """Build, then look; the exit code."""
    python = environment(HERE / "requirements.lock")
    command = [python, "-m", "mkdocs", "build", "--strict", "--quiet", "--clean"]
    built = subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False)
    if built.returncode:
        return built.returncode
    pages = sorted(path for path in SITE.rglob("*") if path.suffix in {".html", ".css"})
    asked = [f"{path.relative_to(ROOT)}: {what}" for path in pages for what in foreign_requests(path.read_text())]
    if asked:
        print("Pages that ask another server:", *asked, sep="\n  ", file=sys.stderr)
        return 1
    print(f"{len(pages)} pages and style sheets in {SITE.relative_to(ROOT)}, none of which asks another server.")
    print(f"Read them: python -m http.server --directory {SITE.relative_to(ROOT)} --bind 127.0.0.1 8000")
    return 0


if __name__ == "__main__":
    sys.exit(main())
