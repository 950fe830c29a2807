"""Source files: which files and parts of files make up each shard, and reading them.

In: a listing of stored files. Out: a plan (``plan``), names of parts that no file has (``part_names``), a look at what
files hold (``survey``), and the lines or rows of a planned file, wherever it lies (``copies``).

Invariants: every byte of every source file is read once, by one shard; files appended at the end leave earlier shards
as they are; what is read is what was planned, by identity and checksum.
Price: planning reads the listing, and of files larger than a shard the places where they are cut.
"""
