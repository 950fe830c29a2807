"""JSON lines to Megatron files in the order of the source, as tools/preprocess_data.py of Megatron-LM writes them."""

from __future__ import annotations

from pathlib import Path

from corpusmill.export import megatron
from corpusmill.export.framing import EmptyDocuments
from corpusmill.in_order.source import Source, Written, encoded, framing_for, refuse_there, require_tokens
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
    """A complete pair for every key of the source. ConfigError where a pair is there: its index cache would be stale.

    SourceError when a key holds no token: no reader can open a pair without one.
    """
    framing = framing_for(tokenizer, eod=eod, bos=bos, empty_documents=empty_documents)
    level = "sentence" if sentences else "document"
    names = {key: f"{prefix.name}_{key}_{level}" for key in source.keys}
    for name in names.values():
        refuse_there(prefix.with_name(f"{name}.bin"))
        refuse_there(prefix.with_name(f"{name}.idx"))
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
