"""The plugin as Airflow loads it, in every one of its processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from corpusmill.version import __version__

PLUGIN = Path(__file__).resolve().parents[2] / "pipeline" / "corpusmill_airflow" / "plugin.py"


def test_loading_the_plugin_imports_no_web_framework() -> None:
    # Every task process loads plugins: FastAPI and Airflow's API would cost each of them a second.
    code = (
        "import sys, airflow.sdk, airflow.plugins_manager; assert 'fastapi' not in sys.modules\n"
        f"import runpy; runpy.run_path({str(PLUGIN)!r})\n"
        "print([name for name in ('fastapi', 'airflow.api_fastapi') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.strip().splitlines()[-1] == "[]"


def test_airflow_loads_one_plugin_and_none_of_its_parts(airflow_database: None) -> None:
    from airflow import plugins_manager

    plugins, errors = plugins_manager._get_plugins()
    assert errors == {}
    sources = [str(plugin.source) for plugin in plugins if plugin.name == "dataset_report"]
    assert [source.split(":")[0] for source in sources] == [f"corpusmill=={__version__}"]
