"""`airflow standalone` without its two log servers, with a pool that bounds memory.

The log servers always listen on every interface of the machine, and no setting changes that. They exist so that logs
can be fetched from other machines; here everything runs on this one, and the API server reads the files.
"""

from __future__ import annotations

import os
import sys

import psutil
from airflow.__main__ import main
from airflow.cli.commands import standalone_command


class LoopbackSubCommand(standalone_command.SubCommand):
    """A component of standalone, told not to serve logs if it would."""

    def __init__(
        self, parent: standalone_command.StandaloneCommand, name: str, command: list[str], env: dict[str, str]
    ) -> None:
        serves_logs = name in {"scheduler", "triggerer"}
        super().__init__(parent, name, [*command, "--skip-serve-logs"] if serves_logs else command, env)


class StandaloneWithPool(standalone_command.StandaloneCommand):
    """Standalone that also has the pool that CORPUSMILL_MEMORY_POOL names: one slot for each GiB of this machine."""

    def initialize_database(self) -> None:
        """Make the tables and the pool; how large somebody made the pool in the UI stays."""
        from airflow.models.pool import Pool

        super().initialize_database()
        name = os.environ["CORPUSMILL_MEMORY_POOL"]
        if Pool.get_pool(name) is None:
            gib = max(1, psutil.virtual_memory().total >> 30)
            Pool.create_or_update_pool(name, gib, "GiB of memory; a task takes what it needs", include_deferred=False)


if __name__ == "__main__":
    standalone_command.SubCommand = LoopbackSubCommand
    standalone_command.StandaloneCommand = StandaloneWithPool
    sys.argv = ["airflow", "standalone"]
    main()  # the ordinary way in: it also writes airflow.cfg with its secrets before any component reads it
