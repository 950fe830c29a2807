"""Single steps, for people who want only one: files in, files out, no configuration to write.

    shuffle_text.py   lines in, the same lines in a global shuffle out      (the job of terashuf)
    reshuffle.py      ready tars of contexts in, reshuffled tars out        (the job of tokshuf --shuffle-only)
    reshuffle_tokens.py, reshuffle_npy.py   the same for token shards and .npy shards; ready.py tells what is what
    find_batch.py     how much text the tokenizer should get at once here   (the sweep of JAXformer)
    in_order.py       text in, Megatron or Nanoset files out, in its order  (the job of preprocess_data.py)
    dedup.py          text in, deduplicated text or an infini-gram index out, by the build's own stages, resumable
    tokenize_files.py text in, a token shard per file out
    output_folder.py  what these two deliver to: files of an earlier run are replaced, a stranger's are refused

    shuffle_commands.py, in_order_commands.py, dedup_commands.py, store_commands.py: their commands, for corpusmill.cli

The shuffles give the same bytes for the same inputs and seed, whatever the memory. Outputs appear under their names
when they are whole; a folder that holds other shards is refused, so that old and new ones never mix.
"""
