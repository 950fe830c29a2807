"""Text records in, text shards out.

In: source files of JSON lines, compressed or not, of parquet or Arrow (docs/sources.md), opened by a store.
Out: for every shard a folder, the text shard, which every later stage reads instead of the JSON; and a quarantine file
with each rejected line's reason and exact bytes.

The text shard is the layout of infini-gram (one shard of a v6 index of bytes) without its suffix array:

    tokenized     FF h é l l o FF FF 中 文        a separator FF before every document, then its UTF-8 bytes verbatim;
                  |            |  |              FF never occurs in UTF-8; nothing after the last document
                  0            7  8
    offset        0            7  8              uint64 LE a document: position of its separator in `tokenized`
    linenum       0            1  4              uint64 LE a document: the 0-based line of its source file
    linehash      .            .  .              uint64 LE a document: a hash of that line, or of a parquet row's text
    ids           d o c - 1 7                    the documents' ids, UTF-8, back to back
    id_ends       5            5  6              uint64 LE a document: one past its id in `ids`
    rewritten     uint64 LE each: the documents whose text a step changed; only if there are any
    fields        { " l a n g " : " d e " } { }    where steps, decisions or a budget ask for fields: of each document
                                                   the JSON object of those that it has, back to back
    fields_ends   uint64 LE a document: one past its fields in `fields`
    sources.json  [{"path", "first_document", "documents", "lines", "line_bytes", "rejected": {reason: lines}}, ...]

The second document is empty, just its separator, and has no id. The third one's id is the number 7, kept as its JSON.
A document's text is ``tokenized[offset[i] + 1 : offset[i + 1]]``; for the last one, to the end of the file.

Invariants:
* lines = documents + rejected lines, for every source file; nothing is dropped silently.
* tokenized's size = text bytes + documents; offset, linenum, linehash and id_ends have 8 bytes a document.
* ``tokenized[offset[i]] == 0xFF``, and no other byte of `tokenized` is 0xFF.
* The sum of `line_bytes` is the decompressed size of the source files.

Price: one pass over the source files, one core; memory is some 75 MB whatever the input, plus about four times the
longest line (`lines.LONGEST_LINE_BYTES` at most); disk is the size of the texts and ids plus 33 bytes a document.

Other rooms use `read_documents` and `open_lines` (reading: one reader for every kind of file), `TextShardWriter` and
`open_text_shard` (text_shard), `open_decompressed` and `open_compressed` (compression), `append_rejections`
(quarantine), and `find_value` (json_members: the position of a value in a line, so that writeback can replace it and
keep every other byte; string_kernels: the same in compiled code where the bytes prove it, the position in its JSON of
a place in a text, and the text of an edited line).
orjson and msgspec decide what JSON is.
"""
