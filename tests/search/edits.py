"""Random edits of a long-lived work folder: what tests/search/compared.py compares is compared after every one.

Rules edit the sources and the settings of two datasets, kill builds, collect garbage, reprocess shards, plan other
settings, damage intermediates, lose delivered files.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from corpusmill.builds.chain import STEP_OF
from corpusmill.builds.graph import GRAPH
from corpusmill.builds.local import run_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.builds.reprocess import ask_for_shard
from corpusmill.engine.garbage import find_garbage, remove_garbage
from corpusmill.engine.ledger import RECEIPT_NAME
from corpusmill.engine.preview import preview, render_preview
from corpusmill.errors import CorpusmillError
from tests.search import beside
from tests.search.compared import Compared
from tests.search.folders import build_killed, built, delivered, planned, rooted
from tests.search.settings import Change, changed
from tests.search.settings import with_files_beside as changes
from tests.search.sources import NAMES, Source, documents, forms, lines, sources
from tests.search.vocabularies import MERGES, write_vocabulary

STAGES = list(GRAPH.names)

numbers = st.integers(0, 30)
some_changes = st.lists(changes, min_size=1, max_size=3)


class LongLivedFolder(Compared):
    """Every rule is an edit."""

    @rule(name=st.sampled_from(NAMES), source=sources, link=st.booleans())
    def add_file(self, name: str, source: Source, link: bool) -> None:
        self.put(name, source, link=link)
        self.count("add a file" if not link else "add a link")

    @precondition(lambda self: self.corpus.files)
    @rule(number=numbers, more=st.lists(lines, min_size=1, max_size=3))
    def append_documents(self, number: int, more: list[str]) -> None:
        name = self.nth(number)
        before = self.corpus.files[name]
        after = replace(before, lines=(*before.lines, *more))
        self.corpus.change(name, after, keep_times=False)
        self.count("append documents")

    @precondition(lambda self: self.corpus.files)
    @rule(number=numbers, line=documents, more=st.booleans())
    def change_the_last_document(self, number: int, line: str, more: bool) -> None:
        """The least edit: one document more, or one less; most of what was built before may be used again."""
        name = self.nth(number)
        before = self.corpus.files[name]
        after = (*before.lines, line) if more else before.lines[:-1]
        self.corpus.change(name, replace(before, lines=after), keep_times=False)
        self.count("one document more" if more else "one document less")

    @precondition(lambda self: len(self.corpus.files) > 1)
    @rule(number=numbers)
    def remove_file(self, number: int) -> None:
        self.corpus.remove(self.nth(number))
        self.count("remove a file")

    @precondition(lambda self: self.corpus.files)
    @rule(number=numbers, new=st.sampled_from(NAMES))
    def rename_file(self, number: int, new: str) -> None:
        name = self.nth(number)
        if Path(name).suffix == Path(new).suffix and new not in self.corpus.files:
            self.corpus.rename(name, new)
            self.count("rename a file")

    @precondition(lambda self: self.corpus.files)
    @rule(number=numbers, place=numbers, line=lines, keep_times=st.booleans())
    def change_document(self, number: int, place: int, line: str, keep_times: bool) -> None:
        name = self.nth(number)
        before = self.corpus.files[name].lines
        if before:
            at = place % len(before)
            source = replace(self.corpus.files[name], lines=(*before[:at], line, *before[at + 1 :]))
            self.corpus.change(name, source, keep_times=keep_times)
            self.count("change a document")

    @precondition(lambda self: self.corpus.files)
    @rule(number=numbers, swap=st.booleans())
    def change_within_the_same_size_and_times(self, number: int, swap: bool) -> None:
        name = self.nth(number)
        source = self.corpus.files[name]
        new = source.lines[::-1] if swap else tuple(line.replace("stone", "Stone") for line in source.lines)
        path = self.corpus.folder / name
        size = path.stat().st_size
        self.corpus.change(name, replace(source, lines=new), keep_times=True)
        self.count("change within size and times" if path.stat().st_size == size else "change within times")

    @precondition(lambda self: self.corpus.files)
    @rule(number=numbers, form=st.fixed_dictionaries(forms))
    def recompress(self, number: int, form: dict[str, Any]) -> None:
        name = self.nth(number)
        self.corpus.change(name, replace(self.corpus.files[name], **form), keep_times=False)
        self.count("recompress")

    @rule(edit=beside.edits)
    def change_a_file_beside(self, edit: beside.Edit) -> None:
        """Other decisions, takedowns, items, code of steps, or text to deduplicate against."""
        beside.write(self.folder, edit)
        self.count(f"change {edit[0]}")

    @precondition(lambda self: beside.STEPS in str(self.settings[self.current].get("steps")))
    @rule()
    def import_steps(self) -> None:
        """As a script or notebook may that builds in the same process."""
        import_module(beside.STEPS)
        self.count("import steps")

    # ---- settings ----

    @rule(wanted=some_changes)
    def change_settings(self, wanted: list[Change]) -> None:
        self.settings[self.current] = changed(self.settings[self.current], wanted)
        self.count("change settings")

    change_other_settings = change_more_settings = change_settings  # drawn three times as often

    @rule(wanted=some_changes, back=st.booleans())
    def try_settings_and_go_back(self, wanted: list[Change], back: bool) -> None:
        """A whole build with other settings in between."""
        config = self.config(wanted)
        mine = type(self).build(self.root, config)
        assert not mine.findings, mine.findings
        if not mine.error:
            self.take(mine)
        if not back:
            self.settings[self.current] = changed(self.settings[self.current], wanted)
        self.count("there and back" if back else "there and stay")

    @rule(wanted=st.lists(changes, max_size=3))
    def other_dataset(self, wanted: list[Change]) -> None:
        self.current = "two" if self.current == "one" else "one"
        self.settings[self.current] = changed(self.settings[self.current], wanted)
        self.count("the other dataset")

    @rule(kind=st.sampled_from(sorted(MERGES)))
    def replace_vocabulary(self, kind: str) -> None:
        write_vocabulary(self.vocabulary, kind)
        self.count("replace the vocabulary")

    # ---- what happens to builds ----

    @rule(moment=st.one_of(st.integers(1, 40), st.integers(1, 400)), wanted=st.lists(changes, max_size=2))
    def kill(self, moment: int, wanted: list[Change]) -> None:
        hit = build_killed(self.root, self.config(wanted), moment)
        if not (now := delivered(self.root, self.current)).error:
            assert not now.missing_or_wrong()
            self.last[self.current] = now
        self.count("kill" if hit else "killed too late")

    @rule(keep_plans=st.integers(1, 2))
    def collect_garbage(self, keep_plans: int) -> None:
        work = self.root / "work" / self.current
        if work.is_dir():
            with rooted(self.root):
                remove_garbage(work, GRAPH, find_garbage(work, GRAPH, keep_plans=keep_plans))
            self.count("gc")

    @rule(stage=st.sampled_from(GRAPH.per_shard), number=numbers)
    def reprocess(self, stage: str, number: int) -> None:
        try:
            build = planned(self.root, self.config())
        except CorpusmillError:
            return
        names = build.plan.shard_names()
        with rooted(self.root):
            ask_for_shard(build, stage, names[number % len(names)])
        self.count("reprocess")

    @rule(wanted=some_changes, until=st.sampled_from(["plan", "union", "tokenize", "gather", "export"]))
    def stop_early(self, wanted: list[Change], until: str) -> None:
        """A plan, a dry run, a single export: other settings, and not to the end."""
        with rooted(self.root):
            try:
                plan_receipt = plan_dataset(self.config(wanted))
                if until != "plan":
                    run_build(plan_receipt, workers=1, until=until)
                render_preview(preview(planned(self.root, self.config())), STEP_OF)
            except CorpusmillError:
                self.seen["stopped by an error"] += 1
        self.count("stop early")

    @rule(number=st.integers(0, 10_000), damage=st.sampled_from(["flip", "cut", "remove", "receipt"]))
    def damage(self, number: int, damage: str) -> None:
        """A file of the work folder is changed behind the program's back; the next build reads it all again."""
        files = sorted(
            path
            for stage in STAGES
            for path in (self.root / "work" / self.current / stage).rglob("*")
            if path.is_file() and path.name != RECEIPT_NAME and not path.name.startswith(".")
        )
        if not files:
            return
        path = files[number % len(files)]
        content = path.read_bytes()
        if damage == "receipt":
            receipt = next(parent / RECEIPT_NAME for parent in path.parents if (parent / RECEIPT_NAME).exists())
            receipt.write_bytes(receipt.read_bytes()[:-20])
        elif damage == "remove":
            path.unlink()
        elif content:
            at = number % len(content)
            new = content[:at] if damage == "cut" else content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]
            path.write_bytes(new)
        built(self.root, self.config(), verify=True)
        self.last[self.current] = delivered(self.root, self.current)
        self.count(f"damage: {damage}")

    @precondition(lambda self: not self.latest(self.current).error)
    @rule(number=numbers)
    def lose_a_delivered_file(self, number: int) -> None:
        folder = (self.root / "outputs" / self.current / "latest").resolve()
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        path = files[number % len(files)]
        path.unlink()
        mended = built(self.root, self.config())
        self.last[self.current] = mended if not mended.error else delivered(self.root, self.current)
        self.count("lose a delivered file")
