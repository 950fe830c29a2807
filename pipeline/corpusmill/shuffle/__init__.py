"""A true global shuffle in two stages, uniform over all permutations, with memory for one cell.

In:  the records of every token shard (whole documents, or contexts).
Out: cells; the dataset's order is cell 0, cell 1, ... each in its own permuted order.

Stage 1, scatter (one step per shard): every record draws a cell and a 64-bit key. One file per shard holds the rows
grouped by cell, not a file per (shard, cell)::

    tokens     records of cell 0 | records of cell 1 | ...
    rows       uint64 rows (ordinal, key, tokens), in the same order
    cells      uint64 rows (first row, first token) of each cell, and one past the last

Stage 2, gather (one task per cell): read the cell's slice of every scatter file, sort by key, write a record shard.

Why uniform: independent 64-bit keys order the records uniformly over all permutations (up to ties, which are broken by
(shard, ordinal) and come with probability below n^2 / 2^65). A record's cell is the upper end of its key, so the order
is that of the keys and **does not depend on the number of cells**: another memory budget produces the same dataset.

Keys come from Philox, a counter-based generator, keyed by (seed, kind of record, shard) and counted by ordinal: they
do not depend on threads, batches, the order of completion, hosts or paths.

Source order, on request: every shard is its own cell, the keys are the ordinals, and gather copies the shard's records
unchanged, batch by batch. Stages, formats and accounts are the same.

budget.py decides which documents a budget shows, and how often: every showing is a separate record.

cells.py has both stages, and quality.py measures the resulting order; lines.py is the same shuffle for lines of text,
whose number is not known in advance.

Invariants: rows per (shard, cell) summed = records gathered; the order-free digest of the records is the same before
and after: the shuffle is a permutation.

Price: every record is written twice. Scatter holds 52 bytes per record of its shard, 8 per document (24 per
showing under a budget) and one batch; gather holds one cell once and ROW_BYTES per record, so cells = token bytes /
(memory - the base need of a process).
"""
