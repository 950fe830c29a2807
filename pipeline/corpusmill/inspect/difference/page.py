"""The comparison of two versions as one self-contained HTML page."""

from __future__ import annotations

import json
from typing import Any

from corpusmill.errors import visible
from corpusmill.inspect.difference.compare import touched_sources
from corpusmill.report.html import report_environment

Plain = dict[str, Any]


def render_difference_page(difference: Plain) -> str:
    """The page of a result of compare_versions; files beyond the environment's `listed_rows` are only counted."""
    old, new = (difference[side] for side in ("old", "new"))
    settings = [
        (title, key, *(json.dumps(value, ensure_ascii=False) for value in pair))
        for title in ("stated", "settings", "versions")
        for key, pair in (difference[title] or {}).items()
    ]
    return (
        report_environment()
        .get_template("difference.html")
        .render(
            title=f"{old['dataset']}: {old['version']} and {new['version']}",
            difference=difference,
            outcomes={name: count for name, count in (difference["documents"] or {}).items() if count},
            sources=[(visible(name), outcomes) for name, outcomes in touched_sources(difference)],
            settings=settings,
        )
    )
