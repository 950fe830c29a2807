"""Dedup: find every stretch of L bytes or more that occurred earlier in the corpus, exactly, without a suffix array.

In: text shards (`tokenized`: 0xFF and the UTF-8 bytes of each document; `offset`: uint64 per document, its 0xFF).
Out: per shard the ranges of bytes to remove; the stages that read documents cut them (tokenize, writeback).

What is removed: a window is L = minimum_bytes consecutive bytes of one document. Of equal windows the first in dataset
order (shard, position) is kept, and every byte of the others is removed. Only the start of the first window is sure to
be kept: where equal windows overlap, less than one copy may remain (20 times "a" at L = 8 leaves one "a"). The
guarantee is that every removed byte is in a window that occurred earlier. `keep: every_string` also keeps the bytes of
the first of several equal windows (ranges.kept_whole): then one whole copy of each repeated window remains.

    text shard --write_anchors--> anchors of the shard                        one step per shard     anchors.py
    anchors of all shards --share--> places that share a hash                 one per hash partition shared.py
    text, places --answer_contexts--> digests of what is around them          one per shard          exchange.py
    digests of all shards --settle--> ranges, and borders still to compare    one per hash partition settle.py
    text, borders --answer_borders--> digests of grams and the bytes beside   one per shard          exchange.py
    those of all shards --match_borders--> ranges per shard                   one per hash partition borders.py
    ranges of all partitions --union_ranges--> remove_ranges                  one per shard          ranges.py
    remove_ranges --align_ranges--> whole characters [--join_spans--> fuzzy removal, ranges.py]
        --remove_ranges_from--> the documents that stay, --write_back_file--> the source files   writeback.py

Shards of references (`dedup.against`) come before those of the dataset in every step but union_ranges; the pairs of
equal windows tell which range is in which reference (references.py, decisions/0002).

No step of a partition reads a text: decisions/0001-match-in-order.md. infini_gram.py writes an index for infini-gram,
which no step reads.

    anchors          bits 20 to 51 of the hash u32 | position << 20 | before << 10 | windows - 1 u64     12 bytes each
                     by bucket (hash >> 52), in text order within a bucket
    anchor_buckets   u64 x 4097: the first anchor of each bucket, then the number of anchors
    anchor_repeats   first window u64 | one past the last u64        windows equal to the one a short period earlier
    anchors.json     format, minimum_bytes, kgram_bytes and counts (largest_bucket: anchors of the largest bucket)
    match_ranges     start u64 | end u64      one partition, sections by shard (engine/sections.py)
    later_windows, earlier_windows     in the same form, for keep: every_string: starts of windows that occurred
                     earlier, and of those that they were found equal to
    Requests and answers between them: shared.py, exchange.py, settle.py
    remove_ranges    start u64 | end u64      one shard: ascending, disjoint; positions in `tokenized`

Invariants: windows owned by anchors + windows in repeats = windows of the text (checked when anchors are written);
`windows` summed over partitions = remove pointers, whatever the number of partitions; no range holds a separator; what
is removed depends on the order of documents only, not on how they are cut into shards, on partitions or on run sizes.
Hashes only propose candidates: removed text has equal BLAKE2s-128 digests, or equal bytes next to grams of equal
digests.

Price: benchmarks/results/dedup_speed.json. Disk beside the text: 0.21 bytes a byte at L = 500 (12 per anchor are 0.07),
1.2 at L = 100 (0.35). A text is read in order: to index, to find anchors, twice to answer, and to align ranges.

Memory: 28 bytes x 4 Mi anchors to index. To share and settle, at most 96 bytes per anchor of the partition (settle.py
adds it up), so a budget of B bytes takes P partitions with 96 (anchors / P + S) <= B, where S is what the most frequent
string adds to its partition (stages/partitions.py); if there is no such P, the build is refused with the B that it
needs. To match, as many turns as keep it within B (borders.py). To answer, a block of the text and a partition's rows
of it.
"""
