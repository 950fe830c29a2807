"""Text to token ids, and token ids to records.

In:  documents' UTF-8 bytes, and a tokenizer (a name, a file, a hub id) pinned by the sha256 of its vocabulary.
Out: a **token shard**, the one canonical store of a shard's tokens: bare document tokens, no special tokens::

    tokens             id id id id | id id | id id id ...        uint16 (at most 65,536 ids) or uint32, little endian
    ends               4, 6, 6, 9 ...                            uint64: token position after each document, exclusive
    source_ends        120, 120, 377 ...                         uint64: documents up to the end of each source file
    token_shard.json   {"dtype": "uint32", "tokenizer": ..., "sha256": ..., "eot_id": ..., "pad_id": ...}

Read one with numpy alone::

    ends = np.fromfile("ends", "<u8")
    tokens = np.memmap("tokens", "<u4")                          # or "<u2", see token_shard.json
    document = lambda i: tokens[ends[i - 1] if i else 0 : ends[i]]

Also out: **records**, what the shuffle permutes: whole documents, or contexts of a fixed number of tokens. A context is
a list of pieces of documents, by default a slice of the stream "document, EOT, document, EOT ..." of one shard
(records.py has the options), so packing is arithmetic on `ends`.

The fast engine encodes a document where a rule says that its ids are those of the library that defines them; other
documents go to that library (fitness.py). The audit (audit.py) compares ids on the dataset's own documents, and
nothing is exported before it has passed.

A **record shard** holds records next to each other with the origin of each::

    tokens             the records' tokens, back to back
    records            uint64 rows (shard, ordinal, tokens), one per record: provenance and length

Invariants: `ends` has one entry per document of the text shard, so ordinals agree everywhere; a document without tokens
makes no record; tokens + special tokens + padding + tokens repeated by an overlap = slots of all contexts.

Price: gigatoken and pieces.py encode 40 to 100 MB of text per second and core, tiktoken and tokenizers 2 to 17; memory
is one batch of text (2 MiB, or one document if that is longer) and its tokens, plus the engine's cache of known words.
"""
