"""`airflow standalone` without its two log servers.

The log servers always listen on every interface of the machine, and no setting changes that. They exist so that logs
can be fetched from other machines; here everything runs on this one, and the API server reads the files.
"""

from __future__ import annotations

import sys

from airflow.__main__ import main
from airflow.cli.commands import standalone_command


class LoopbackSubCommand(standalone_command.SubCommand):
    """A component of standalone, told not to serve logs if it would."""

    def __init__(
        self, parent: standalone_command.StandaloneCommand, name: str, command: list[str], env: dict[str, str]
    ) -> None:
        serves_logs = name in {"scheduler", "triggerer"}
        super().__init__(parent, name, [*command, "--skip-serve-logs"] if serves_logs else command, env)


if __name__ == "__main__":
    standalone_command.SubCommand = LoopbackSubCommand
    sys.argv = ["airflow", "standalone"]
    main()  # the ordinary way in: it also writes airflow.cfg with its secrets before any component reads it
