"""Claims: tokenizer.json files of the field give the ids of `tokenizers`, most at 40 MB/s a core or more.

2,000 documents and 2,100 tricky strings each, no engine named. The files are no part of the repository: FOLDER holds
NAME/tokenizer.json, what else lies beside it, and NAME/source, a line that says where it is from.

    python -m benchmarks.vocabularies CORPUS_FOLDER FOLDER [NAME ...]    measures; results/tokenizers.json
    python -m benchmarks.vocabularies --page                             writes the table of docs/tokenizers.md from it
"""

from __future__ import annotations

import argparse
import json
import random
import time
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

RESULT = Path(__file__).parent / "results" / "tokenizers.json"
PAGE = Path(__file__).parents[1] / "docs" / "tokenizers.md"
DOCUMENTS, CHARACTERS = 2000, 1000
OTHER_BYTES = 20_000_000  # of other documents, encoded before: a build encodes far more text than an engine keeps words
RANDOM_STRINGS = 2000
BATCH_BYTES = 2 << 20  # as the stage tokenize has them
FAST = 40  # MB/s
MARK = "<!-- matrix -->"
HEADS = [
    "tokenizer",
    "file from",
    "engine",
    "ends a text",
    "other ids",
    "by the reference",
    "MB/s",
    "first",
    "reference",
]
RULE = ["---"] * len(HEADS)
WORDS = (
    "a b the X 1 123 's 'LL \u2019s \u00e9 e\u0301 \u4e2d \U0001f9d1 \ufb01 \u212b \u00bd \u0663 \u2163 \u30a2 \u30fb"
    " \u3097 \u0301 \u200d \u01c5 \u0130 \u2581 _ / <s> </s> <mask> <|endoftext|> <tool_call> <unused1> \u0338 \uac01"
    " \u1100\u1161"
)
PIECES = [*WORDS.split(), " ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\0", "\x85", "\u2028", "\u1680"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, nargs="?", help="a folder of *.jsonl.zst")
    parser.add_argument("folder", type=Path, nargs="?", help="NAME/tokenizer.json, and NAME/source: where it is from")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    if arguments.page:
        PAGE.write_text(page(json.loads(RESULT.read_text()), PAGE.read_text()))
        return
    from benchmarks.results import write_result

    (texts, others), tricky = corpus(arguments.corpus), tricky_strings()
    names = arguments.names or sorted(path.parent.name for path in arguments.folder.glob("*/tokenizer.json"))
    rows: dict[str, Any] = {}
    known = {
        "text_bytes": sum(map(len, texts)),
        "other_bytes": sum(map(len, others)),
        "documents": len(texts),
        "tricky_strings": len(tricky),
    }
    for name in names:
        rows[name] = measured(arguments.folder / name, texts, others, tricky)
        print(name, rows[name], flush=True)
    write_result("tokenizers", (__doc__ or "").split("\n\n")[0], {**known, "tokenizers": rows})


def corpus(folder: Path) -> tuple[list[bytes], list[bytes]]:
    """(documents from all over the files, DOCUMENTS in all, of each its first CHARACTERS; OTHER_BYTES of others)."""
    import zstandard

    files = sorted(folder.glob("*.jsonl.zst"))
    texts: list[bytes] = []
    others: list[bytes] = []
    for path in files:
        with zstandard.open(path, "rt", encoding="utf-8") as lines:
            whole = [json.loads(line)["text"] for line in lines]
        chosen = range(0, len(whole), max(1, len(whole) * len(files) // DOCUMENTS))[: DOCUMENTS // len(files)]
        texts += [whole[place][:CHARACTERS].encode() for place in chosen]
        left = OTHER_BYTES // len(files)
        for place in sorted(set(range(len(whole))) - set(chosen)):
            others.append(whole[place].encode())
            left -= len(others[-1])
            if left < 0:
                break
    return texts, others


def tricky_strings() -> list[bytes]:
    """The audit's, and random ones."""
    from corpusmill.tokens.audit import tricky_texts

    rng = random.Random(1)
    drawn = ["".join(rng.choices(PIECES, k=rng.randrange(1, 40))).encode() for _ in range(RANDOM_STRINGS)]
    return tricky_texts() + drawn


def measured(folder: Path, texts: list[bytes], others: list[bytes], tricky: list[bytes]) -> dict[str, Any]:
    """Ids compared, documents by the reference counted, MB per CPU second of others, and of the texts after them."""
    from corpusmill.tokens.tokenizer import load_tokenizer

    source = folder / "source"
    tokenizer = load_tokenizer(str(folder / "tokenizer.json"))
    tokenizer.encode([b"a b", "\u00a0".encode()])  # what is imported and compiled once
    (_, _, first), (ids, slow, second) = encoded(tokenizer, others), encoded(tokenizer, texts)
    odd, odd_slow, _ = encoded(tokenizer, tricky)
    began = time.process_time()
    reference = [tokenizer.reference.encode(text) for text in texts]
    spent = time.process_time() - began
    odd_reference = [tokenizer.reference.encode(text) for text in tricky]
    text_bytes = sum(map(len, texts))
    return {
        "source": source.read_text().strip() if source.exists() else "",
        "engine": tokenizer.engine,
        "why_slow": tokenizer.why_slow,
        "eot": tokenizer.reference.decode(np.array([tokenizer.eot_id])).decode(),
        "vocabulary_size": tokenizer.vocabulary_size,
        "sha256": tokenizer.sha256,
        "documents_unequal": differing(ids, reference),
        "tricky_unequal": differing(odd, odd_reference),
        "documents_by_reference": slow,
        "tricky_by_reference": odd_slow,
        "mb_per_cpu_second_first": round(sum(map(len, others)) / 1e6 / first, 1),
        "mb_per_cpu_second": round(text_bytes / 1e6 / second, 1),
        "mb_per_cpu_second_reference": round(text_bytes / 1e6 / spent, 1),
    }


def encoded(tokenizer: Any, texts: list[bytes]) -> tuple[list[Any], int, float]:
    """(ids of each text, how many the reference encoded, CPU seconds)."""
    from corpusmill.kernels.slices import runs

    rows: list[Any] = []
    slow = 0
    spent = 0.0
    for first, last in runs(np.cumsum([len(text) for text in texts], dtype=np.uint64), BATCH_BYTES):
        began = time.process_time()
        tokens, ends, by_reference = tokenizer.encode_counted(texts[first:last])
        spent += time.process_time() - began
        rows += np.split(tokens, ends[:-1].astype(np.int64))
        slow += by_reference
    return rows, slow, spent


def differing(rows: list[Any], expected: list[Any]) -> int:
    return sum(not np.array_equal(*pair) for pair in zip(rows, expected, strict=True))


def page(result: dict[str, Any], text: str) -> str:
    """docs/tokenizers.md with the table of a result behind its mark."""
    figures = result["figures"]
    rows = figures["tokenizers"]
    fast = sum(row["mb_per_cpu_second"] >= FAST for row in rows.values())
    unequal = sum(row["documents_unequal"] + row["tricky_unequal"] for row in rows.values())
    compared = f"{figures['documents']:,} documents and {figures['tricky_strings']:,} tricky strings"
    summary = (
        f"Of {compared}, encoded by each of {len(rows)} tokenizers, {unequal} have other ids than the reference"
        f" library's; {fast} tokenizers reach {FAST} MB/s per core.\n"
        "Pairs in the table count documents and tricky strings.\n"
        f"Measured on {result['machine']['processor']}, commit {result['commit'][:12]}, {result['date']}.\n"
    )
    table = "".join(map(line, [HEADS, RULE, *(cells(name, row) for name, row in rows.items())]))
    return f"{text.partition(MARK)[0]}{MARK}\n\n{summary}\n{table}"


def cells(name: str, row: dict[str, Any]) -> list[str]:
    unequal = f"{row['documents_unequal']}, {row['tricky_unequal']}"
    slow = f"{row['documents_by_reference']}, {row['tricky_by_reference']}"
    keys = ("mb_per_cpu_second", "mb_per_cpu_second_first", "mb_per_cpu_second_reference")
    rates = [f"{row[key]:.1f}" for key in keys]
    # In backquotes some renderers end a cell at a bar, and others show the backslash before it.
    eot = f"<code>{escape(row['eot']).replace('|', '&#124;')}</code>"
    return [name, row["source"], row["engine"], eot, unequal, slow, *rates]


def line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    main()
