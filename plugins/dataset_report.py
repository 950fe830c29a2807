"""A tab on every run: the dataset's report, as the build's last task wrote it.

The page to show is found through the run's own records: the receipt path that its `report` task handed on. A request
names a run and nothing else, so it cannot steer which file is read; and a path is followed only if it is a receipt that
says of itself that it belongs to the stage `report` and lists `report.html` among its outputs.

(Annotations are evaluated here, not postponed: FastAPI reads those of the endpoint, whose types are imported late.)
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.plugins_manager import AirflowPlugin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastapi import FastAPI
    from sqlalchemy.orm import Session

TASK, STAGE, PAGE = "report", "report", "report.html"
PREFIX = "/dataset-report"

# The report needs no script and asks for nothing; were its content ever hostile, the browser would still refuse both.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Security-Policy": POLICY}
REPORT_HEADERS = HEADERS | {"Content-Security-Policy": f"sandbox; {POLICY}"}
NOTE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="5">
<meta name="color-scheme" content="light dark"><title>Dataset report</title>
<body style="font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 15vh auto; padding: 0 1rem">
<h1 style="font-size: 1.3rem">{title}</h1><p>{text}</p></body></html>"""
NOT_YET = ("No report yet", "The report appears here when the build has finished.")
GONE = ("The report is no longer there", "Its file was moved or removed. Run the task <code>report</code> again.")


class LazyApp:
    """The endpoints, built at the first request: every task process loads plugins, and none of them needs a web app."""

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: "Callable[[], Awaitable[Any]]",
        send: "Callable[[Any], Awaitable[None]]",
    ) -> None:
        """Answer one request."""
        await endpoints()(scope, receive, send)


@cache
def endpoints() -> "FastAPI":
    """The web app: one page per run, for users who may read that run's results."""
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.common.db.common import SessionDep
    from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
    from fastapi import Depends, FastAPI
    from fastapi.responses import HTMLResponse

    app = FastAPI(title="Dataset report", docs_url=None, redoc_url=None, openapi_url=None)
    may_read = Depends(requires_access_dag("GET", DagAccessEntity.XCOM))

    def page(dag_id: str, run_id: str, user: GetUserDep, session: SessionDep) -> HTMLResponse:  # noqa: ARG001
        receipt = receipt_of(session, dag_id, run_id)
        if receipt is None:
            return HTMLResponse(NOTE.format(title=NOT_YET[0], text=NOT_YET[1]), headers=HEADERS)
        html = report_beside(Path(receipt))
        if html is None:
            return HTMLResponse(NOTE.format(title=GONE[0], text=GONE[1]), status_code=404, headers=HEADERS)
        return HTMLResponse(html, headers=REPORT_HEADERS)

    app.get("/{dag_id}/{run_id}", dependencies=[may_read])(page)
    return app


def receipt_of(session: "Session", dag_id: str, run_id: str) -> str | None:
    """The receipt path that the run's report task handed on, or None if it has not (yet)."""
    from airflow.models.xcom import XComModel
    from sqlalchemy import select

    query = select(XComModel).where(
        XComModel.dag_id == dag_id,
        XComModel.run_id == run_id,
        XComModel.task_id == TASK,
        XComModel.map_index == -1,
        XComModel.key == "return_value",
    )
    found = session.scalars(query).first()
    value = XComModel.deserialize_value(found) if found else None
    return value if isinstance(value, str) else None


def report_beside(receipt_path: Path) -> str | None:
    """The HTML beside a report's receipt, or None if this is not such a receipt or the file is gone."""
    from pipeline.errors import CorpusmillError
    from pipeline.ledger import RECEIPT_NAME, read_receipt

    if receipt_path.name != RECEIPT_NAME or receipt_path.parent.parent.name != STAGE:
        return None
    try:
        receipt = read_receipt(receipt_path)
        if receipt.stage != STAGE or PAGE not in {output.name for output in receipt.outputs}:
            return None
        return (receipt_path.parent / PAGE).read_text(encoding="utf-8")
    except (OSError, CorpusmillError):
        return None


class DatasetReportPlugin(AirflowPlugin):
    """Registers the tab and its page."""

    name = "dataset_report"
    fastapi_apps = [{"app": LazyApp(), "url_prefix": PREFIX, "name": "Dataset report"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {
            "name": "Dataset report",
            "href": f"{PREFIX}/{{DAG_ID}}/{{RUN_ID}}",
            "destination": "dag_run",
            "url_route": "dataset-report",
        }
    ]
