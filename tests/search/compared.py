"""A long-lived work folder of two datasets, and what is compared after every edit.

The current dataset is built in the long-lived folder and from scratch (another work folder, another destination, the
same sources): every delivered file must be the same byte for byte, or both must end in the same kind of error; `verify`
must find nothing; the other dataset's files must be as they were.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from corpusmill.config import DatasetConfig
from tests.search import beside
from tests.search.folders import Result, built, built_from_scratch, delivered
from tests.search.settings import Change, Settings, changed, configuration, first_settings, with_files_beside
from tests.search.sources import NAMES, Corpus, Source, filled
from tests.search.vocabularies import write_vocabulary

CARD = {"README.md", "croissant.json"}  # of how the files were made: no part of the version (docs/card.md)
MEMORY = Path("/dev/shm")  # noqa: S108 (deliveries and receipts are flushed; in memory that costs nothing)


class Compared(RuleBasedStateMachine):
    """Without rules. `build` is how the long-lived folder is built; the build from scratch is always in process."""

    build: ClassVar[Callable[[Path, DatasetConfig], Result]] = staticmethod(built)
    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="search-", dir=MEMORY if MEMORY.is_dir() else None))
        self.root = self.folder / "long-lived"
        self.root.mkdir()
        self.corpus = Corpus(self.folder / "corpus")
        self.vocabulary = self.folder / "tiny.tiktoken"
        write_vocabulary(self.vocabulary, "plain")
        beside.write_first(self.folder)
        sys.path.append(str(self.folder / beside.CODE))
        self.settings: dict[str, Settings] = {name: first_settings(name) for name in ("one", "two")}
        self.current = "one"
        self.accepted = dict(self.settings)
        self.last: dict[str, Result] = {}
        self.versions: dict[tuple[str, str], Result] = {}
        self.edited = False
        self.left_out = False  # whether the folder is not compared (search)

    def teardown(self) -> None:
        sys.path.remove(str(self.folder / beside.CODE))
        shutil.rmtree(self.folder)

    def config(self, wanted: list[Change] | None = None) -> DatasetConfig:
        """The current dataset's configuration; with changes, as it would be with them."""
        settings = changed(self.settings[self.current], wanted or [])
        return configuration(settings, self.folder, self.vocabulary)

    def count(self, what: str) -> None:
        """One more step of this kind; what was edited is compared after it."""
        self.seen["steps"] += 1
        self.seen[what] += 1
        self.edited = True

    # ---- what is compared ----

    @invariant()
    def files_are_those_of_a_build_from_scratch(self) -> None:
        if self.left_out or not self.edited:
            return
        self.edited = False
        config = self.config()
        mine = type(self).build(self.root, config)
        scratch = self.from_scratch(config)
        differences = mine.differences(scratch)
        assert not differences, differences
        assert not mine.findings, mine.findings
        self.seen["refused" if mine.error else "delivered"] += 1
        if mine.error:
            self.seen[mine.error] += 1
            assert not delivered(self.root, self.current).differences(self.latest(self.current))
            # Back to settings that may be accepted, or most steps would end in the same refusal.
            given, known = self.settings[self.current], self.accepted[self.current]
            self.settings[self.current] = known if given != known else first_settings(self.current)
        else:
            self.accepted[self.current] = self.settings[self.current]
            self.take(mine)
        other = "two" if self.current == "one" else "one"
        assert not delivered(self.root, other).differences(self.latest(other)), "another dataset changed"

    def take(self, mine: Result) -> None:
        """What was delivered is the latest version, and one that was there before is as it was."""
        self.last[self.current] = mine
        first = self.versions.setdefault((self.current, mine.version), mine)
        assert set(first.differences(mine)) <= CARD, "a version changed"

    def latest(self, name: str) -> Result:
        return self.last.get(name, Result(error="nothing delivered"))

    def from_scratch(self, config: DatasetConfig) -> Result:
        """What a build comes to where nothing was built before."""
        vocabulary = self.folder / "copy.tiktoken"
        shutil.copyfile(self.vocabulary, vocabulary)
        tokenizer = config.tokenizer.model_copy(update={"file": str(vocabulary)})
        return built_from_scratch(self.folder / "scratch", config.model_copy(update={"tokenizer": tokenizer}))

    @initialize(
        files=st.dictionaries(st.sampled_from(NAMES), filled, min_size=2, max_size=5),
        wanted=st.lists(with_files_beside, max_size=4),
    )
    def begin(self, files: dict[str, Source], wanted: list[Change]) -> None:
        for name, source in files.items():
            self.put(name, source)
        self.settings["one"] = changed(self.settings["one"], wanted)
        self.edited = True

    def put(self, name: str, source: Source, *, link: bool = False) -> None:
        if name in self.corpus.files:
            self.corpus.remove(name)
        self.corpus.put(name, source, link=link)

    def nth(self, number: int) -> str:
        names = sorted(self.corpus.files)
        return names[number % len(names)]
