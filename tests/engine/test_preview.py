"""What `corpusmill plan` prints: a line per step, whose numbers are those of its stages."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from corpusmill.builds.chain import STEP_OF, STEPS
from corpusmill.builds.graph import GRAPH
from corpusmill.engine.preview import EVERY_TIME, StepPreview, render_preview

stages = st.sampled_from(GRAPH.names)
names = st.sampled_from(["", "00000", "00001", "documents-00000"])
reasons = st.sampled_from(["new", EVERY_TIME, "changed: seed 1 -> 2", "changed: index 00000"])
units = st.builds(StepPreview, stages, names, st.sampled_from(["run", "may run"]), reasons) | st.builds(
    StepPreview, stages, names, st.just("reuse"), st.just("")
)


@given(st.lists(units, min_size=1, max_size=40))
def test_preview_of_steps_counts_what_the_preview_of_stages_holds(rows: list[StepPreview]) -> None:
    text = render_preview(rows, STEP_OF)
    used = [step for step in STEPS if any(STEP_OF[row.stage] == step for row in rows)]
    if text.startswith("nothing is built yet"):
        assert f"all {len(used)} steps will run, from {used[0]} to {used[-1]}" in text
        assert all(row.fate == "may run" or row.why in {"new", EVERY_TIME} for row in rows)
        return
    lines = [line for line in text.splitlines() if re.match(r"[a-z_]+ +\d", line)]
    assert [line.split()[0] for line in lines] == used
    for line in lines:
        of_step = [row for row in rows if STEP_OF[row.stage] == line.split()[0]]
        for fate in ("reuse", "run", "may run"):
            [counted] = re.findall(rf"(\d+) {fate}(?:,|$)", line) or ["0"]
            assert int(counted) == sum(row.fate == fate for row in of_step)
    for reason in {row.why for row in rows if row.fate == "run"}:
        assert f"run: {reason}" in text
