"""Run by the consumers' tests with Corpusmill's own interpreter: the ids of texts, as JSON.

Arguments: a tokenizer's file. Reads a list of texts, writes what the tokenizer says of itself and the ids of each text.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from corpusmill.tokens.tokenizer import load_tokenizer

tokenizer = load_tokenizer(sys.argv[1])
texts = json.load(sys.stdin)
ids, ends = tokenizer.encode([text.encode() for text in texts])
rows = [row.tolist() for row in np.split(ids, ends[:-1].astype(np.int64))]
stated = {
    "engine": tokenizer.engine,
    "size": tokenizer.vocabulary_size,
    "bos": tokenizer.bos_id,
    "eos": tokenizer.eot_id,
    "pad": tokenizer.pad_id,
}
json.dump(stated | {"ids": rows}, sys.stdout)
