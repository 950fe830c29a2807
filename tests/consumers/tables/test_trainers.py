"""transformers' Trainer and TRL's SFTTrainer train on rows of ids: each row once, and no document sees another."""

from __future__ import annotations

import os
from collections import Counter
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import datasets
import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments
from trl import SFTConfig, SFTTrainer

LATEST = Path(os.environ["CORPUSMILL_CONSUMER_DATASET"]) / "ordered" / "latest"
LENGTH = 128
QUIET = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "num_train_epochs": 1}


def rows_of(kind: str, columns: list[str], folder: Path) -> datasets.Dataset:
    loaded = datasets.load_dataset("parquet", data_dir=str(LATEST / kind), split="train", cache_dir=str(folder))
    return loaded.select_columns(columns)


def tiny_model(rows: datasets.Dataset) -> LlamaForCausalLM:
    torch.manual_seed(1)
    ids = 1 + max(max(row) for row in rows["input_ids"])
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=ids, max_position_embeddings=4096, initializer_range=1.0, **sizes))


def seen_by(model: LlamaForCausalLM) -> list[dict[str, Any]]:
    """Fills with what the model is given."""
    seen: list[dict[str, Any]] = []
    model.register_forward_pre_hook(lambda _model, _args, given: seen.append(given), with_kwargs=True)
    return seen


def assert_documents_are_alone(model: LlamaForCausalLM, batch: dict[str, Any], pieces: list[list[int]]) -> None:
    """The logits of rows are those of each of their documents, given alone; without positions they would not be."""
    with torch.no_grad():
        packed = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"]).logits.flatten(0, 1)
        alone = torch.cat([model(input_ids=torch.tensor([piece])).logits[0] for piece in pieces])
        mixed = model(input_ids=batch["input_ids"]).logits.flatten(0, 1)
    torch.testing.assert_close(packed, alone, atol=1e-3, rtol=1e-3)
    assert not torch.allclose(mixed, alone, atol=0.1)


def pieces_of(rows: list[dict[str, Any]]) -> list[list[int]]:
    bounds = [(row["input_ids"], pairwise([0, *accumulate(row["seq_lengths"])])) for row in rows]
    return [ids[first:last] for ids, places in bounds for first, last in places]


def test_trainer_takes_contexts_by_its_default_collator_and_no_document_sees_another(tmp_path: Path) -> None:
    every = rows_of("parquet_contexts", ["input_ids", "labels", "position_ids", "seq_lengths"], tmp_path)
    rows = every.filter(lambda row: len(row["input_ids"]) == LENGTH)
    assert len(rows) == len(every) - 1  # the shard's last is shorter
    model = tiny_model(rows)
    seen = seen_by(model)
    settings = TrainingArguments(str(tmp_path / "out"), per_device_train_batch_size=16, learning_rate=0.0, **QUIET)
    trainer = Trainer(model, settings, train_dataset=rows)
    assert trainer.train().training_loss > 0
    read = [row.tolist() for batch in seen for row in batch["input_ids"]]
    assert Counter(map(tuple, read)) == Counter(map(tuple, rows["input_ids"]))
    assert all("attention_mask" not in batch for batch in seen)
    by_ids = {tuple(row["input_ids"]): row for row in rows}
    first = [by_ids[tuple(row.tolist())] for row in seen[0]["input_ids"]]
    assert_documents_are_alone(model, seen[0], pieces_of(first))


def sft(rows: datasets.Dataset, folder: Path, **settings: Any) -> tuple[LlamaForCausalLM, list[dict[str, Any]]]:
    special = {"pad_token": "<pad>", "eos_token": "<eos>"}
    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1}))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **special)
    model = tiny_model(rows)
    seen = seen_by(model)
    wanted = SFTConfig(
        str(folder / "out"), packing=False, max_length=None, learning_rate=0.0, bf16=False,
        activation_checkpointing=False, **settings, **QUIET,
    )  # fmt: skip
    SFTTrainer(model, wanted, train_dataset=rows, processing_class=tokenizer).train()
    return model, seen


def test_trl_without_padding_takes_contexts_and_their_lengths_part_the_documents(tmp_path: Path) -> None:
    rows = rows_of("parquet_contexts", ["input_ids", "seq_lengths"], tmp_path)
    model, seen = sft(rows, tmp_path, padding_free=True, per_device_train_batch_size=16)
    pieces = Counter(map(tuple, pieces_of(list(rows))))
    for batch in seen:
        ids, places = batch["input_ids"][0], batch["position_ids"][0]
        begins = [*(places == 0).nonzero().flatten().tolist(), len(ids)]
        parts = [ids[first:last].tolist() for first, last in pairwise(begins)]
        pieces.subtract(map(tuple, parts))
        assert all(places[first:last].tolist() == list(range(last - first)) for first, last in pairwise(begins))
        assert (batch["labels"][0] == -100).nonzero().flatten().tolist() == begins[:-1]
        assert batch.get("attention_mask") is None
    assert not any(pieces.values())
    assert_documents_are_alone(model, seen[-1], parts)


def test_trl_takes_documents_of_any_length(tmp_path: Path) -> None:
    rows = rows_of("parquet_documents", ["input_ids"], tmp_path).select(range(40))
    _, seen = sft(rows, tmp_path, per_device_train_batch_size=16)
    read = [
        tuple(ids[mask.bool()].tolist())
        for batch in seen
        for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
    ]
    assert Counter(read) == Counter(map(tuple, rows["input_ids"]))
