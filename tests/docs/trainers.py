"""What people train with, and what to write in `exports` for it: the table at the head of docs/formats.md."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """Trainers that read one form: the section `exports` as YAML in a line, the vocabulary of its tokenizer, a note."""

    trainers: str
    exports: str
    ids: int
    note: str


ROWS = (
    Row("Megatron-LM, NeMo, Megatron-Bridge", "{megatron: {}}", 100_277, "`--data-path`, a prefix a part"),
    Row("GPT-NeoX", "{megatron: {}}", 50_277, "`data_path`, or `train_data_paths` for several parts"),
    Row("MaxText", "{megatron: {}}", 100_277, "its `mmap` in file order, its `mmap_npy` in Megatron's"),
    Row("nanotron, datatrove", "{nanoset: {}}", 100_277, "`dataset_folder`"),
    Row("OLMo-core", "{olmo: {}}", 100_277, "`NumpyFSLDatasetConfig`; state its `dtype`"),
    Row(
        "HF Trainer, TRL",
        "{parquet_documents: {columns: [input_ids]}}",
        100_277,
        "`datasets.load_dataset`; a document a row, with BOS and EOS as `framing` has them",
    ),
    Row(
        "SkyRL",
        "{parquet_documents: {columns: [input_ids, loss_mask]}}",
        100_277,
        "the folder `parquet_documents` alone: it refuses one with JSON in it; cuts rows to its `max_length`",
    ),
    Row(
        "Axolotl",
        "{parquet_documents: {columns: [input_ids, attention_mask, labels]}}",
        100_277,
        "drops rows longer than its `sequence_len`",
    ),
    Row(
        "TRL, packed and padding-free",
        "{parquet_contexts: {columns: [input_ids, seq_lengths]}}",
        100_277,
        "`padding_free=True, packing=False, max_length=None`: documents do not see each other",
    ),
    Row(
        "HF Trainer, packed",
        "{parquet_contexts: {columns: [input_ids, labels, position_ids]}}",
        100_277,
        "its default collator takes rows of one length: filter out a shard's last, shorter one",
    ),
    Row(
        "Megatron-Bridge, packed",
        "{parquet_contexts: {context_tokens: 2049, columns: [input_ids, loss_mask, seq_start_id], loss_mask: label}}",
        100_277,
        "a folder or glob of `*.parquet`; its `seq_length` is 2048; a document of n tokens gives n - 1 pairs",
    ),
    Row(
        "nanochat",
        "{parquet_text: {}}",
        100_277,
        "`--for nanochat`; `base_data_climbmix` is the folder; the last file validates, up to `held_out_groups` ranks",
    ),
    Row(
        "trainers that stream text through `datasets`",
        "{parquet_text: {}}",
        100_277,
        '`load_dataset("parquet", data_dir=...)` has the splits train and validation',
    ),
    Row("open_lm (DCLM)", "{webdataset: {context_tokens: 2049}}", 50_277, "`--dataset-manifest`; `seq_len` 2048"),
    Row("Megatron-Energon", "{webdataset: {}}", 100_277, "after `energon prepare`, on a copy"),
    Row(
        "llm.c, dion, parameter-golf",
        "{numpy: {layout: llmc, test_shards: 1, file_name: 'fineweb_{split}_{number}.bin'}}",
        50_257,
        "at most 65,536 ids: `tokenizer.name: gpt2`",
    ),
    Row(
        "llm.c's train_llama3.py",
        "{numpy: {layout: llama3, test_shards: 1, file_name: 'fineweb_{split}_{number}.bin'}}",
        128_256,
        "ids of 4 bytes",
    ),
    Row(
        "modded-nanogpt",
        "{numpy: {layout: llmc, test_shards: 1, file_name: 'fineweb_{split}_{number}.bin'}}",
        50_257,
        "`tokenizer.name: gpt2`; two training files or more, documents of 256 tokens or more on average",
    ),
    Row(
        "NeMo AutoModel",
        "{numpy: {layout: automodel, file_name: '{split}_{number}.bin'}}",
        100_277,
        "`file_pattern`; two files or more for each rank's loader worker",
    ),
    Row(
        "LitData, litgpt",
        "{numpy: {layout: automodel, file_name: '{split}_{number}.bin'}}",
        100_277,
        "`TokensLoader`, with an index.json, below; or `layout: llmc` for at most 65,536 ids",
    ),
    Row("nanoGPT", "{numpy: {layout: bin}}", 50_257, "`tokenizer.name: gpt2`: its loader reads 2 bytes an id"),
    Row(
        "build-nanogpt",
        "{numpy: {test_shards: 1, test_name: val, file_name: 'edufineweb_{split}_{number}.npy', number_digits: 6}}",
        50_257,
        "a folder of .npy shards",
    ),
    Row(
        "Jaxformer",
        "{numpy: {test_name: val, placeholders: true, checkpoints: true}}",
        100_277,
        "a bucket of .npy shards, `--continue` included",
    ),
    Row(
        "a loop of your own in torch",
        "{megatron: {}}",
        100_277,
        '`corpusmill.open_dataset(folder)["megatron"].torch()` ([From Python](python.md))',
    ),
)

HEAD = """
What you train with, and what to write in the configuration:

| you train with | `exports` | what its loader takes |
|---|---|---|
"""
TAIL = """
The report of a build shows the loader's lines with the paths of its files, and up to how many ranks all of them are
read.
Trainers that tokenize by themselves (HF Trainer, TRL, Axolotl, torchtitan, nanochat, litgpt) take text: with
`dedup.writeback`, the default where duplicates are removed, the documents are delivered, too, and the dataset's card
has the line for `datasets`.

LitData has no export of its own, because the shards of llm.c and AutoModel are its chunks except for the header, and
its index can state a header of any length. With these lines in their folder litdata 0.2.76 reads them as they are,
every rank its part; of each shard it drops the tokens that do not fill a `block_size`. Link the shards into a folder
of their own: do not change a delivered version.

```python
import json, pathlib, struct

folder, chunks = pathlib.Path("train"), []
for path in sorted(folder.glob("*.bin")):
    magic, _, tokens = struct.unpack("<3i", path.open("rb").read(12))
    size = path.stat().st_size
    chunks.append({"chunk_bytes": size, "chunk_size": 1024 // 4 - 2, "dim": tokens, "filename": path.name})
kind = {2: "no_header_tensor:20", 4: "no_header_tensor:15"}[(size - 1024) // tokens]  # uint16, int32
config = {"compression": None, "data_format": [kind], "data_spec": None, "item_loader": "TokensLoader"}
(folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": config, "updated_at": "0"}))
# litdata.StreamingDataset("train", item_loader=litdata.TokensLoader(block_size=2048))
```
"""


def table() -> str:
    """The table, as markdown."""
    return HEAD + "".join(f"| {row.trainers} | `{row.exports}` | {row.note} |\n" for row in ROWS) + TAIL
