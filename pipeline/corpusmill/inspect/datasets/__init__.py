"""Finished datasets: everything that needs only their files and `dataset.json`, not the build.

    dataset.py   a dataset opened: its description, the records of an export, the deduplicated documents; what it
                 states of the files, checked before they are merged, shuffled or mixed
    peek.py      one record, as ids and as text
    merge.py     Megatron parts, or Nanoset files, merged into one
    repair.py    two copies compared, and each repaired from the other

Invariants: datasets are only read, except by `repair`, which writes exactly what `dataset.json` states.
Price: a record is mapped, not read with its file; `merge` and `repair` read every byte once.
"""
