"""The DAGs that people start from a form, for whichever dataset it names.

`build_dataset`: any configuration of the folder; raw text in, training-ready tokens out. `reprocess_shard`: one shard
again from a step on, and dependent steps; logs which outputs changed. `forget_documents`: adds documents to a list
after approval, builds without them, and purges. `compare_versions`: what differs between two versions of a dataset, as
the page of its run. `check_workers`: whether all workers see one work folder and run the same versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, get_current_context, task

from corpusmill.builds.graph import GRAPH
from corpusmill.builds.reprocess import FIRST_STAGES
from corpusmill.config import absolute, load_config
from corpusmill.errors import ConfigError, inline
from corpusmill.lazy import lazily
from corpusmill.storage.mirrored import address_of, path_of
from corpusmill_airflow.by_version import retried_as_its_error_says
from corpusmill_airflow.dataset_dag import built_dataset_params, field, form_params, make_dag, run_params
from corpusmill_airflow.folder import (
    configuration_names,
    named_folder,
    section_of_dataset,
    work_folder_of,
    work_folders,
)
from corpusmill_airflow.steps import PLAN_RECEIPT, RETRYING, Chain

with lazily:
    from corpusmill.builds import plan as builds_plan
    from corpusmill.builds import worker_check
    from corpusmill.config import bounds
    from corpusmill.config import form as config_form
    from corpusmill_airflow import connections, running, worker

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg

    from corpusmill.config import DatasetConfig

MOST_SHARDS = 10**7
MOST_CHARACTERS = 1 << 20  # of a form's ids
VERSION = "^(latest|[0-9a-f]{12})$"
COMPARING = """The page *Datasets* starts this: open a dataset's history there and choose two versions. The tab *Dataset
report* of the run shows what differs. Both versions must be at a destination of the dataset.

On the command line: `corpusmill diff OLD NEW --config CONFIG`.
"""


def _words(dag_id: str) -> str:
    return Path(__file__).with_name(f"{dag_id}.md").read_text(encoding="utf-8")


def build_dataset(folder: Path, known: Sequence[DatasetConfig], listed: Chain) -> DAG:
    """The DAG, for the configurations of a folder; `known`: the valid ones."""
    names = configuration_names(folder) or ["demo"]
    run = run_params()
    words = f"A file in {named_folder(folder)}. Fields left empty below keep its values."
    first = "demo" if "demo" in names else names[0]
    chosen = field(first, "Start from", words, enum=names, section="Dataset")

    @task
    @retried_as_its_error_says
    def plan(params: dict[str, Any] | None = None) -> list[dict[str, str]]:
        """Check the form, list the sources, group them into shards, write the plan; returns what parts are given."""
        values = {name: value for name, value in (params or {}).items() if name not in run}
        with running.refusal_shown(get_current_context()):
            base = load_config(folder / f"{Path(values.pop('configuration')).name}.yaml")
            config = config_form.config_from_form(values, base)
            own = folder / f"{config.name}.yaml"
            return running.plan_run(config, get_current_context(), load_config(own) if own.is_file() else None, base)

    return make_dag(
        "build_dataset",
        plan,
        listed,
        dag_display_name="Build a dataset",
        description="Raw text in, training-ready tokens out: deduplicated, tokenized, shuffled, exported, verified.",
        params={"configuration": chosen, **form_params(), **run},
        known=known,
        doc_md=_words("build_dataset"),
    )


def reprocess_shard(folder: Path, known: Sequence[DatasetConfig], listed: Chain) -> DAG:
    """The DAG; besides its roots it reads the work folders that configurations of `folder` name.

    `known`: the valid configurations.
    """
    form = {
        **built_dataset_params(folder),
        "stage": field(
            "tokenize",
            "Step",
            "The first step to rerun for the shard, or a stage inside of one.",
            enum=list(FIRST_STAGES | dict.fromkeys(GRAPH.per_shard)),
        ),
        "shard": field(0, "Shard", "The shard's number.", type="integer", minimum=0, maximum=MOST_SHARDS),
        "plan": field(
            None,
            "Plan",
            "The plan's folder name; a run's page fills in its own. Empty: the last plan that delivered.",
            type=["null", "string"],
        ),
    }

    @task
    @retried_as_its_error_says
    def plan(params: dict[str, Any] | None = None) -> list[dict[str, str]]:
        """Request what the shard needs from a step on again; returns what parts are given."""
        values, context = params or {}, get_current_context()
        with running.refusal_shown(context):
            config_form.refuse_unknown(values, form, where="the form of reprocess_shard")
            last = builds_plan.find_plan(work_folder_of(values, folder), values["dataset"], values["plan"] or "")
            shard = int(values["shard"])  # JSON schema calls 3.0 an integer
            section = section_of_dataset(folder, values["dataset"], last)
            request = {"last_plan": address_of(last), "stage": values["stage"], "shard": shard}

            def begin() -> running.Planned:
                with connections.credentials(section.connections):
                    made = worker.ask("begin_reprocessing", **request, most_tasks=section.most_tasks)
                plan_receipt = path_of(made["plan_receipt"])
                connections.keep_section(plan_receipt, section)
                return running.Planned(plan_receipt, made["parts"])

            return running.planned(last.parents[2], context, begin)

    return make_dag(
        "reprocess_shard",
        plan,
        listed,
        finish=lambda reported: reported >> compare(plan_receipt=PLAN_RECEIPT),
        dag_display_name="Reprocess a shard",
        description="Reprocess one shard from a step on; dependent steps run only if the result differs.",
        params=form,
        known=known,
        doc_md=_words("reprocess_shard"),
    )


@task
@retried_as_its_error_says
def compare(plan_receipt: str) -> None:
    """Log which outputs changed and which did not."""
    with running.refusal_shown(get_current_context()):
        print(worker.ask("finish_reprocessing", plan_receipt=plan_receipt))


def forget_documents(folder: Path, known: Sequence[DatasetConfig], listed: Chain) -> DAG:
    """The DAG, for the configurations of a folder; `known`: the valid ones."""
    form = {
        "configuration": field(
            None,
            "Dataset",
            "Its configuration, which names the list (forget.path).",
            type=["null", "string"],
            enum=[None, *configuration_names(folder)],
        ),
        "ids": field(
            "",
            "Documents",
            "The ids of the documents to forget, one per line.",
            type="string",
            format="multiline",
            maxLength=MOST_CHARACTERS,
        ),
        "asked_by": field("", "Who asks", "A name or a case number, recorded in the list and the log.", type="string"),
        "purge": field(
            False, "Purge", "Afterwards remove older versions, and search for remains of the texts.", type="boolean"
        ),
    }

    @task
    @retried_as_its_error_says
    def plan(params: dict[str, Any] | None = None) -> list[dict[str, str]]:
        """Add the documents to the list and plan a build without them; returns the path of the plan's receipt."""
        values, context = params or {}, get_current_context()
        with running.refusal_shown(context):
            config = configuration_of(folder, values)
            as_json = config.model_dump_json(exclude_none=True)
            new = worker.ask("forget", config=as_json, ids=values["ids"], asked_by=values["asked_by"])
            print(f"{new:,} documents are new on {config.forget.path if config.forget else ''}")
            return running.plan_run(config, context, config, config)

    def approved_plan() -> XComArg:
        planned = plan()
        ApproveForgetting(folder=str(folder), retries=0) >> planned
        return planned

    return make_dag(
        "forget_documents",
        approved_plan,
        listed,
        finish=lambda reported: reported >> purge(plan_receipt=PLAN_RECEIPT),
        dag_display_name="Forget documents",
        description="Takedowns and opt-outs: a version without them, and their text removed from older ones.",
        params=form,
        known=known,
        doc_md=_words("forget_documents"),
    )


def configuration_of(folder: Path, values: dict[str, Any]) -> DatasetConfig:
    """The configuration that a form names; ConfigError if there is none."""
    if not values.get("configuration"):
        raise ConfigError(
            "airflow.no_dataset_chosen: no dataset chosen", where="Dataset", expected="a configuration", got="nothing"
        )
    return load_config(folder / f"{Path(values['configuration']).name}.yaml")


class ApproveForgetting(ApprovalOperator):
    """Checks the form, then waits for approval, stating which ids match a document of the last build."""

    def __init__(self, *, folder: str, **arguments: Any) -> None:
        super().__init__(
            task_id="approve_forgetting", subject="forget these documents?", fail_on_reject=True, **arguments
        )
        self.folder = folder

    @retried_as_its_error_says
    def execute(self, context: Context) -> Any:
        """Request approval; raises for an invalid form."""
        values = dict(context["params"])
        with running.refusal_shown(context):
            config = configuration_of(Path(self.folder), values)
            matches = worker.ask("check_requests", config=config.model_dump_json(exclude_none=True), ids=values["ids"])
            print(matches)
        self.subject = f"{config.name}: {self.subject}"
        then = (
            "Then **every older version** at its destinations, and all text of these documents that can be reached, is "
            "permanently removed."
            if values["purge"]
            else "Older versions keep them."
        )
        as_code = f"    {inline(matches)}"  # Markdown shows ids as they are
        self.body = f"**The dataset {config.name} will forget these documents.** {then}\n\n{as_code}\n"
        return super().execute(context)


@task
@retried_as_its_error_says
def purge(plan_receipt: str) -> None:
    """If the form requests it: remove remains of the documents' text; the log lists what could not be reached."""
    context = get_current_context()
    if context["params"].get("purge"):
        stores = connections.credentials_of(plan_receipt)
        claimed = running.dataset_claimed(plan_receipt, context)
        with running.refusal_shown(context), claimed, stores:
            print(worker.ask("purge", plan_receipt=plan_receipt))


def compare_versions(folder: Path) -> DAG:
    """The DAG; besides its roots it reads the work folders that configurations of `folder` name."""
    old = "12 digits; the page Datasets lists them, and fills this form in."
    form = {
        **built_dataset_params(folder),
        "old": field("", "Old version", old, type="string", pattern=VERSION),
        "new": field("latest", "New version", "12 digits, or latest.", type="string", pattern=VERSION),
    }

    @task
    @retried_as_its_error_says
    def compare(params: dict[str, Any] | None = None) -> str:
        """Compare two versions at the dataset's destinations; returns the address of the written page."""
        values = params or {}
        with running.refusal_shown(get_current_context()):
            config_form.refuse_unknown(values, form, where="the form of compare_versions")
            work_folder = work_folder_of(values, folder)
            worker.require_worker()
            last = builds_plan.find_plan(work_folder, values["dataset"])
            asked = {"plan_receipt": address_of(last), "old": values["old"], "new": values["new"]}
            with connections.credentials(section_of_dataset(folder, values["dataset"], last).connections):
                return str(worker.ask("compare", **asked))

    with DAG(
        dag_id="compare_versions",
        dag_display_name="Compare versions",
        description="What differs between two versions: documents, tokens, duplicates, settings. Changes nothing.",
        schedule=None,
        is_paused_upon_creation=False,  # it changes nothing, and runs only on request
        params=form,
        doc_md=COMPARING,
        tags=["corpusmill"],
        default_args=RETRYING,
        auto_register=False,
    ) as dag:
        compare()
    return dag


PARAMS = {
    "work_folder": field(
        "work", "Work folder", "The folder that builds will use, shared by all workers.", type="string"
    ),
    "probes": field(16, "Probes", "Several per worker.", type="integer", minimum=1, maximum=1000),
}


def check_workers(folder: Path) -> DAG:
    """The DAG; besides its roots it writes to the work folders that configurations of `folder` name."""

    @task
    @retried_as_its_error_says
    def begin(params: dict[str, Any] | None = None) -> list[str]:
        """Write a file that every worker must find; returns the names of the probes."""
        values = params or {}
        bounds.require_folder("work_folder", values["work_folder"], work_folders(folder))
        return worker_check.begin(_folder(values), values["probes"])

    with DAG(
        dag_id="check_workers",
        dag_display_name="Check the workers",
        description="Many short probes on all workers: one work folder, one set of versions, free disk space.",
        schedule=None,
        params=PARAMS,
        tags=["corpusmill"],
        default_args=RETRYING,
        max_active_tasks=64,
        max_active_runs=1,
        auto_register=False,
    ) as dag:
        conclude(probe.expand(name=begin()))
    return dag


@task
@retried_as_its_error_says
def probe(name: str, params: dict[str, Any] | None = None) -> str:
    """Write a probe's findings on the worker that runs this task; returns their path."""
    worker.require_worker()
    return str(worker.ask("probe", work_folder=address_of(_folder(params or {})), name=name))


@task
@retried_as_its_error_says
def conclude(probes: list[str], params: dict[str, Any] | None = None) -> None:
    """Print the number of probes per host; fail if the workers differ."""
    print(worker_check.conclude(_folder(params or {}), [path_of(path) for path in probes]))


def _folder(params: dict[str, Any]) -> Path:
    return path_of(absolute(params["work_folder"]))
