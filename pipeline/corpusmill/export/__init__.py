r"""Exports: the training formats, each with a writer, a reader, and a verifier that trusts neither.

In: documents as batches `(tokens, ends)` (bare uint16 or uint32 ids, cumulative uint64 ends; tokens/token_shard.py), or
contexts as 2-D arrays (records x tokens). Out: files under their final names, and counts. The files here know no stage,
configuration, receipt or store: arrays in, files out. formats/ says, a class each, what a build does with a format, and
stages/ has the stage.

    megatron.py        <prefix>.bin          a a a # b b #               # = EOD after every document
                       <prefix>.idx          MMIDIDX 0 0 | version u64 | code u8 | S u64 | S+1 u64
                                             | lengths i32 x S | byte offsets i64 x S | boundaries i64 x S+1

    nanoset.py         <stem>.ds             a a a # b b #               the same bytes as .bin
                       <stem>.ds.index       4 7                         ends in tokens, u64
                       <stem>.ds.metadata    gpt2|2 \n 7 \n 7.00 T
                       <stem>.ds.loss        1 1 1 1 1 1 1           optional; 0 = not trained on

    olmo.py            <stem>.npy           a a a # b b #               the same bytes, in spite of the name no .npy
                       <stem>.csv.gz        0,4,00003-000000017,00003,18    a line a document: start, end, origin

    parquet.py         <stem>.parquet       [a a a #] [b b #]           a document a row, further columns on request

    numpy_shards.py    test/test_0000.npy    \x93NUMPY header, 128 B | # a a a # b b #  cut every N tokens,
                       train/train_0000.npy  \x93NUMPY header, 128 B | b b ...          # = EOT before every document

    webdataset.py      shard_00000000.tar    header 512 B | gzip([1,2,...]) | zeros to 512 | ... | zeros to 10,240
    companions.py      manifest.jsonl        {"num_sequences":8192,"shard":"shard_00000000"} \n ...
                       checkpoints/          for Jaxformer's --continue
                       sample/               the first documents of Megatron and Nanoset as a separate export

Also: framing.py puts special tokens around documents and has the checks that all writers share, files.py writes
complete files or none, checks.py has the checks of indexes and tokens that readers and verifiers share; tar.py and
context_json.py serve WebDataset.

Invariants, checked by the verifiers and tests:

* the same input gives the same bytes in any folder, in any batches, at any time;
* a file gets its final name only when it is complete, Megatron's index last; files without records are not written;
* a document without tokens is dropped and counted, unless framing.py is told otherwise; a `.ds` has none of length 0;
* no id is narrowed silently: an id outside the vocabulary stops the writer, and the error states the id and the value
  that it would have become;
* counts balance: tokens + special tokens = tokens in the file, for every format;
* verifiers re-read every byte and name file and byte of the first fault.

Price: every writer makes one pass and holds one batch (plus 2 to 5 B a token of it to place the special tokens);
indexes go to disk as they grow, 20 B a document for Megatron, 8 B for Nanoset. See each module for measured speeds.
"""
