"""The stages of this room: how repeats are found, and cut out of documents.

anchor, shared, context, settle, border and match find them (context.py has both answers of a shard, partitions.py what
is done for a partition); union has a shard's ranges, and adds all up for the report; writeback cuts them out, and
``annotating`` says what it adds to documents.

The stages of references do the same for the datasets of `dedup.against`.
"""
