"""The changelog's words on a release: `release_notes.py v0.2.0`.

Exit 1 unless tag, program and changelog agree, and a dataset of that version is kept for the tests of upgrades.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.compile(r'^__version__ = "([^"]+)"', re.MULTILINE)


def notes(tag: str, version_file: str, changelog: str) -> str:
    """The section of the version that `tag` names; ValueError if it is another version's, or is not released."""
    stated = VERSION.search(version_file)
    version = stated[1] if stated else "none"
    if tag != f"v{version}":
        raise ValueError(
            f"the tag is {tag}, and pipeline/corpusmill/version.py says {version}: tag v{version}, or raise the version"
        )
    section = re.search(rf"^## {re.escape(version)}(.*)\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE)
    if section is None or not re.fullmatch(r", \d{4}-\d{2}-\d{2}", section[1]):
        raise ValueError(f"CHANGELOG.md has no heading '## {version}, YYYY-MM-DD': write the date of the release there")
    return section[2].strip() + "\n"


def require_kept(tag: str, kept: Path) -> None:
    """ValueError unless a dataset that this version built is among those that later versions are tested with."""
    archive = kept / f"{tag.removeprefix('v')}.tar.xz"
    if not archive.is_file():
        raise ValueError(f"there is no {archive}: run python -m tests.upgrades.keep, and commit it with the release")


def main() -> int:
    """Print them."""
    try:
        text = notes(
            sys.argv[1],
            (ROOT / "pipeline" / "corpusmill" / "version.py").read_text(),
            (ROOT / "CHANGELOG.md").read_text(),
        )
        require_kept(sys.argv[1], ROOT / "tests" / "upgrades" / "kept")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
