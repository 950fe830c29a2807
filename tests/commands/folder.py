"""A folder in which every documented example can be typed: two datasets' configurations and their sources."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.system.corpus import configuration, lines_of, make_documents


def write_folder(root: Path) -> None:
    """web.yaml with a backup, books.yaml, JSON lines in data/, a step, and a script that a claim can run."""
    (root / "data").mkdir()
    (root / "my_filters.py").write_text(
        "def long_enough(document, words=50):\n    return len(document.text.split()) >= words\n"
    )
    (root / "arrays.sh").write_text('test -f "$CORPUSMILL_PLAN"\n')
    (root / "takedowns.jsonl").write_text('{"id": "doc-7"}\n{"id": "doc-60"}\n')
    (root / "takedown.txt").write_text("doc-7\ndoc-60\n")
    texts = make_documents(80)
    (root / "data" / "news.jsonl").write_bytes(lines_of(texts[:50]))
    (root / "data" / "talk.jsonl").write_bytes(lines_of(texts[50:], first=50))
    (root / "items.jsonl").write_bytes(lines_of(texts[:1]).replace(b'"text"', b'"question"'))
    shared = {"source": {"paths": ["data"], "shard_bytes": "8KiB"}, "work_folder": "work"}
    forget = {"path": "takedowns.jsonl", "copies": "also"}
    web = configuration(
        root, name="web", destinations=[{"path": "outputs"}, {"path": "backup"}], forget=forget, **shared
    )
    books = configuration(root, name="books", destinations=[{"path": "outputs"}], **shared)
    for config in (web, books):
        (root / f"{config['name']}.yaml").write_text(yaml.safe_dump(config))
