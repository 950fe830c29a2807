"""Finished datasets: what needs their files and `dataset.json` alone, wherever the build was.

    dataset.py   a dataset opened: its description, the records of an export, the deduplicated documents
    records.py   the records of one file of any export
    peek.py      one record, as ids and as text
    merge.py     Megatron parts, or Nanoset files, as one
    repair.py    two copies compared, and each mended from the other

Invariants: a dataset is only read, but by `repair`, which writes what `dataset.json` states and nothing else.
Price: a record is mapped, not read with its file; `merge` and `repair` read every byte once.
"""
