"""A mixture as a table in the terminal, and with bars as one self-contained HTML page.

trains    tokens that belong to the training split
samples   distinct samples that they make in one epoch
drawn     draws of the source at this budget
epochs    how often each token (Megatron) or window (Nanoset) is seen on average
seen      samples that this budget shows, rounded down; for Megatron an upper bound: it shuffles several epochs
      together, so some samples repeat before others are seen at all
"""

from __future__ import annotations

from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from corpusmill.report import svg
from corpusmill.report.figures import count_text, grouped
from corpusmill.training.mixture.mixture import Exposure, Mixture, Way
from corpusmill.training.mixture.sources import split_in_words

COLUMNS = ("source", "weight", "trains", "samples", "drawn", "epochs", "seen")
BAR_HEIGHT, GAP, LABEL, FIGURES, WIDTH = 22.0, 10.0, 220.0, 150.0, 900.0
STYLE = Markup("""
:root { color-scheme: light dark; --ink: #1c2330; --quiet: #5d6676; --paper: #fff; --bar: #2f6f8f; --warn: #b4541a;
        --line: #c9d0da; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --quiet: #9aa4b5; --paper: #14181f; --bar: #5aa9cc;
        --warn: #e08a4b; --line: #39424f; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem;
       margin: 2.5rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; } p { margin: .3rem 0; }
p.quiet { color: var(--quiet); } svg { width: 100%; height: auto; } svg text { font-size: 13px; fill: var(--ink); }
svg text.end { text-anchor: end; } svg text.quiet { fill: var(--quiet); } .bar { fill: var(--bar); }
.warn { fill: var(--warn); } svg line { stroke: var(--line); } table { border-collapse: collapse; width: 100%; }
td, th { padding: .3rem .7rem .3rem 0; text-align: right; border-bottom: 1px solid var(--line); font-weight: 400;
         font-variant-numeric: tabular-nums; } th { color: var(--quiet); }
td:first-child, th:first-child { text-align: left; }
""")


def _title(mixture: Mixture, way: Way) -> str:
    """The heading of one way of training: how to pass it the data, and which files train."""
    if way == "nanoset":
        return "Nanoset: one epoch of windows, repeated as it is"
    if way == "megatron":
        split = split_in_words(mixture.split)
        return f"Megatron, --data-args-path megatron_data_path.txt --split {split}: of every file the first part trains"
    return "Megatron, --per-split-data-args-path megatron_splits.json: of every source the first files train"


def _notes(mixture: Mixture, way: Way) -> list[str]:
    split = split_in_words(mixture.split)
    if way == "megatron" and mixture.indivisible_files:
        first = mixture.indivisible_files[0].file
        return [
            f"{_counted(len(mixture.indivisible_files), 'file')} with too few documents for --split {split}, such as"
            f" {first.path.name} ({_counted(first.documents, 'document')}): Megatron 0.16 hangs on an empty split."
            " Use megatron_splits.json, or --split 100,0,0."
        ]
    if way == "megatron_splits":
        return [
            f"{source.name} has {_counted(len(source.megatron), 'file')}, too few for a file in every split of {split}:"
            " all of it trains, none is held out."
            for source in mixture.undivided
        ]
    return []


def _counted(number: int, what: str) -> str:
    return f"{grouped(number)} {what}" + "s" * (number != 1)


def _row(mixture: Mixture, way: Way, number: int, exposure: Exposure) -> tuple[str, ...]:
    return (
        mixture.sources[number].name,
        f"{mixture.weights[number]:.4f}",
        grouped(exposure.there),
        grouped(exposure.samples),
        grouped(exposure.drawn),
        f"{exposure.epochs:.3f}",
        ("" if way == "nanoset" else "at most ")
        + _percent_down(exposure.seen, exposure.samples)
        + _never_in_words(exposure),
    )


def _percent_down(part: int, whole: int) -> str:
    """Rounded down, so that only the whole is 100.0 %."""
    return f"{1000 * part // whole / 10:.1f} %"


def _never_in_words(exposure: Exposure) -> str:
    return f"; {_percent_down(exposure.never, exposure.samples)} never, in any epoch" if exposure.never else ""


def _heading(mixture: Mixture) -> str:
    return (
        f"{grouped(mixture.samples)} sequences of {grouped(mixture.sequence_tokens)} tokens,"
        f" {count_text(mixture.tokens)} tokens, seed {mixture.seed}"
    )


def mixture_table(mixture: Mixture) -> RenderableType:
    """Draws and epochs of every source, a table for each trainer."""
    parts: list[RenderableType] = [Text(_heading(mixture), style="bold")]
    for way, exposures in mixture.exposures.items():
        table = Table(box=None, pad_edge=False)
        for column in COLUMNS:
            table.add_column(column, justify="left" if column in {"source", "seen"} else "right", overflow="fold")
        for number, exposure in enumerate(exposures):
            table.add_row(*_row(mixture, way, number, exposure), style="yellow" if exposure.never else "")
        parts += [Text(), Text(_title(mixture, way), style="dim"), table]
        parts += [Text(note, style="yellow") for note in _notes(mixture, way)]
    return Group(*parts)


def mixture_html(mixture: Mixture) -> str:
    """The whole page; the same mixture gives the same text."""
    body = Markup("").join(
        Markup("<h2>{}</h2>\n{}\n{}\n{}").format(
            _title(mixture, way),
            _bars(mixture, exposures),
            _html_table(mixture, way, exposures),
            Markup("").join(Markup("<p>{}</p>\n").format(note) for note in _notes(mixture, way)),
        )
        for way, exposures in mixture.exposures.items()
    )
    names = ", ".join(source.name for source in mixture.sources)
    return Markup(
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>Mixture of {}</title>\n'
        '<style>{}</style>\n<h1>Mixture of {}</h1>\n<p class="quiet">{}</p>\n{}</html>\n'
    ).format(names, STYLE, names, _heading(mixture), body)


def _bars(mixture: Mixture, exposures: tuple[Exposure, ...]) -> Markup:
    """Epochs of every source as a bar, with a line where each sample was seen once."""
    most = max(1.0, *(exposure.epochs for exposure in exposures))
    room = WIDTH - LABEL - FIGURES
    height = len(exposures) * (BAR_HEIGHT + GAP) + 24
    once = LABEL + room / most
    marks = [
        svg.line("once", (once, 0), (once, height - 18)),
        svg.text("quiet", (once + 4, height - 6), "seen once"),
    ]
    for number, exposure in enumerate(exposures):
        y = number * (BAR_HEIGHT + GAP) + GAP / 2
        size = (max(1.5, room * exposure.epochs / most), BAR_HEIGHT)
        name = mixture.sources[number].name
        tooltip = f"{name}: {grouped(exposure.drawn)} draws of {grouped(exposure.samples)} samples"
        marks += [
            svg.text("end", (LABEL - 10, y + 16), name if len(name) <= 28 else name[:27] + "…", tooltip=name),
            svg.group(tooltip, svg.rectangle("warn" if exposure.never else "bar", (LABEL, y), size, radius=2)),
            svg.text("value", (LABEL + size[0] + 8, y + 16), f"{exposure.epochs:.2f} epochs"),
        ]
    return svg.drawing(marks, (WIDTH, height), "Epochs of every source")


def _html_table(mixture: Mixture, way: Way, exposures: tuple[Exposure, ...]) -> Markup:
    head = Markup("").join(Markup("<th>{}</th>").format(column) for column in COLUMNS)
    rows = Markup("\n").join(
        Markup("<tr>{}</tr>").format(
            Markup("").join(Markup("<td>{}</td>").format(cell) for cell in _row(mixture, way, number, exposure))
        )
        for number, exposure in enumerate(exposures)
    )
    return Markup("<table>\n<tr>{}</tr>\n{}\n</table>").format(head, rows)
