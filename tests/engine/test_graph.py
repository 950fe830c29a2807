"""The order of stages: every stage after those that it waits for, and what is derived from that."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from corpusmill.builds.graph import GRAPH
from corpusmill.engine.ledger import Outcome
from corpusmill.engine.stage import EVERY_OTHER, Graph, Stage
from corpusmill.engine.work import EveryTime


def stage(name: str, after: tuple[str, ...] = ()) -> Stage:
    work = EveryTime(lambda _build, _unit: [], lambda _build, _unit: {}, lambda *_: Outcome(counts={}))
    return Stage(name, version=1, after=after, work=work)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Stages `s0`, `s1`, ... that wait for some of those with smaller numbers, listed in any order."""
    stages = [
        stage(f"s{number}", tuple(sorted(draw(st.sets(st.sampled_from([f"s{other}" for other in range(number)]))))))
        if number
        else stage("s0")
        for number in range(draw(st.integers(1, 8)))
    ]
    return Graph(draw(st.permutations(stages)))


def test_stage_that_gives_files_back_names_a_later_stage_as_the_last_that_reads_them() -> None:
    for item in GRAPH:
        assert item.read_until or not item.reclaimed
        if item.read_until:
            assert item.name in GRAPH.before(item.read_until)


@given(graphs())
def test_graph_lists_every_stage_once_and_after_those_that_it_waits_for(graph: Graph) -> None:
    seen: set[str] = set()
    for wave in graph.waves():
        for name in wave:
            assert set(graph.after(name)) <= seen
        assert seen.isdisjoint(wave)
        seen |= set(wave)
    assert len(seen) == len(graph.names) == len(set(graph.names))
    assert [name for wave in graph.waves() for name in wave] == list(graph.names)


@given(graphs(), st.data())
def test_graph_until_a_stage_holds_what_it_waits_for_and_nothing_else(graph: Graph, data: st.DataObject) -> None:
    last = data.draw(st.sampled_from(graph.names))
    needed, size = {last}, 0
    while len(needed) > size:
        size = len(needed)
        needed |= {other for name in needed for other in graph.after(name)}
    assert {name for wave in graph.waves(last) for name in wave} == needed
    assert {*graph.before(last), last} == needed


def test_graph_stage_after_every_other_comes_last_wherever_it_is_listed() -> None:
    graph = Graph([stage("last", EVERY_OTHER), stage("a"), stage("b", ("a",)), stage("c")])
    assert graph.names[-1] == "last"
    assert set(graph.before("last")) == {"a", "b", "c"}


def test_graph_of_builds_is_the_chain_that_the_docs_draw() -> None:
    chain = ["download", "index", "anchor", "shared", "context", "settle", "border", "match", "union"]
    chain += ["tokenize", "audit", "scatter", "gather", "export", "manifest"]
    for earlier, later in pairwise([*chain, "upload", "report"]):
        assert earlier in GRAPH.before(later)
    assert "writeback" in GRAPH.before("manifest")
    assert "writeback" not in GRAPH.before("tokenize")
