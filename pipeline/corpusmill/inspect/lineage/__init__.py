"""Lineage, both ways: from a record of an export to the source documents in it, and from a document to its records.

In:  a finished build: its receipts, text shards, token shards, gathered cells, and for `verify_records` the exported
     files and the source files.
Out: plain values, and the same as text for people (facts.py).

    trace           export, file, record      -> documents (file, line, id), their spans of tokens and of bytes
    locate          source file, line         -> every record with tokens of it; what was removed, and the earlier text
    locate_id       id                        -> the same, for every document of that id
    verify_records  a sample of all records   -> each rebuilt from its source and compared with the exported record

A build writes only the provenance of each record (tokens/token_shard.py) and the ids of documents; the rest is
arithmetic:

    file, record --layout: counts per cell--> cell, row --its row--> shard, ordinal --ends--> document, tokens
    document --placement: a draw by seed, shard, ordinal--> cell --its rows--> row --layout--> file, record
    tokens --their lengths in bytes--> bytes of the kept text --removed ranges--> bytes of the original text

Invariants (tested for every record of every export): `locate` is the inverse of `trace`; the spans that `trace` names,
cut out of the source's text and tokenized, are the record's ids.

Price: all receipts of the build (0.2 ms each), the rows of one cell for each record found (24 bytes a record), one
pass over a shard's `ends` (8 bytes a document); never a text, a token store or an export as a whole. On 1.1 GB of text
in 32 shards `trace` takes 12 ms once receipts and vocabulary are read. The process itself spends most of its time on
imports: 0.8 s in the median of benchmarks/trace.py, one shard of 1.1 GB. No kernel and no tokenizer is loaded, unless
a tokenizer.json must define the bytes of a token. `locate` takes 25 ms, the search for earlier text (locate.py)
included.
"""

from corpusmill.inspect.lineage.facts import RecordTrace, render_located, render_trace, render_verified
from corpusmill.inspect.lineage.locate import locate, locate_id
from corpusmill.inspect.lineage.records import Tracer, trace
from corpusmill.inspect.lineage.verify import verify_records

__all__ = [
    "RecordTrace",
    "Tracer",
    "locate",
    "locate_id",
    "render_located",
    "render_trace",
    "render_verified",
    "trace",
    "verify_records",
]
