"""Dedup: find every stretch of L bytes or more that occurred earlier in the corpus, exactly, without a suffix array.

In: text shards (`tokenized`: 0xFF and the UTF-8 bytes of each document; `offset`: uint64 per document, its 0xFF).
Out: per shard the ranges of bytes to remove; documents are cut by whoever reads them (tokenize, writeback).

What is removed: a window is L = minimum_bytes consecutive bytes of one document. Of equal windows the first in dataset
order (shard, position) is kept, and every byte that lies in another one is removed. Kept is the first window's start,
not all its bytes: where equal windows overlap, less than one copy may stay (20 times "a" at L = 8 leaves one "a").
What holds is that every removed byte lies in a window that occurred earlier. `keep: every_string` also spares the bytes
of windows that are the first of several (ranges.kept_whole): then one whole copy of each repeated window stays.

    text shard --write_anchors--> anchors of the shard                        one task per shard     anchors.py
    anchors + texts of all shards --match_partition--> ranges per shard       one per hash partition matches.py
    ranges of all partitions --union_ranges--> remove_ranges                  one per shard          ranges.py
    remove_ranges --align_ranges--> whole characters [--join_spans--> fuzzy removal, fuzzy.py]
        --remove_ranges_from--> the documents that stay, --write_back_file--> the source files   writeback.py

Instead of anchors, suffix arrays (suffix_array.py, suffix_matches.py) lead to the same ranges and leave an infini-gram
index (infini_gram.py), for the price of a suffix array.

    anchors          hash u64 | position << 20 | before << 10 | windows - 1 u64     16 bytes per anchor, little-endian
                     by bucket (hash >> 52), in text order within a bucket
    anchor_buckets   u64 x 4097: the first anchor of each bucket, then the number of anchors
    anchor_repeats   first window u64 | one past the last u64        windows equal to the one a short period earlier
    anchors.json     format, minimum_bytes, kgram_bytes and counts (largest_bucket: anchors of the largest bucket)
    match_ranges     start u64 | end u64      one partition, shard by shard; match_ranges.index  u64 x (shards + 1)
    later_windows, earlier_windows     in the same form, for keep: every_string: starts of windows that occurred
                     earlier, and of those that they were found equal to
    remove_ranges    start u64 | end u64      one shard: ascending, apart; positions in `tokenized`

Invariants: windows owned by anchors + windows in repeats = windows of the text (checked when anchors are written);
`windows` summed over partitions = remove pointers, whatever the number of partitions; no range holds a separator; what
is removed depends on the order of documents only, not on how they are cut into shards, on partitions or on run sizes.
Hashes only propose: every match is compared byte for byte, and unequal k-grams with equal hashes stay apart.

Price, one core, 136 MB of documentation, text in memory: L = 500 (14 % removed) anchors 1.5 ns per byte, matches 0.5,
in all 490 MB/s; L = 100 (29 % removed) 2.7 and 2.8 ns, 180 MB/s. Disk: 16 bytes per anchor, 9 % of the text at L = 500
and 46 % at L = 100. A text is read once to index, and once by each partition.

Memory: 32 bytes x 4 Mi anchors to index. To match, at most 64 bytes per anchor of the partition (matches.py adds it
up), so a budget of B bytes takes P partitions with 64 (anchors / P + S) <= B, where S is what one string that is
everywhere adds to its partition (stages/match.py); no P, and the build is refused with the B that it needs. 10 GB (58 M
anchors) in 4 partitions took 0.84 GiB, the process itself included, B being 1 GiB. Texts and anchors are mapped, for
the kernel to drop.
"""
