"""The dataset report in Airflow: a page of all datasets, and a tab on every run.

This file only registers them. What they show and who may see it is in pages/, which is imported at the first
request: every task's process loads plugins, and none of them needs a web app.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from airflow.plugins_manager import AirflowPlugin

from corpusmill.lazy import lazily

with lazily:
    from corpusmill_airflow.pages import endpoints as pages_endpoints


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastapi import FastAPI

PREFIX = "/dataset-report"


class LazyApp:
    """The endpoints, built at the first request."""

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        """Answer one request."""
        await endpoints()(scope, receive, send)


@cache
def endpoints() -> FastAPI:
    """The web app, made once."""
    return pages_endpoints.make_app()


class DatasetReportPlugin(AirflowPlugin):
    """Registers the page and the tab."""

    name = "dataset_report"
    fastapi_apps = [{"app": LazyApp(), "url_prefix": PREFIX, "name": "Dataset report"}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {
            "name": "Datasets",
            "href": f"{PREFIX}/datasets",
            "destination": "nav",
            "url_route": "datasets",
            "icon": f"{PREFIX}/-/icon.svg",
            "icon_dark_mode": f"{PREFIX}/-/icon-dark.svg",
        },
        {
            "name": "Dataset report",
            "href": f"{PREFIX}/{{DAG_ID}}/{{RUN_ID}}",
            "destination": "dag_run",
            "url_route": "dataset-report",
            "icon": f"{PREFIX}/-/icon.svg",
            "icon_dark_mode": f"{PREFIX}/-/icon-dark.svg",
        },
    ]
