"""Forgetting: the list of documents that no build may deliver, and the proof that none of their text is left.

In:  a configuration with a list (`forget`), its last build, folders and destinations.
Out: rows in the list, a log of requests and of when each was fulfilled, places that still contain a text.

    list file <--add_requests-- ids of a file               steps/takedowns.py
    list file --note_gone--> log: asked by whom, gone since  steps/takedowns.py
    a forgotten text --stretches_of--> Stretch, in all forms finding.py
    stretches --own_stretches--> those of no other document  staying.py
    files --Finder--> the stretches in them                  finding.py, files.py
    a build --find_remains--> remains of forgotten documents remains.py
    old versions, folders --purge--> removed, or out of reach purge.py
    objects of a store --search_store--> those with a text   remains.py

The stages join, copies and filter (steps/stages) drop the documents.

A stretch is at least 48 bytes of a forgotten text that occur in no document that stays, in none of its fields, so
finding it means finding the forgotten text. It is searched for as text, in JSON and HTML form, as ids of two and four
bytes, and as numbers; compressed files, archives and tables are opened.

Invariants: no message, log or file written here contains a text. Documents without a stretch of their own (others
contain all of them, or they are too short) are counted and reported. Price: some 0.6 GB/s of decompressed bytes a core,
0.1 to 0.2 with the stretches of 5,000 documents; texts and written documents are read once more. Memory: blocks of
8 MiB.
"""
