"""The DAG `forget_documents`: adds documents to a list after approval, builds without them, and purges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, get_current_context, task

from corpusmill.errors import ConfigError, inline
from corpusmill.lazy import lazily
from corpusmill_airflow.by_version import retried_as_its_error_says
from corpusmill_airflow.dataset_dag import make_dag
from corpusmill_airflow.folder import configuration_names
from corpusmill_airflow.steps import PLAN_RECEIPT, Chain

with lazily:
    from corpusmill.config import reading
    from corpusmill_airflow import connections, running, section, worker


if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg

    from corpusmill.config import DatasetConfig

MOST_CHARACTERS = 1 << 20  # of a form's ids


def forget_documents(folder: Path, known: Sequence[DatasetConfig], listed: Chain) -> DAG:
    """The DAG, for the configurations of a folder; `known`: the valid ones."""
    form = {
        "configuration": Param(
            None,
            type=["null", "string"],
            enum=[None, *configuration_names(folder)],
            title="Dataset",
            description="Its configuration, which names the list (forget.path).",
        ),
        "ids": Param(
            "",
            type="string",
            format="multiline",
            maxLength=MOST_CHARACTERS,
            title="Documents",
            description="Their ids, one per line.",
        ),
        "asked_by": Param(
            "",
            type="string",
            title="Who asks",
            description="A name or a case number, recorded in the list and the log.",
        ),
        "purge": Param(
            False,
            type="boolean",
            title="Purge",
            description="Afterwards remove older versions, and search for remains of the texts.",
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
        doc_md=Path(__file__).with_suffix(".md").read_text(encoding="utf-8"),
    )


def configuration_of(folder: Path, values: dict[str, Any]) -> DatasetConfig:
    """The configuration that a form names; ConfigError if there is none."""
    if not values.get("configuration"):
        raise ConfigError(
            "airflow.no_dataset_chosen: no dataset chosen", where="Dataset", expected="a configuration", got="nothing"
        )
    return reading.load_config(folder / f"{Path(values['configuration']).name}.yaml")


class ApproveForgetting(ApprovalOperator):
    """Checks the form, then waits for approval, stating which ids match a document of the last build."""

    def __init__(self, *, folder: str, **arguments: Any) -> None:
        super().__init__(
            task_id="approve_forgetting", subject="Forget these documents?", fail_on_reject=True, **arguments
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
        stores = connections.credentials(section.section_of(plan_receipt).connections)
        claimed = running.dataset_claimed(plan_receipt, context, running.this_airflow())
        with running.refusal_shown(context), claimed, stores:
            print(worker.ask("purge", plan_receipt=plan_receipt))
