"""A build that a file of tests makes once: each test finds it as it was, at its place, whatever others did to it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

BUILT = ("work", "outputs")


def keep(root: Path) -> None:
    """Copy what was built below `root`: links stay links, and times are kept. Sources are not copied."""
    (root / "kept").mkdir()
    subprocess.run(["cp", "-a", *(root / name for name in BUILT), root / "kept"], check=True)


def put_back(root: Path) -> None:
    """What was kept, and nothing beside it and the corpus."""
    for path in sorted(root.iterdir()):
        if path.name not in {"kept", "corpus"}:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    subprocess.run(["cp", "-a", *(root / "kept" / name for name in BUILT), root], check=True)
