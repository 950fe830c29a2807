"""Forgetting: the list of documents that no build may deliver, and the proof that nothing of their text is left.

In:  a configuration with a list (`forget`), its last build, folders and destinations.
Out: rows in the list, a log of what was asked for and when it was gone, places where a text still stands.

    list file <--add_requests-- ids of a file               steps/takedowns.py
    list file --note_gone--> log: asked by whom, gone since  steps/takedowns.py
    a forgotten text --stretches_of--> Stretch, in all forms forms.py
    files --Finder--> the stretches that stand in them       finding.py, files.py
    a build --find_remains--> remains of forgotten documents remains.py
    old versions, folders --purge--> removed, out of reach   purge.py
    objects of a bucket --search_bucket--> those with a text buckets.py

What drops the documents are the stages join, copies and filter (pipeline/stages).

A stretch is at least 48 bytes of a forgotten text, and stands in none of the texts that stay: whoever finds it has
found the forgotten text. It is looked for as text, as JSON and HTML have it, as ids of two and four bytes, and as
numbers; compressed files, archives and tables are opened.

Invariants: no message, log or file that is written here has a text in it. A document of which no stretch is its own
(all of it stands in others, too, or it is short) is counted, not passed over.
Price: some 0.6 GB/s of decompressed bytes a core, whatever the number of stretches. Memory: blocks of 8 MiB.
"""
