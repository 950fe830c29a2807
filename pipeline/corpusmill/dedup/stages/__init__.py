"""The stages of this room: how repeats are found, and cut out of documents.

anchor, shared, context, settle, border and match find them; union has a shard's ranges; writeback cuts them out.

The stages of references do the same for the datasets of `dedup.against`. ``annotating`` says what writeback adds to
documents; ``duplicates`` is for the report.
"""
