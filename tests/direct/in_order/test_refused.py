"""Outputs that are refused or never get their names, and lines that are rejected, in source order."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from corpusmill.cli import app
from corpusmill.direct.in_order.exports import write_megatron, write_nanoset
from corpusmill.direct.in_order.source import Source
from corpusmill.errors import ConfigError
from corpusmill.export import nanoset
from corpusmill.export.files import INCOMPLETE
from tests.direct.in_order.sources import source_of, write_lines
from tests.raising import raises


@pytest.mark.parametrize("command", ["megatron", "nanoset"])
def test_in_order_output_inside_a_source_is_refused_and_the_source_kept(tmp_path, command: str) -> None:
    """`nanoset DATA --output DATA` removed DATA/rejected.jsonl, a source, before it was read."""
    data = tmp_path / "in"
    for name in ("a", "rejected", "web.rejected"):
        write_lines(data / f"{name}.jsonl", [{"text": name}])
    before = {path: path.read_bytes() for path in data.iterdir()}
    output = data / "web" if command == "megatron" else data
    for source in (
        data,
        data / "*.jsonl",
        data / ("web.rejected.jsonl" if command == "megatron" else "rejected.jsonl"),
    ):
        asked = CliRunner().invoke(app, [command, str(source), "--output", str(output), "--tokenizer", "cl100k_base"])
        assert isinstance(asked.exception, ConfigError), asked.output
        assert "source" in str(asked.exception)
        assert {path: path.read_bytes() for path in data.iterdir()} == before


@pytest.mark.parametrize("write", [write_megatron, write_nanoset])
def test_in_order_foreign_file_of_the_quarantines_name_is_refused_and_kept(tmp_path, tokenizer, write) -> None:
    path = write_lines(tmp_path / "in" / "a.jsonl", [{"text": "good"}, "{"])
    quarantine = write_lines(tmp_path / "rejected.jsonl", ["keep"])
    source = Source([str(path)], ("text",), quarantine, max_rejected_share=0.5)
    with raises("in_order.rejected_file_of_others"):
        write(source, tmp_path / "x", tokenizer)
    assert quarantine.read_text() == "keep\n"
    quarantine.unlink()
    with raises("documents.too_many_malformed"):
        write(replace(source, max_rejected_share=0.0), tmp_path / "x", tokenizer)
    assert quarantine.is_file()
    write(source, tmp_path / "x", tokenizer)  # its own of the run before is replaced


def test_megatron_several_keys_of_standard_input_are_refused_before_any_output(tmp_path, tokenizer) -> None:
    source = Source(["-"], ("text", "title"), tmp_path / "rejected.jsonl")
    with raises("in_order.several_keys_of_standard_input", "text, title"):
        write_megatron(source, tmp_path / "out" / "x", tokenizer)
    assert not list(tmp_path.iterdir())


def test_nanoset_above_the_rejected_share_no_file_gets_its_name(tmp_path, tokenizer) -> None:
    path = write_lines(tmp_path / "in" / "a.jsonl", [*({"text": f"some words {i}"} for i in range(50)), "{"])
    with raises("documents.too_many_malformed"):
        write_nanoset(source_of(path), tmp_path / "out", tokenizer, maximum_tokens=20)
    assert not (tmp_path / "out").exists()
    written = write_nanoset(source_of(path, max_rejected_share=0.1), tmp_path / "out", tokenizer, maximum_tokens=20)
    assert len(written) > 2


def test_nanoset_killed_run_leaves_no_file_under_its_name_and_the_next_run_works(tmp_path, tokenizer) -> None:
    path = write_lines(tmp_path / "in" / "a.jsonl", [{"text": f"some words {i}"} for i in range(50)])
    out, child = tmp_path / "out", os.fork()
    if child == 0:
        write_file = nanoset.write_file

        def killed(folder, stem, *arguments, **wanted):
            if stem.startswith("00002"):
                os.kill(os.getpid(), signal.SIGKILL)
            return write_file(folder, stem, *arguments, **wanted)

        nanoset.write_file = killed
        write_nanoset(source_of(path), out, tokenizer, maximum_tokens=20)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert [item.name for item in out.iterdir()] == [INCOMPLETE]
    written = write_nanoset(source_of(path), out, tokenizer, maximum_tokens=20)
    assert sorted(item.name for item in out.glob("*.ds")) == [f"{item.path.name}.ds" for item in written]
    assert not (out / INCOMPLETE).exists()


@pytest.mark.parametrize("ending", [".ds", ".ds.index", ".ds.metadata", ".ds.loss"])
def test_nanoset_file_of_another_dataset_under_a_name_of_the_output_is_refused(tmp_path, tokenizer, ending) -> None:
    """A stale loss mask beside new tokens would mask other ones."""
    path = write_lines(tmp_path / "in" / "a.jsonl", [{"text": "good"}])
    stale = write_lines(tmp_path / "out" / f"00000_unshuffled{ending}", ["stale"])
    with raises("output.exists"):
        write_nanoset(source_of(path), tmp_path / "out", tokenizer)
    assert stale.read_text() == "stale\n"


RANGES = ["[[5,3]]", "[[true,3]]", "[[1.5,3]]", "[[3,99999]]", "[[-1,2]]", "[[1]]", "[1,2]", '["12"]', "5", "{}", '""']


@pytest.mark.parametrize("ranges", RANGES)
def test_nanoset_malformed_ranges_are_rejected_as_such(tmp_path, tokenizer, ranges: str) -> None:
    rows = [{"text": "some", "mask": [[0, 4]]}, f'{{"text": "five!", "mask": {ranges}}}']
    source = source_of(write_lines(tmp_path / "in" / "a.jsonl", rows), ranges_key="mask", max_rejected_share=0.5)
    write_nanoset(source, tmp_path / "out", tokenizer)
    assert source.rejected == {"malformed_ranges": 1}


@pytest.mark.parametrize("ranges", ["[]", "null", "[[0,5]]", "[[5,5]]"])
def test_nanoset_ranges_up_to_the_texts_end_or_none_are_accepted(tmp_path, tokenizer, ranges: str) -> None:
    source = source_of(
        write_lines(tmp_path / "in" / "a.jsonl", [f'{{"text": "five!", "mask": {ranges}}}']), ranges_key="mask"
    )
    (item,) = write_nanoset(source, tmp_path / "out", tokenizer)
    assert item.path.with_name(f"{item.path.name}.ds.loss").is_file()


def test_nanoset_key_of_ranges_that_no_line_has_is_an_error(tmp_path, tokenizer) -> None:
    path = write_lines(tmp_path / "in" / "a.jsonl", [{"text": "some", "mask": [[0, 4]]}])
    with raises("in_order.no_ranges", "typo"):
        write_nanoset(source_of(path, ranges_key="typo"), tmp_path / "out", tokenizer)
    assert not (tmp_path / "out").exists()
