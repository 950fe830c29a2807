"""Compares two delivered versions: documents, tokens, duplicates, settings, versions of the program.

    documents.py   a version opened: its dataset.json, and the receipts and configuration that it was made from; its
                   documents as rows of hashes, from the work folder, else from the delivered documents/; the outcome
                   of every document: the rows of both versions matched in partitions
    compare.py     the comparison, as plain values, as text and as an HTML page

Invariants: every file that is read is checked against its receipt or its sha256; every document of a version has
exactly one outcome; unknown values are None, and `unknown` says why. Price: one pass over both versions' text (or
documents/), 44 bytes per document on disk, a 256th of that in memory.
"""

from corpusmill.inspect.difference.compare import compare_versions, render_difference, render_difference_page

__all__ = ["compare_versions", "render_difference", "render_difference_page"]
