"""Single commands, one after another in one folder: each reads the sources or what an earlier one wrote."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path

from typer.testing import CliRunner

from corpusmill.cli import app
from tests.sameness.corpus import DESCRIBED, LOSS, RANKED, SENTENCES
from tests.sameness.digests import Digests, digest_of
from tests.search.folders import built, small_limits
from tests.search.settings import Change, changed, configuration, first_settings
from tests.search.vocabularies import special_tokens

EOT = special_tokens()["<|endoftext|>"]
SPECIAL = " ".join(f"--special-token {token}={number}" for token, number in special_tokens().items())
KNOWN = f"--tokenizer {RANKED} --pattern cl100k_base --eot-token <|endoftext|> {SPECIAL}"
DEDUP = "dedup clean --minimum-bytes 12 --shard-bytes 700 --workers 1 --output"
SHUFFLE = "--seed 7 --memory 300 --work-folder scratch"
IN_ORDER = f"--tokenizer {DESCRIBED} --bos --bos-token <|bos|>"
MEGATRON = f"megatron {IN_ORDER} --eot-token <|endoftext|>"
NANOSET = f"nanoset {IN_ORDER} --eot-token <|endoftext|>"
TEXT = "clean/a.jsonl clean/deep"
LINES = "clean/**/*.jsonl*"  # all but a table
MIX = "mix --budget-tokens 20K --sequence-tokens 16"

# Folder -> the command that writes it. The datasets `one` and `two` are there already.
COMMANDS = {
    "dedup-remove": f"{DEDUP} dedup-remove --drop-empty",
    "dedup-annotate": f"{DEDUP} dedup-annotate --mode annotate --keep every_string",
    "dedup-fuzzy": f"{DEDUP} dedup-fuzzy --fuzzy-share 0.5 --text-field body",
    "dedup-replace": f"{DEDUP} dedup-replace --mode annotate --annotate-key score --replace-existing",
    "ngrams": "infini-gram clean --output ngrams --unigram --shard-bytes 6000 --workers 1",
    "shuffle-text": f"shuffle-text {TEXT} --output shuffle-text/lines.jsonl.zst {SHUFFLE}",
    "tokenize": f"tokenize {LINES} {KNOWN} --output tokenize",
    "shuffle-tokens": f"shuffle tokenize --output shuffle-tokens --tokens-per-shard 400 {SHUFFLE}",
    "shuffle-npy": f"shuffle one/numpy/train --output shuffle-npy --eot-id {EOT} {SHUFFLE}",
    "shuffle-slices": f"shuffle one/numpy/train --output shuffle-slices --context-tokens 16 {SHUFFLE}",
    "shuffle-tars": f"shuffle one/webdataset --output shuffle-tars --contexts-per-shard 5 {SHUFFLE}",
    "megatron": f"{MEGATRON} clean/a.jsonl clean/deep --text-field text --text-field body --output megatron/m",
    "sentences": f"{MEGATRON} {SENTENCES} --sentences --text-field sentences --output sentences/m",
    "nanoset": f"{NANOSET} {LINES} --tokens-per-shard 2000 --output nanoset",
    "nanoset-loss": f"{NANOSET} {LOSS} --loss-ranges-field no_loss_ranges --output nanoset-loss",
    "merge-megatron": "merge one/megatron --output merge-megatron/m_text_document",
    "merge-nanoset": "merge one/nanoset --output merge-nanoset/m.ds",
    "mix": f"{MIX} one=0.7 two=0.3 --seed 3 --output mix",
    "mix-by-size": f"{MIX} one two --alpha 0.5 --split 8,1,1 --output mix-by-size",
}
CHANGES: dict[str, list[Change]] = {"one": [], "two": [("source.paths", ["corpus/deep"]), ("shuffle.seed", 2)]}


def command_digests(folder: Path) -> dict[str, Digests]:
    """Of what every command writes. `folder` holds the sources; it becomes the current folder meanwhile."""
    with chdir(folder), small_limits():
        for name, changes in CHANGES.items():
            settings = changed(first_settings(name), changes)
            assert not built(folder, configuration(settings, Path(), Path(RANKED))).error
            (folder / name).symlink_to(f"outputs/{name}/latest")
        return {f"command {name}": {"files": _written(folder / name, line)} for name, line in COMMANDS.items()}


def _written(folder: Path, line: str) -> str:
    folder.mkdir()
    done = CliRunner().invoke(app, line.split(), catch_exceptions=False)
    assert done.exit_code == 0, f"{line}: {done.output}"
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    # A mixture's files name its datasets by their whole paths, for a trainer that runs anywhere.
    here = str(folder.parent.resolve()).encode()
    files = {path.relative_to(folder).as_posix(): path.read_bytes().replace(here, b"") for path in paths}
    assert files, line
    return digest_of(files)
