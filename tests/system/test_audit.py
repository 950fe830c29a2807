"""The audit within a build: one other id stops it before anything is exported, and so does a source that changed."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from corpusmill.builds.graph import open_build
from corpusmill.builds.local import run_build
from corpusmill.builds.plan import plan_dataset
from corpusmill.config import check_config
from corpusmill.engine.build import Build
from corpusmill.tokens.stages.audit import DATASET, require_audited, sampled_documents
from corpusmill.tokens.tokenizer import Tokenizer
from tests.oracles.spelling import words_of
from tests.raising import raises
from tests.system.corpus import configuration, lines_of, write_corpus
from tests.tokens.vocabularies import GPT2, described, shared, with_added, written

WORDS = ["water", "stone", "naïve", "the", "of", "light"]


def planned(root: Path, **changes: object) -> tuple[Path, Build]:
    values = configuration(root, exports={"nanoset": {}}, **{"dedup": {"mode": "none"}, **changes})
    receipt = plan_dataset(check_config(values, where="test"))
    return receipt, open_build(receipt)


def outputs(root: Path) -> list[Path]:
    return [path for path in (root / "outputs").rglob("*") if path.is_file()]


def test_audit_one_other_id_stops_the_build_before_anything_is_exported(tmp_path, monkeypatch) -> None:
    """An engine that splits one token in two: the ids decode to the text, so that only the audit can tell."""
    write_corpus(tmp_path / "corpus", documents=24)
    receipt, build = planned(tmp_path)
    encode = Tokenizer.encode_counted

    def splitting(self: Tokenizer, texts: list[bytes]) -> tuple[np.ndarray, np.ndarray, int]:
        tokens, ends, by_reference = encode(self, texts)
        spelling = self.reference.spelled()
        words = dict(zip(spelling.ids.tolist(), words_of(spelling), strict=True))
        ids = {token: number for number, token in words.items()}
        for place, number in enumerate(tokens.tolist()):
            word = words[number]
            if len(word) > 1 and word[:1] in ids and word[1:] in ids:
                tokens = np.concatenate([tokens[:place], [ids[word[:1]], ids[word[1:]]], tokens[place + 1 :]])
                return tokens.astype(self.dtype), ends + (ends > place), by_reference
        return tokens, ends, by_reference

    run_build(receipt, workers=1, until="union")
    with monkeypatch.context() as patched:
        patched.setattr(Tokenizer, "encode_counted", splitting)
        for shard in build.units("tokenize"):
            build.run("tokenize", shard)
    with raises("audit.engines_disagree", "gigatoken", "tiktoken", "a1.jsonl, line"):
        run_build(receipt, workers=1)
    with raises("step.not_finished"):
        require_audited(open_build(receipt))
    for stage in ("scatter", "gather", "export", "manifest"):
        assert not list((build.work / stage).glob("*")), stage
    assert outputs(tmp_path) == []


def test_audit_is_wider_where_decoding_proves_nothing(tmp_path) -> None:
    """A token that takes a space with it: its documents do not decode to their text."""
    write_corpus(tmp_path / "corpus", documents=60)
    samples = {}
    for name, description in (("plain", described(GPT2)), ("odd", with_added(described(GPT2), lstrip=True))):
        (tmp_path / name).mkdir()
        tokenizer = {"name": name, "file": written(description, tmp_path / name), "engine": "tokenizers"}
        audit = {"share": 0.2, "minimum_documents": 1}
        receipt, build = planned(tmp_path, tokenizer=tokenizer, audit=audit)
        run_build(receipt, workers=1, until="audit")
        unproven = build.total("tokenize", "documents_unproven")
        assert unproven == (build.total("tokenize", "documents_out") if name == "odd" else 0)
        shards = build.units("tokenize")
        samples[name] = sum(build.receipt("audit", shard).counts["sampled"] for shard in shards)
    assert 2 * samples["plain"] < samples["odd"] <= 4 * samples["plain"]


def test_audit_default_share_and_minimum_are_those_of_every_shard_together(tmp_path) -> None:
    write_corpus(tmp_path / "corpus", documents=120)
    receipt, build = planned(tmp_path, audit={"share": 0.1, "minimum_documents": 30})
    run_build(receipt, workers=1, until="audit")
    total = build.total("tokenize", "documents_out")
    shards = build.units("tokenize")
    assert 30 <= sum(sampled_documents(build, shard) for shard in shards) <= 30 + len(shards)
    defaults = planned(tmp_path)[1]
    assert (defaults.config.audit.share, defaults.config.audit.minimum_documents) == (0.005, 1000)
    assert sum(sampled_documents(defaults, shard) for shard in shards) == total < 1000  # all there are
    for shard in shards:
        counts = build.receipt("audit", shard).counts
        assert counts["documents"] == counts["sampled"] == sampled_documents(build, shard)
    assert build.receipt("audit", DATASET).counts["documents"] > 90


def write_text(root: Path, words: list[str]) -> None:
    """One source file of about 100 kB: the band leaves sources below 64 KiB alone."""
    (root / "corpus").mkdir(parents=True, exist_ok=True)
    rng = random.Random(3)
    texts = [" ".join(rng.choices(words, k=400)) for _ in range(45)]
    (root / "corpus" / "a.jsonl").write_bytes(lines_of(texts))


def test_audit_bytes_per_token_outside_the_band_of_the_last_build_stop_the_build(tmp_path) -> None:
    write_text(tmp_path, WORDS)
    first = planned(tmp_path)[0]
    run_build(first, workers=1)  # the first build has no band
    before = {path.name for path in outputs(tmp_path)}

    write_text(tmp_path, [*WORDS, "stones"])  # other text, much the same bytes per token
    run_build(planned(tmp_path)[0], workers=1)

    write_text(tmp_path, ["0x7f3a9bd1", "zqxjv", "Ω≈ç√"])
    with raises("audit.bytes_per_token", "20%") as caught:
        run_build(planned(tmp_path)[0], workers=1)
    printed = str(caught.value)
    assert "audit.bytes_per_token_band" in printed
    assert " bytes, " in printed
    assert {path.name for path in outputs(tmp_path)} >= before

    run_build(planned(tmp_path, audit={"bytes_per_token_band": 1.0})[0], workers=1)  # raised once: this one counts now
    run_build(planned(tmp_path)[0], workers=1)


def test_audit_another_tokenizer_has_no_band_to_the_first(tmp_path) -> None:
    write_text(tmp_path, ["中文", "日本語", "한국어"])
    run_build(planned(tmp_path)[0], workers=1)
    tokenizer = {"name": "r50k_base", "file": str(shared("r50k_base.tiktoken"))}
    receipt, build = planned(tmp_path, tokenizer=tokenizer)
    run_build(receipt, workers=1, until="audit")
    _, last = build.receipt("audit", DATASET), build.total("tokenize", "tokens")
    assert last > 1.2 * planned(tmp_path)[1].total("tokenize", "tokens")


def test_audit_compares_only_builds_of_equal_settings(tmp_path) -> None:
    """An experiment may change what is left of the text; the next build is compared with the last one like itself."""
    rng = random.Random(5)
    once = " ".join(rng.choices(WORDS, k=20_000))
    rare = ["".join(rng.choices("0123456789abcdefghijklmnopqrstuvwxyz", k=2000)) for _ in range(60)]
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/a.jsonl").write_bytes(lines_of([*rare, once, once, once, once]))
    run_build(planned(tmp_path)[0], workers=1)
    run_build(planned(tmp_path, dedup={"mode": "remove", "minimum_bytes": 8})[0], workers=1)
    run_build(planned(tmp_path, shuffle={"seed": 9})[0], workers=1)  # does not change the text

    write_text(tmp_path, ["0x7f3a9bd1", "zqxjv", "Ω≈ç√"])
    with raises("audit.bytes_per_token", "20%", f"where     {tmp_path / 'corpus'}\n"):
        run_build(planned(tmp_path)[0], workers=1)
