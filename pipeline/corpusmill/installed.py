"""What is installed here: the version, and which packages that steps need are missing.

python -m corpusmill.installed        {"version": "0.1.0", "missing": ["numba", "numpy"]}
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from corpusmill.errors import PermanentError
from corpusmill.version import __version__

NAME = re.compile(r"[\w.-]+")


class NotInstalledError(PermanentError):
    """This environment cannot run steps."""


def missing() -> list[str]:
    """Packages that steps need and this environment lacks; empty for a source tree that is not installed."""
    from importlib import metadata  # and with it the email package

    try:
        required = metadata.requires("corpusmill") or []
    except metadata.PackageNotFoundError:
        return []
    named = [NAME.match(requirement) for requirement in required if "extra ==" not in requirement]
    return [match[0] for match in named if match and not _is_installed(match[0])]


def require_worker() -> None:
    """NotInstalledError if this environment has the package without what its steps need."""
    if lacking := missing():
        raise NotInstalledError(
            "environment.packages_missing: this environment has Corpusmill without the packages that its steps need",
            where=sys.executable,
            expected=f'pip install "corpusmill=={__version__}"',
            got=f"no {', '.join(lacking)}",
            next_step="install it here, or run Airflow's tasks in another environment (CORPUSMILL_PYTHON)",
        )


@contextmanager
def worker_required() -> Iterator[None]:
    """Turn ModuleNotFoundError into NotInstalledError where packages that steps need are missing."""
    try:
        yield
    except ModuleNotFoundError:
        require_worker()
        raise


def _is_installed(name: str) -> bool:
    from importlib import metadata

    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    print(json.dumps({"version": __version__, "missing": missing()}))
