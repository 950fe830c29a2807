"""The URLs: all check with Airflow who the user is, and whether the user may read the run's results.

    /dataset-report/datasets              every dataset
    /dataset-report/-/<file>              style and scripts
    /dataset-report/<dag>/<run>           the page of a run
    /dataset-report/<dag>/<run>/live      its moving parts: progress and shards
    /dataset-report/<dag>/<run>/report    the report that its last task wrote

(Annotations are evaluated here, not postponed: FastAPI reads those of the endpoints.)
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.models.taskinstance import TaskInstance
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from sqlalchemy.orm import Session

import corpusmill.report
from corpusmill.report.html import report_environment
from corpusmill.storage.mirrored import address_of
from corpusmill_airflow.folder import named_folder
from corpusmill_airflow.pages import receipts, records
from corpusmill_airflow.pages.datasets import configurations_folder, datasets_of
from corpusmill_airflow.pages.state import report_of, state_of

HERE = Path(__file__).parent
REPORT_STYLE = Path(corpusmill.report.__file__).with_name("report.css")
ASSETS = {path.name: path for path in (REPORT_STYLE, *(HERE / "static").iterdir())}

# A page may use only its own scripts and its own server; the report itself may run no script and send no request.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Security-Policy": PAGE_POLICY}
REPORT_HEADERS = HEADERS | {"Content-Security-Policy": REPORT_POLICY}

REFUSED = {
    401: (
        "You are no longer logged in",
        "Log in to Airflow again, then reload this page.",
    ),
    403: (
        "You lack permission to see this",
        "It shows results of runs. Ask an administrator of this Airflow for permission to read the DAG's XComs.",
    ),
    404: ("There is no such run", "It may have been deleted. The page Datasets lists the dataset's other runs."),
}


def make_app() -> FastAPI:
    """The web app."""
    app = FastAPI(title="Dataset report", docs_url=None, redoc_url=None, openapi_url=None)
    may_read = [Depends(requires_access_dag("GET", DagAccessEntity.XCOM))]
    app.exception_handler(HTTPException)(refused)
    app.get("/datasets")(datasets_page)
    app.get("/-/{name}")(asset)
    app.get("/{dag_id}/{run_id}", dependencies=may_read)(run_page)
    app.get("/{dag_id}/{run_id}/live", dependencies=may_read)(live_parts)
    app.get("/{dag_id}/{run_id}/report", dependencies=may_read)(report)
    return app


async def refused(request: Request, error: Exception) -> Response:
    """An error page for browsers; JSON for programs."""
    assert isinstance(error, HTTPException)  # noqa: S101  (registered only for these)
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"detail": error.detail}, error.status_code, HEADERS | dict(error.headers or {}))
    title, text = REFUSED.get(error.status_code, ("This cannot be shown", str(error.detail)))
    return _page("note.html", error.status_code, title=title, text=text, base=_base(request))


def datasets_page(request: Request, user: GetUserDep, session: SessionDep) -> HTMLResponse:
    """Every dataset of DAGs that the user may read."""
    readable = records.dags_readable_by(session, user)
    return _page(
        "datasets.html",
        base=_base(request),
        datasets=datasets_of(session, readable),
        missing_pools=records.missing_pools(session, TaskInstance.dag_id.in_(filter(records.builds, readable))),
        now=datetime.now(UTC),
    )


def asset(name: str, user: GetUserDep) -> Response:  # noqa: ARG001
    """A style or a script, for users who are logged in."""
    if name not in ASSETS:
        raise HTTPException(404, "no such file")
    return FileResponse(ASSETS[name], headers=HEADERS)


def run_page(request: Request, dag_id: str, run_id: str, user: GetUserDep, session: SessionDep) -> HTMLResponse:
    """The page of a run."""
    if dag_id == records.COMPARE:
        return _comparison(request, session, _run(session, dag_id, run_id))
    return _page("run.html", base=_base(request), **state_of(session, _run(session, dag_id, run_id), user))


def _comparison(request: Request, session: Session, run: records.Run) -> HTMLResponse:
    """The differences of two versions, or why there are none to show; until the run is over the browser reloads."""
    html = receipts.difference_page(records.returned(session, run))
    if html is not None:
        return HTMLResponse(html, headers=REPORT_HEADERS)
    if run.is_over:
        why = records.why_not(session, run)
        return _page("note.html", 404, title=NOT_COMPARED[0], text=NOT_COMPARED[1], why=why, base=_base(request))
    page = _page("note.html", title=COMPARING[0], text=COMPARING[1], base=_base(request))
    page.headers["Refresh"] = "3"
    return page


def live_parts(request: Request, dag_id: str, run_id: str, user: GetUserDep, session: SessionDep) -> HTMLResponse:
    """The parts of that page that change."""
    return _page("live.html", base=_base(request), **state_of(session, _run(session, dag_id, run_id), user))


def report(dag_id: str, run_id: str, session: SessionDep) -> HTMLResponse:
    """The report as written."""
    run = _run(session, dag_id, run_id)
    path = report_of(session, run)
    html = receipts.report_page(path) if path else None
    if html is None:
        title, text = GONE if path else NOT_YET
        return _page("note.html", 404, title=title, text=text, base="")
    return HTMLResponse(html, headers=REPORT_HEADERS)


COMPARING = (
    "The two versions are being compared",
    "This takes about as long as reading their text. If the run stays queued, see whether compare_versions is paused.",
)
NOT_COMPARED = (
    "There is no comparison to show",
    "See the log of the task compare. If its page was removed, clear the task to create it again.",
)
NOT_YET = ("No report yet", "The report appears here once the build has finished.")
GONE = (
    "The report is no longer there",
    "Its file was moved or removed. Clear the task report of this run to create it again.",
)


def _run(session: Session, dag_id: str, run_id: str) -> records.Run:
    run = records.find_run(session, dag_id, run_id)
    if run is None:
        raise HTTPException(404, f"there is no run {run_id} of {dag_id}")
    return run


def _base(request: Request) -> str:
    """The prefix of every URL of this Airflow: "" or, behind a proxy, its path."""
    return str(request.scope.get("root_path", "")).removesuffix("/dataset-report").rstrip("/")


def _page(template: str, status_code: int = 200, **values: Any) -> HTMLResponse:
    environment = report_environment(HERE / "templates")
    values |= {"as_moment": as_moment, "folder": named_folder(configurations_folder())}
    environment.filters["address_of"] = address_of
    return HTMLResponse(environment.get_template(template).render(values), status_code, HEADERS)


def as_moment(seconds: float) -> datetime:
    """A file's time as a datetime that pages can show."""
    return datetime.fromtimestamp(seconds, UTC)
