"""Custom steps, tried on some documents."""

from __future__ import annotations

import json
import shutil
from typing import Annotated, Any

import typer

from corpusmill.commands import options
from corpusmill.commands.app import INSPECT, app, command
from corpusmill.commands.options import is_page, require_earlier, write_page
from corpusmill.lazy import lazily

with lazily:
    import pydantic

    from corpusmill.config import sections
    from corpusmill.report import tried as report_tried
    from corpusmill.steps import chain


step_app = typer.Typer(help="Try steps of your own (docs/steps.md).", no_args_is_help=True)
app.add_typer(step_app, name="step", rich_help_panel=INSPECT)


@command(INSPECT, "step try my_filters:long_enough data/news.jsonl --set words=100", name="try", to=step_app)
def try_step(
    use: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="A function or class, as `use` names it.")],
    inputs: options.Inputs,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting, as in `with` (VALUE: JSON, or text); repeat for several."
        ),
    ] = None,
    documents: Annotated[int, typer.Option(help="How many documents to read.", min=1, max=10_000)] = 100,
    show: Annotated[int, typer.Option(help="How many documents to show per outcome.", min=0)] = 5,
    page: options.Page = None,
    on_error: Annotated[str, typer.Option(help="fail, keep or drop, as in a configuration.")] = "fail",
    text_field: options.TextField = "text",
    id_field: Annotated[str, typer.Option(help="The JSON key that holds a document's id.")] = "id",
    endpoint_url: options.EndpointUrl = None,
) -> None:
    """Show what a step would do to the first documents of some files, before and after side by side."""
    if page is not None:
        require_earlier(page, "--page", "a page", is_page)
    wanted: dict[str, Any] = {"use": use, "with": dict(map(_setting, settings or ())), "on_error": on_error}
    try:
        step = sections.StepConfig.model_validate(wanted)
    except pydantic.ValidationError as error:
        problems = [problem["msg"].removeprefix("Value error, ") for problem in error.errors()]
        raise typer.BadParameter("; ".join(problems)) from None
    tried = chain.try_steps(
        [step],
        inputs,
        documents=documents,
        text_field=text_field,
        id_field=id_field,
        endpoint_url=endpoint_url,
    )
    typer.echo(report_tried.render_tried(tried, show=show, width=shutil.get_terminal_size((100, 24)).columns))
    if page is not None:
        write_page(page, report_tried.render_tried_page(tried, use))


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
