"""Source files: which files and parts of files make up each shard, and reading them.

In: a listing of stored files. Out: a plan (``plan``), names of parts that no file has (``part_names``), a survey of
what files contain (``survey``), and the lines or rows of a planned file, at any location (``copies``).

Invariants: every byte of every source file is read once, by one shard; files appended at the end leave earlier shards
unchanged; the data read is the data planned, by identity and checksum.
Price: planning reads the listing, and files larger than a shard where they are cut.
"""
