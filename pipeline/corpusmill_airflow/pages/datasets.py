"""Lists the datasets that a user may see: those that runs have planned, and those with a configuration file."""

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from airflow.configuration import conf
from sqlalchemy.orm import Session

from corpusmill.config import load_config, work_of
from corpusmill.engine.ledger import RECEIPT_NAME
from corpusmill.engine.work_folder.small import refresh_all
from corpusmill.errors import CorpusmillError
from corpusmill.report.figures import bytes_text, count_text, share_text
from corpusmill.report.plots import trend_bars
from corpusmill.report.shards import StepFacts
from corpusmill_airflow.folder import datasets_folder
from corpusmill_airflow.pages import records
from corpusmill_airflow.pages.receipts import read_steps
from corpusmill_airflow.pages.records import Run

NEWEST_RUNS = 400
NEWEST_REFRESHES = 24
BUILD = "build_dataset"
MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Refresh:
    """One state of a dataset: the figures of its report's receipt, and the run that made it, if Airflow has it."""

    facts: StepFacts
    run: tuple[str, str] | None

    @property
    def tokens(self) -> int:
        """Tokens of its documents, without special tokens."""
        return self.facts.counts.get("tokens", 0)

    @property
    def duplicate_share(self) -> str:
        """Share of the text, formatted for people."""
        return share_text(self.facts.counts.get("duplicate_bytes", 0), self.facts.counts.get("text_bytes", 0))

    @property
    def in_words(self) -> str:
        """Text of a tooltip."""
        text = bytes_text(self.facts.counts.get("text_bytes", 0))
        return f"{count_text(self.tokens)} tokens, {self.duplicate_share} duplicates, {text} of text"


@dataclass
class Dataset:
    """One dataset: its newest run, and its states over time, the newest first."""

    name: str
    work: Path
    configured: Path | None = None
    run: Run | None = None
    refreshes: list[Refresh] = field(default_factory=list)
    unreadable: CorpusmillError | None = None
    dag_problem: str = ""  # as records.dag_problem says it

    @property
    def newest(self) -> Refresh | None:
        """The last finished build."""
        return self.refreshes[0] if self.refreshes else None

    @property
    def comparable(self) -> list[Refresh]:
        """The refreshes with the settings of the newest one: only their figures show how the dataset grows."""
        return [refresh for refresh in self.refreshes if refresh.facts.settings == self.refreshes[0].facts.settings]

    @property
    def growth(self) -> str:
        """Growth in tokens since the previous refresh of equal settings, as a signed share; "" if there is none."""
        newest_two = [refresh.tokens for refresh in self.comparable[:2]]
        if len(newest_two) < 2 or not newest_two[1]:
            return ""
        now, before = newest_two
        if abs(now - before) * 10_000 < before:
            return "as before"
        return f"{'+' if now > before else MINUS}{share_text(abs(now - before), before)}"

    @property
    def trend(self) -> str:
        """A chart of tokens over the refreshes of equal settings."""
        points = [(refresh.tokens, refresh.in_words) for refresh in reversed(self.comparable)]
        return trend_bars(points, f"tokens over {len(points)} refreshes")


def datasets_of(session: Session, dag_ids: set[str]) -> list[Dataset]:
    """The datasets of these DAGs, those with the newest runs first, then by name."""
    plans = records.receipts_by_run(session, dag_ids, records.PLAN, NEWEST_RUNS)
    reports = {
        path: run
        for run, path in reversed(records.receipts_by_run(session, dag_ids, records.REPORT, NEWEST_RUNS).items())
    }
    runs = records.newest_runs(session, dag_ids, NEWEST_RUNS)
    datasets: dict[Path, Dataset] = {}
    for path in plans.values():
        work = path.parents[2]
        datasets.setdefault(work, Dataset(work.name, work))
    for name, work, file in _configured(dag_ids):
        datasets.setdefault(work, Dataset(name, work)).configured = file
    for run in runs:
        dataset = _dataset_of(run, plans, datasets)
        if dataset is not None and dataset.run is None:
            dataset.run = run
    for dataset in datasets.values():
        _read_history(dataset, reports)
        if dataset.configured or records.OF_A_DATASET + dataset.name in dag_ids:
            dataset.dag_problem = records.dag_problem(session, dataset.name)
    order = {(run.dag_id, run.run_id): place for place, run in enumerate(runs)}
    return sorted(
        datasets.values(),
        key=lambda dataset: (
            order[dataset.run.dag_id, dataset.run.run_id] if dataset.run else len(order),
            dataset.name,
        ),
    )


def _dataset_of(run: Run, plans: dict[tuple[str, str], Path], datasets: dict[Path, Dataset]) -> Dataset | None:
    """The dataset of the run's plan; before it has one, that of the name that it was started with."""
    plan = plans.get((run.dag_id, run.run_id))
    if plan is not None:
        return datasets.get(plan.parents[2])
    name = run.conf.get("dataset") or run.conf.get("name")
    if run.dag_id.startswith(records.OF_A_DATASET):
        name = run.dag_id.removeprefix(records.OF_A_DATASET)
    named = [dataset for dataset in datasets.values() if dataset.name == name]
    return named[0] if len(named) == 1 else None


def _read_history(dataset: Dataset, reports: dict[Path, tuple[str, str]]) -> None:
    """Read the newest refreshes; consecutive reports of the same version count once."""
    try:
        refresh_all(dataset.work / records.REPORT, RECEIPT_NAME)
    except CorpusmillError as error:  # one dataset's bucket; the others are shown
        dataset.unreadable = error
        return
    paths = list((dataset.work / records.REPORT).glob(f"*/{RECEIPT_NAME}"))
    aged = sorted(((_modified(path), path) for path in paths), reverse=True)[:NEWEST_REFRESHES]
    steps, _, dataset.unreadable = read_steps([str(path) for _, path in aged], dataset.work)
    for _, path in aged:
        facts = steps.get(str(path))
        if facts is None or "tokens" not in facts.counts:  # written before receipts stated the figures
            continue
        if not dataset.refreshes or dataset.refreshes[-1].facts.version != facts.version:
            dataset.refreshes.append(Refresh(facts, reports.get(path)))


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def configurations_folder() -> Path:
    """The folder of the datasets' configurations."""
    return datasets_folder(Path(conf.get("core", "dags_folder")) / "datasets")


def _configured(dag_ids: set[str]) -> list[tuple[str, Path, Path]]:
    """(name, work folder, file) of the configurations whose DAG the user may read; Airflow shows invalid ones."""
    configured = []
    for file in sorted(configurations_folder().glob("*.yaml")):
        known = _name_and_work(file, _modified(file))
        if known is not None and dag_ids & {BUILD, records.OF_A_DATASET + known[0]}:
            configured.append((*known, file))
    return configured


@lru_cache(maxsize=256)
def _name_and_work(file: Path, _modified: float) -> tuple[str, Path] | None:
    try:
        config = load_config(file)
    except (OSError, CorpusmillError):
        return None
    return config.name, work_of(config)
