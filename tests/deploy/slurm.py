"""A Slurm of one machine for tests: real daemons of Debian's slurm-wlm, started for a test and stopped after it."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DAEMONS = ("slurmctld", "slurmd")


def is_installed() -> bool:
    """Whether Slurm is here, and this process may start its daemons."""
    return os.geteuid() == 0 and all(map(shutil.which, (*DAEMONS, "sbatch", "sinfo")))


def _free_port() -> int:
    with socket.socket() as item:
        item.bind(("127.0.0.1", 0))
        return int(item.getsockname()[1])


@contextmanager
def running_slurm(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which sbatch reaches a cluster whose only node is this machine."""
    folder.mkdir()
    host = platform.node()
    settings = {
        "ClusterName": "test",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmUser": "root",
        "AuthType": "auth/none",
        "CredType": "cred/none",
        "MpiDefault": "none",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "ReturnToService": "2",
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool",
        "SlurmctldPidFile": f"{folder}/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/slurmd.pid",
        "SlurmctldPort": str(_free_port()),
        "SlurmdPort": str(_free_port()),
        "SchedulerParameters": "sched_interval=2,batch_sched_delay=0",
    }
    for name in ("state", "spool"):
        (folder / name).mkdir()
    node = f"NodeName={host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN"
    partition = "PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=INFINITE"
    lines = [*(f"{key}={value}" for key, value in settings.items()), node, partition]
    (folder / "slurm.conf").write_text("\n".join(lines) + "\n")
    environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
    daemons = []
    try:
        for name in DAEMONS:
            with (folder / f"{name}.log").open("wb") as log:
                daemons.append(subprocess.Popen([name, "-D"], env=environment, stdout=log, stderr=log))
        while "idle" not in _nodes(environment):
            assert all(daemon.poll() is None for daemon in daemons), "a daemon of Slurm has ended"
        yield environment
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait()


def _nodes(environment: dict[str, str]) -> str:
    return subprocess.run(["sinfo", "-h"], env=environment, capture_output=True, text=True, check=False).stdout
