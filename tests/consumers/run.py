"""Builds a small dataset and lets every consumer read it in an environment of its own; see README.md."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache" / "consumers"
UV = ROOT / ".cache" / "setup-venv" / "bin" / "uv"


def build_datasets(folder: Path) -> None:
    """`folder`/all/latest: every format; `folder`/raw/latest: nanoGPT's layout."""
    sys.path.insert(0, str(ROOT))
    from pipeline.config import check_config
    from pipeline.local import build_dataset
    from tests.system.corpus import configuration, write_corpus

    shutil.rmtree(folder, ignore_errors=True)
    write_corpus(folder / "corpus", documents=160)
    everything = configuration(folder)
    exports = everything["exports"]
    assert isinstance(exports, dict)
    exports["webdataset"]["exp_data"] = True
    exports["numpy"] |= {"test_name": "val", "placeholders": True, "checkpoints": True}
    build_dataset(check_config(everything | {"name": "all"}, where="consumers"), workers=1)
    raw = configuration(folder, name="raw", exports={"numpy": {"layout": "bin"}})
    build_dataset(check_config(raw, where="consumers"), workers=1)


def environment(lock: Path) -> Path:
    """The python of an environment that holds exactly what `lock` says; made anew when the lock changed."""
    name = f"{lock.parent.name}{lock.stem.removeprefix('requirements')}"
    folder = CACHE / name
    stamp, wanted = folder / "installed.lock", lock.read_text()
    if not stamp.is_file() or stamp.read_text() != wanted:
        base = Path(sys.executable)
        subprocess.run([UV, "venv", "-q", "--clear", "--python", base, folder], check=True)
        sync = [UV, "pip", "sync", "-q", "--python", folder / "bin" / "python", "--require-hashes", lock]
        subprocess.run(sync, check=True)
        stamp.write_text(wanted)
    return folder / "bin" / "python"


def main() -> int:
    datasets = CACHE / "datasets"
    build_datasets(datasets)
    wanted = sys.argv[1:]
    failed = []
    for lock in sorted(HERE.glob("*/requirements*.lock")):
        if wanted and lock.parent.name not in wanted:
            continue
        print(f"consumer {lock.parent.name} {lock.stem.removeprefix('requirements').removeprefix('-')}", flush=True)
        command = [
            environment(lock),
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            HERE / "pytest.ini",
            "--confcutdir",
            HERE,
        ]
        settings = {**os.environ, "CORPUSMILL_CONSUMER_DATASET": str(datasets / "outputs")}
        if subprocess.run([*command, lock.parent], env=settings, check=False).returncode:
            failed.append(lock)
    for lock in failed:
        print(f"failed: {lock.relative_to(ROOT)}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
