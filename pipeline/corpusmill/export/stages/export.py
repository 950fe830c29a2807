"""Export: writes the shuffled records into the files that training programs read.

Units are such as `numpy-00000`: format and group of files. Where files of whole documents are cut at the same size they
hold the same bytes: units such as `documents-00000` write the tokens once and hard-link them under the other names.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from corpusmill.config import FramingConfig
from corpusmill.config.exports import HEADED, SECTIONS, ParquetIdsConfig, ParquetTextConfig
from corpusmill.engine.ledger import Check, Outcome, Receipt, versions_of
from corpusmill.engine.stage import Shown, Stage, StepName
from corpusmill.engine.work import Inputs, Resources, Work
from corpusmill.export.formats import FORMATS
from corpusmill.export.formats.base import Cells, Output, Settings, WrittenContent
from corpusmill.export.stages import layout
from corpusmill.kernels import advance
from corpusmill.lazy import lazily
from corpusmill.tokens.stages.audit import require_audited
from corpusmill.tokens.stages.tokenize import vocabulary

with lazily:
    import numpy as np

if TYPE_CHECKING:
    from corpusmill.engine.build import Build

ROWS = (ParquetIdsConfig, ParquetTextConfig)
CONTENT = ("content", "cells")  # keys of a file's content in the receipt (export/formats/base.py)


def _units(build: Build) -> list[str]:
    return [
        f"{name}-{number:05d}"
        for name, formats in layout.unit_formats(build.config.exports).items()
        for number in range(len(layout.unit_outputs(build, formats[0])))
    ]


def _outputs(build: Build, unit: str) -> dict[str, list[layout.OutputPlan]]:
    """What a unit writes, by format."""
    name, _, number = unit.partition("-")
    return {
        output: layout.unit_outputs(build, output)[int(number)]
        for output in layout.unit_formats(build.config.exports)[name]
    }


def _inputs(build: Build, unit: str) -> dict[str, list[StepName]]:
    name, outputs = next(iter(_outputs(build, unit).items()))
    slices = layout.cell_slices(build, name, outputs[0].first, outputs[-1].last)
    kinds = {"cells": SECTIONS[name].holds, "beside": SECTIONS[name].beside}
    return {key: [("gather", f"{kind}-{part.cell:05d}") for part in slices if kind] for key, kind in kinds.items()}


def _identity(build: Build, unit: str) -> Settings:
    wanted, nanoset, numpy = _outputs(build, unit), build.config.exports.nanoset, build.config.exports.numpy
    framed = build.config.framing != FramingConfig() and any(FORMATS[name].framed for name in wanted)
    olmo, sections = build.config.exports.olmo, [getattr(build.config.exports, name) for name in wanted]
    return Settings(
        outputs={
            name: [
                (output.number, output.name, layout.cell_slices(build, name, output.first, output.last))
                for output in outputs
            ]
            for name, outputs in wanted.items()
        },
        vocabulary=vocabulary(build),
        framing=build.config.framing.model_dump() if framed else UNSET,
        layout=numpy.layout if "numpy" in wanted and numpy and numpy.layout in HEADED else UNSET,
        offsets=True if "olmo" in wanted and olmo and olmo.offsets else UNSET,
        rows=next((section.rows() for section in sections if isinstance(section, ROWS)), UNSET),
        bos_index=True if "numpy" in wanted and numpy and numpy.bos_index else UNSET,
        loss=True if "nanoset" in wanted and nanoset and nanoset.loss else UNSET,
        libraries=versions_of(*(library for name in wanted for library in FORMATS[name].libraries)),
    )


def _run(inputs: Inputs, settings: Settings, folder: Path, _resources: Resources) -> Outcome:
    cells = Cells(inputs.every("cells"), inputs.every("beside"))
    files: list[dict[str, Any]] = []
    first: list[Path] = []  # the token files of the first format, which the others share
    advance.begin(_input_size(settings.outputs))
    for name, outputs in settings.outputs.items():
        for place, output in enumerate(Output(*output) for output in outputs):
            path = folder / name / output.name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name != next(iter(settings.outputs)):
                written = FORMATS[name].link(first[place], cells, output, folder / name, settings)
                content = {key: files[place][key] for key in CONTENT}
            else:
                tally = WrittenContent([] if FORMATS[name].stream else output.slices)
                written = FORMATS[name].write(cells, output, folder / name, settings, tally)
                content = tally.to_json()
            files.append({"name": f"{name}/{output.name}", **written, **content})
            first.append(path.with_name(path.name + FORMATS[name].data_suffix))
    counts: Counter[str] = Counter()
    for file in files:
        counts.update({key: count for key, count in file.items() if isinstance(count, int)})
    of_text = FORMATS[next(iter(settings.outputs))].holds_text
    token_bytes = counts["slots"] * (1 if of_text else np.dtype(settings.vocabulary.dtype).itemsize)
    return Outcome(counts={"outputs": len(files), **counts, "bytes_read": token_bytes}, details={"files": files})


def _input_size(wanted: dict[str, list[Any]]) -> int:
    """What the outputs take from cells, in records, or of a stream in tokens; what is linked takes nothing."""
    written = next(iter(wanted.values()))
    return sum(last - first for output in written for _, first, last in Output(*output).slices)


def _checks(build: Build, unit: str, receipt: Receipt) -> list[Check]:
    """The planned files were written, and no others."""
    planned = {
        f"{name}/{file}"
        for name, outputs in _outputs(build, unit).items()
        for output in outputs
        for file in FORMATS[name].file_names(output.name, build.config.exports)
    }
    written = {output.name for output in receipt.outputs}
    return [
        Check("files", (("planned", len(planned)),), (("written", len(planned & written)),)),
        Check("other files", (), (("written", len(written - planned)),)),
    ]


STAGE = Stage(
    "export",
    version=5,
    after=("gather",),
    units=_units,
    work=Work(Settings, _identity, _inputs, _run),
    checks=_checks,
    gate=require_audited,
    reclaimed=("*",),
    read_until="upload",
    delivers=True,
    shown=Shown(unit_word="part"),
)
