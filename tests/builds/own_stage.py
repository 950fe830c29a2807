"""The stage that docs/stages.md shows, as a package outside of pipeline/."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "stages.md"
NAME = "word_counts"


def write_package(folder: Path) -> dict[str, str]:
    """Save the stage as the page says; the settings with which it is found."""
    (source,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    package = folder / "my_package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / f"{NAME}.py").write_text(source)
    return {"CORPUSMILL_STAGES": f"my_package.{NAME}", "PYTHONPATH": str(folder)}
