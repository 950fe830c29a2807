"""Write digests.json anew: `python -m tests.sameness.write` in the repository's root, a few minutes.

Only a change that means to change bytes needs it. Commit the file with that change, and say in the changelog which
bytes are others and why.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.sameness.commands import command_digests
from tests.sameness.digests import built_digests, prepared, record
from tests.sameness.family import family
from tests.search.compared import MEMORY


def main() -> None:
    """Build every configuration and run every command."""
    place = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as first, tempfile.TemporaryDirectory(dir=place) as second:
        sources = prepared(Path(first))
        digests = {}
        for name, settings in family().items():
            digests[name] = built_digests(settings, sources)
            print(name, flush=True)
        record({**digests, **command_digests(prepared(Path(second)))})


if __name__ == "__main__":
    main()
