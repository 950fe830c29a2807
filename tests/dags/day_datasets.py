"""The three small datasets of an Airflow's day: their sources and configuration files, and what is edited in them."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.dags.live import Live
from tests.search.vocabularies import special_tokens, write_vocabulary
from tests.system.corpus import lines_of, make_documents, write_corpus

NAMES = ("apples", "berries", "cherries")  # the last is built after the first, too
EXPORTS: dict[str, dict[str, Any]] = {
    "nanoset": {"file_bytes": "40KiB"},
    "megatron": {"part_bytes": "40KiB"},
    "numpy": {"tokens_per_shard": 20000},
    "webdataset": {"context_tokens": 129, "contexts_per_shard": 200},
}


@dataclass
class Datasets:
    """Below the folder of an Airflow; `configurations` is what their files say, or will when they are back."""

    live: Live
    random: random.Random

    def __post_init__(self) -> None:
        self.configurations: dict[str, dict[str, Any]] = {}
        vocabulary = self.live.folder / "tiny.tiktoken"
        write_vocabulary(vocabulary, "plain")
        tokenizer = {
            "name": "tiny",
            "file": str(vocabulary),
            "pattern": "cl100k_base",
            "special_tokens": special_tokens(),
            "eot": "<|endoftext|>",
            "pad": "<|pad|>",
        }
        for number, name in enumerate(NAMES):
            write_corpus(self.sources(name), documents=16, seed=number)
            export = list(EXPORTS)[number]
            self.configurations[name] = {
                "name": name,
                "source": {"paths": [str(self.sources(name))], "shard_bytes": "6KiB"},
                "dedup": {"mode": "remove", "minimum_bytes": 100},
                "tokenizer": tokenizer,
                "shuffle": {"seed": 7},
                "exports": {export: EXPORTS[export]},
                "destinations": [{"path": "outputs"}],
                **({"dag": {"after": [NAMES[0]]}} if name == NAMES[-1] else {}),
            }
            self.live.configure(self.configurations[name])

    def sources(self, name: str) -> Path:
        return self.live.folder / "sources" / name

    def file(self, name: str) -> Path:
        return self.live.folder / "dags" / "datasets" / f"{name}.yaml"

    def edit_sources(self, name: str, run: str) -> str:
        """Append to a file, add one or remove one; as an editor does, by renaming."""
        added = sorted(self.sources(name).glob("day-*.jsonl"))
        if added and self.random.random() < 0.3:
            path = self.random.choice(added)
            path.unlink()
            return f"{name}: {path.name} removed"
        path = self.sources(name) / (f"{run}.jsonl" if self.random.random() < 0.5 else "a1.jsonl")
        before = path.read_bytes() if path.exists() else b""
        temporary = path.with_suffix(".new")
        texts = make_documents(self.random.randrange(1, 5), self.random.randrange(10**6))
        temporary.write_bytes(before + lines_of(texts, first=self.random.randrange(10**6)))
        temporary.replace(path)
        return f"{name}: {len(texts)} documents more in {path.name}"

    def edit_configuration(self, name: str) -> str:
        """Another value of a key, in a file that may be deleted: then of the file that comes back."""
        config = self.configurations[name]
        export = self.random.choice(list(EXPORTS))
        exports = {**config["exports"], export: EXPORTS[export]}
        section, keys = self.random.choice(
            [
                ("shuffle", {"seed": self.random.randrange(6)}),
                ("dedup", {"mode": "remove", "minimum_bytes": self.random.choice([60, 100, 300])}),
                ("dedup", {"mode": "none"}),
                ("source", config["source"] | {"shard_bytes": self.random.choice(["4KiB", "6KiB", "1MiB"])}),
                ("exports", exports if len(exports) <= 2 else {export: EXPORTS[export]}),
            ]
        )
        self.configurations[name] = config | {section: keys}
        if self.file(name).exists():
            self.live.configure(self.configurations[name])
        return f"{name}: {section} {json.dumps({key: keys[key] for key in keys if key != 'paths'})}"

    def delete(self, name: str) -> str:
        self.file(name).unlink(missing_ok=True)
        return name

    def restore(self, name: str) -> str:
        deleted = [item for item in NAMES if not self.file(item).exists()]
        name = deleted[0] if deleted else name
        self.live.configure(self.configurations[name])
        return f"{name}{'' if deleted else ', which was there'}"
