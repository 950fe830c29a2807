"""Files beside the corpus that a configuration may name: decisions, takedowns, a benchmark, a reference, steps.

Their rows are of the same ids, lines and passages as the corpus, so that they meet it; an edit writes one anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.search.sources import NAMES, documents, some_text

BESIDE = "beside/"  # how settings begin a path of these
DECISIONS, BY_ID, TAKEDOWNS, ITEMS, REFERENCE = (
    f"{BESIDE}{name}.jsonl" for name in ("decisions", "by_id", "takedowns", "items", "reference/r")
)
CODE = f"{BESIDE}code"
STEPS, WORDS = "edited_steps", "edited_words"  # modules there: one imports the other, at once or late
IDS = ["doc", "7", "ü", "nobody"]
BENCHMARK = {"name": "bench", "path": ITEMS}

VALUES: dict[str, list[Any]] = {
    "decisions": [
        None,
        [{"name": "lines", "path": DECISIONS, "key": ["file", "line"], "keep": "score >= 1", "max_unmatched_share": 1}],
        [
            {"name": "ids", "path": BY_ID, "keep": "score >= 1", "undecided": "drop", "max_unmatched_share": 1},
            {
                "name": "lines",
                "path": DECISIONS,
                "key": ["file", "line"],
                "keep": "score < 2",
                "max_unmatched_share": 1,
            },
        ],
    ],
    "forget": [
        None,
        *({"path": TAKEDOWNS, "key": ["file", "line"], "copies": copies} for copies in ("keep", "also")),
        {"path": BY_ID, "copies": "also"},  # ids that no document has, or that several share
    ],
    "steps": [
        [{"use": f"{STEPS}:kept"}],
        [{"use": f"{STEPS}:Kept", "before": "writeback"}],
        [{"use": f"{STEPS}:Kept"}, {"use": f"{STEPS}:kept", "before": "writeback"}],
    ],
    "card": [None, {}],
    "budget": [None, *({"corpus": amount} for amount in ("0.4 epochs", "2.5 epochs", "90 tokens"))],
    "dedup.against": [None, [{"path": f"{BESIDE}reference"}]],
    "decontamination": [
        None,
        *({"benchmarks": [BENCHMARK], "action": action} for action in ("remove", "cut", "annotate", "report")),
        {"benchmarks": [BENCHMARK], "action": "remove", "seed_words": 3},
    ],
}
_code = [
    *(
        (
            f"{CODE}/{STEPS}.py",
            f"{early}\n\ndef kept(document):\n    {late}\n    return document.text.count(WORD) < {most}\n\n"
            f"class Kept:\n    def __call__(self, document):\n        return kept(document)\n",
        )
        for early, late in ((f"from {WORDS} import WORD", "pass"), ("", f"from {WORDS} import WORD"))
        for most in (1, 2, 9)
    ),
    *((f"{CODE}/{WORDS}.py", f"WORD = {word!r}\n") for word in ("e", "t", "x", "water")),
]
CHANGES = [(key, value) for key, values in VALUES.items() for value in values]

_scores = st.integers(0, 2)
_places = st.fixed_dictionaries({"file": st.sampled_from(NAMES), "line": st.integers(1, 6)})
_questions = st.fixed_dictionaries({"question": some_text, "answer": st.just("")})
_rows = {
    DECISIONS: st.lists(
        st.builds(lambda place, score: {**place, "score": score}, _places, _scores),
        unique_by=lambda row: (row["file"], row["line"]),
        max_size=8,
    ),
    BY_ID: st.lists(
        st.fixed_dictionaries({"id": st.sampled_from(IDS), "score": _scores}), unique_by=lambda row: row["id"]
    ),
    TAKEDOWNS: st.lists(_places, unique_by=lambda row: (row["file"], row["line"]), max_size=4),
    ITEMS: st.lists(_questions, max_size=4).map(lambda rows: [{"id": f"i{at}", **row} for at, row in enumerate(rows)]),
}
Edit = tuple[str, str]
"""A file, and its new text."""
edits: st.SearchStrategy[Edit] = st.one_of(
    *(
        st.tuples(st.just(name), rows.map(lambda rows: "".join(json.dumps(row) + "\n" for row in rows)))
        for name, rows in _rows.items()
    ),
    st.tuples(
        st.just(REFERENCE), st.lists(documents, min_size=1, max_size=4).map(lambda lines: "\n".join(lines) + "\n")
    ),
    st.sampled_from(_code),
    st.sampled_from(_code),
)


def write_first(folder: Path) -> None:
    """Every file with a row, so that a configuration may name it before it is edited."""
    place = {"file": "a.jsonl", "line": 1}
    water = "the water and the stone the water and the stone "
    first = {
        DECISIONS: {**place, "score": 0},
        BY_ID: {"id": "doc", "score": 1},
        TAKEDOWNS: place,
        ITEMS: {"id": "i0", "question": water, "answer": ""},
        REFERENCE: {"id": "r", "text": water, "body": water},
    }
    for name, row in first.items():
        write(folder, (name, json.dumps(row) + "\n"))
    for edit in (_code[0], _code[-1]):
        write(folder, edit)


def write(folder: Path, edit: Edit) -> None:
    """Replace one of the files."""
    name, text = edit
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def placed(settings: Any, folder: Path) -> Any:
    """Settings in which each path that begins with `beside/` is absolute."""
    if isinstance(settings, dict):
        return {key: placed(value, folder) for key, value in settings.items()}
    if isinstance(settings, list):
        return [placed(value, folder) for value in settings]
    return str(folder / settings) if isinstance(settings, str) and settings.startswith(BESIDE) else settings
