"""Reshuffles finished files without a build: files in, files of the same kind out.

In:  jsonl files, tars of contexts, token shards or `.npy` shards; a seed.
Out: every record once, in the order of its 64-bit key (shuffle/lines.py).

    lines.py     lines of text                                           (the job of terashuf)
    tars.py      finished tars of contexts, bodies untouched             (the job of tokshuf --shuffle-only)
    shards.py    token shards, document by document; one series of .npy shards, by documents or slices
    folders.py   the kind of files that a folder holds, and an output folder whose files appear together

Invariants: the same bytes for the same inputs and seed, for any memory; outputs get their names when they are
complete; a folder with other shards is refused, so old and new ones never mix; a folder of a finished dataset, or with
a manifest, is shuffled whole or not at all.
Price: see shuffle/lines.py; of each tar only the first sample is decompressed.
"""
