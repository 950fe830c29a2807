"""Decontamination: find benchmark items in text, whole or in part, slightly reworded or re-wrapped.

In: benchmarks (JSON lines or parquet, one item per row: question, answer, passage), texts.
Out: hits: which item, which text, from which byte to which, and how much of the item the place covers.

    text --WordFinder--> words: a hash and a place each            text_words.py
    items --build_seeds--> runs of words, rare ones are seeds      items.py, seeds.py
    words --met_seeds--> the seeds in a text                       search.py
    those of one item --decide--> the places that cover it         decide.py
    all of it: Searcher; for files: search_files (search.py)

A hit is decided not by the share of an item's n-grams in a text, but by how many of its words one place covers:
line breaks, typography, markdown, hyphenation and case change no word, and a replaced word costs that word alone.
decisions/0001-words-covered-in-one-place.md has the alternatives that were measured.

The index (seeds.py has its bytes) is read-only and mapped, 50 bytes a seed. It depends on the benchmarks, on
`seed_words` and on the tables here, never on the text that is searched; so a text's hits do not depend on other texts.

Invariants: the hits of a text depend on that text and the index alone; a hit lies inside one text; begin < end, both
between two characters; every text that holds an item word for word has a hit of it, unless the item has fewer than five
words or consists of common phrases (common.txt).

Price: benchmarks/results/decontamination.json. One pass; memory is some 10 bytes a byte of the longest text.
"""
