"""JSON lines to Megatron files in the order of the source, as tools/preprocess_data.py of Megatron-LM writes them."""

from __future__ import annotations

from pathlib import Path

from corpusmill.direct.in_order.source import Source, Written, encoded, framing_for, refuse_existing, require_tokens
from corpusmill.export import megatron
from corpusmill.export.framing import EmptyDocuments
from corpusmill.tokens.tokenizer import Tokenizer


def write_megatron(
    source: Source,
    prefix: Path,
    tokenizer: Tokenizer,
    *,
    eod: bool = True,
    bos: bool = False,
    empty_documents: EmptyDocuments = "boundary",
    sentences: bool = False,
    as_preprocess_data: bool = False,
) -> list[Written]:
    """Write a pair for every key of the source. ConfigError if a pair exists: its index cache would be stale.

    SourceError if a key holds no token: no reader can open an empty pair. Other errors as Source raises them.
    """
    source.set_aside.require_own(source.inputs, "--output")
    framing = framing_for(tokenizer, eod=eod, bos=bos, empty_documents=empty_documents)
    level = "sentence" if sentences else "document"
    names = {key: f"{prefix.name}_{key}_{level}" for key in source.keys}
    for name in names.values():
        refuse_existing(prefix.with_name(f"{name}.bin"))
        refuse_existing(prefix.with_name(f"{name}.idx"))
    prefix.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for key, name in names.items():
        counts = megatron.write_part(
            prefix.parent,
            name,
            (batch for batch, _ in encoded(source, key, tokenizer)),
            dtype=megatron.token_dtype(tokenizer.vocabulary_size, as_preprocess_data=as_preprocess_data),
            eod_id=framing.eod_id,
            bos_id=framing.bos_id,
            empty_documents=empty_documents,
            vocabulary_size=tokenizer.vocabulary_size,
        )
        require_tokens(source, key, counts)
        written.append(Written(prefix.with_name(name), counts))
    return written
