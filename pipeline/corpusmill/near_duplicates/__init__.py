"""Near-duplicates: find the documents that are copies of an earlier one but for small differences.

In: text shards. Out: for each document, whether it is left out, and for which kept document of which similarity.

The set of a document: its runs of `words` consecutive words (text_words.py: runs of letters); a document with fewer
words, even none, is one run. Similarity: the Jaccard index of two sets. In the order of documents each is decided once:
it is left out if its similarity with an earlier **kept** document is at least the threshold. There are no chains and no
components: if A is like B and B like C, but A not like C, then A and C are kept.

    text shard --Signer--> keys of bands, and a digest, per document                 a step per shard      signatures.py
    keys of all shards --propose--> pairs that share a key, and whom to ask about    per hash partition    groups.py
    text, whom to ask about --write_sets--> sorted hashes of their runs              per shard             similarity.py
    text, pairs, sets --compare--> pairs at or above the threshold                   per shard             similarity.py
    pairs of all shards --decide--> documents left out, each with its kept one       one step              decide.py

Documents of references (`dedup.against`) are earlier than all others, always kept, and not compared with each other.
The room's stages are in stages/; the modules that write the files between them have their bytes. A document is numbered
`shard << 32 | ordinal`, shards of references first: numbers are in the order of documents.

Hashing proposes, sets decide: of the pairs at the threshold Bands.recall is proposed (0.996 at 0.8), more above it. Two
bounds keep a group of n near-copies from costing n^2: pairs with the first documents of a group and the last
ones (groups.py), and few comparisons for a document that has matches (similarity.py). What they leave out is counted.
Documents with equal runs are never missed: their digests are a key of their own, and one that equals a document that
goes, goes with it.

Invariants: what is left out depends on documents and settings alone, not on shards, partitions, workers or memory; keys
of hashes are fixed. Hashes of runs have 64 bits and no secret: they are no proof against texts that were crafted to
collide. Documents in = kept + left out; each one left out has one kept document.

Price: benchmarks/results/near_duplicates.json. On disk 16 bytes x (bands + 1) for each document, 8 for each run of an
earlier document of a pair. Memory: BYTES_PER_ROW for each key of a partition; 60 bytes for each of PAIRS_AT_ONCE
pairs, 24 for each earlier document of one shard, and the runs of 16 MB of text; 36 bytes for each document in `decide`.

In a group of 100,000 near-copies around the threshold a near-copy costs 4.7 to 4.9 documents: its runs are hashed for
its keys and again for its comparisons and for those of the next ones. In pairs with the FIRST alone it costs 2.7, but
one in seven of the copies right behind their pages is kept in a site of 1,000 pages; in pairs with the one before, too,
it costs 3.4, and one in fourteen of the copies five pages behind is kept. With SOON = 3 and ENOUGH = 2 it costs 7 %
less, and one in ten of the copies that go is kept.
"""
