"""JSON lines directly to tokens, in source order: no deduplication, no shuffle, no build.

In:  files of JSON lines, local, in a bucket or on the Hub; a tokenizer.
Out: the files that a trainer reads, byte for byte those of the trainer's own tool with the same text and tokenizer.

    token_shards.py   a token shard for every file, audited as in a build
    exports.py        {prefix}_{key}_document.bin and .idx for every key; {prefix}_{key}_sentence where lists are
                      sentences                                          (the job of tools/preprocess_data.py)
                      {name_}00000_unshuffled.ds and its neighbours; 00001 ... when files have a token limit
                                                                       (the job of datatrove's DocumentTokenizer)
    source.py         reads the lines, sets malformed ones aside, and encodes the rest
    cores.py          parses and encodes on all cores, in the order of the source

A text may be a list: each string in it is one sequence of the document. Malformed lines go to {output}.rejected.jsonl,
of a Nanoset to rejected.jsonl in its folder; above the allowed share the command fails, and no export gets its name.
Token shards have theirs by then: the share is that of all files.

Price: one pass over the source for every key. Memory is a few blocks of lines per core, and what a forked process adds.
"""
