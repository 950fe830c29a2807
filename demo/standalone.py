"""`airflow standalone` without its two log servers, with a pool that bounds memory, and with components that come back.

The log servers always listen on every interface of the machine, and no setting changes that. They exist so that logs
can be fetched from other machines; here everything runs on this one, and the API server reads the files.

Airflow's own standalone continues without a component that crashed: without its scheduler every run would wait forever.
With SQLite that happens: a backfill that finds the database locked removes the runs that it had made already, and a
scheduler that had begun one of them ends with ObjectDeletedError.
"""

from __future__ import annotations

import os
import runpy
import sys
import time

import psutil
from airflow.cli.commands import standalone_command

MEMORY_GIB = "CORPUSMILL_MEMORY_GIB"
RESTART_SECONDS = 5.0  # from one start of a component to the next: one that cannot start takes no whole core


class LoopbackSubCommand(standalone_command.SubCommand):
    """A component of standalone, told not to serve logs if it would."""

    def __init__(
        self, parent: standalone_command.StandaloneCommand, name: str, command: list[str], env: dict[str, str]
    ) -> None:
        serves_logs = name in {"scheduler", "triggerer"}
        known = {MEMORY_GIB: os.environ[MEMORY_GIB]} if MEMORY_GIB in os.environ else {}
        super().__init__(parent, name, [*command, "--skip-serve-logs"] if serves_logs else command, env | known)
        self.asked = command
        self.began = time.monotonic()
        self.daemon = True  # tasks of a scheduler that was killed may hold its output open


class Standalone(standalone_command.StandaloneCommand):
    """Standalone with the pool that CORPUSMILL_MEMORY_POOL names, which starts again what ended by itself."""

    def update_output(self) -> None:
        """Print what the components said (asked for ten times a second); start those that ended again."""
        super().update_output()
        for name, ended in list(self.subcommands.items()):
            exit_code = ended.process.poll() if ended.process else None
            if exit_code is None or time.monotonic() - ended.began < RESTART_SECONDS:
                continue
            self.print_output("standalone", f"{name} exited (code {exit_code}): restarting it")
            self.subcommands[name] = LoopbackSubCommand(self, name, ended.asked, ended.env)
            self.subcommands[name].start()

    def initialize_database(self) -> None:
        """Make the tables and the pool, one slot for each GiB of this machine; a size given in the UI stays. Stored
        graphs of an older Corpusmill are mended.

        Tasks are told the pool's size, which they cannot ask for: a plan refuses what would never fit.
        """
        from airflow.models.pool import Pool

        from corpusmill_airflow.stored_graphs import mend_stored_graphs

        super().initialize_database()
        mend_stored_graphs()
        name = os.environ["CORPUSMILL_MEMORY_POOL"]
        pool = Pool.get_pool(name)
        slots = pool.slots if pool else max(1, psutil.virtual_memory().total >> 30)
        if pool is None:
            Pool.create_or_update_pool(name, slots, "GiB of memory; a task takes what it needs", include_deferred=False)
        if slots > 0:  # -1 has no bound
            os.environ[MEMORY_GIB] = str(slots)


if __name__ == "__main__":
    standalone_command.SubCommand = LoopbackSubCommand
    standalone_command.StandaloneCommand = Standalone
    sys.argv = ["airflow", "standalone"]
    # The ordinary way in: it also writes airflow.cfg with its secrets before any component reads it.
    runpy.run_module("airflow", run_name="__main__")
