"""What `make up` runs: components that end by themselves are started again."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

DEMO = Path(__file__).resolve().parents[2] / "demo"


@pytest.fixture
def standalone(airflow_database: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, over a program `airflow` that says its arguments and ends at once."""
    program = tmp_path / "airflow"
    program.write_text('#!/bin/sh\necho "began $*"\nexit 3\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), os.environ["PATH"]]))
    monkeypatch.syspath_prepend(DEMO)
    monkeypatch.delitem(sys.modules, "standalone", raising=False)
    import standalone

    monkeypatch.setattr(standalone, "RESTART_SECONDS", 0.0)
    return standalone


def test_component_that_ends_by_itself_is_started_again_and_it_is_said(
    standalone: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = standalone.Standalone()
    whole.subcommands["scheduler"] = standalone.LoopbackSubCommand(whole, "scheduler", ["scheduler"], dict(os.environ))
    whole.subcommands["scheduler"].start()
    printed = ""
    until = time.monotonic() + 30
    while printed.count("began scheduler --skip-serve-logs\n") < 3 and time.monotonic() < until:
        whole.update_output()
        printed += capsys.readouterr().out
    assert printed.count("began scheduler --skip-serve-logs\n") >= 3
    assert "scheduler exited (code 3): restarting it" in printed
    whole.subcommands["scheduler"].join(30)  # or it would look for its program when the test has put PATH back


def test_components_are_told_how_large_the_memory_pool_is(standalone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.models.pool import Pool

    monkeypatch.setenv("CORPUSMILL_MEMORY_POOL", "ram_of_this_test")
    monkeypatch.setenv("CORPUSMILL_MEMORY_GIB", "1")
    monkeypatch.setattr(standalone.standalone_command.StandaloneCommand, "initialize_database", lambda _: None)
    Pool.create_or_update_pool("ram_of_this_test", 7, "resized by hand", include_deferred=False)
    whole = standalone.Standalone()
    whole.initialize_database()
    assert standalone.LoopbackSubCommand(whole, "scheduler", ["scheduler"], {}).env["CORPUSMILL_MEMORY_GIB"] == "7"


@pytest.mark.parametrize("started", [True, False])
def test_up_says_where_the_password_is_every_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], started: bool
) -> None:
    monkeypatch.syspath_prepend(DEMO)
    import server

    monkeypatch.setattr(server, "start", lambda: (server.Server(1, 0.0, 8080), started))
    assert server.main("up") == 0
    assert (
        f"Log in as admin with the password in {server.PASSWORDS.relative_to(server.ROOT)}" in capsys.readouterr().out
    )
