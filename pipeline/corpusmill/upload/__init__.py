"""What leaves the build: the dataset's description, its delivery, its report.

In:  receipts of all stages. Out: `dataset.json`, `SHA256SUMS` and a card beside the exports; the same files at every
destination, listed again after they arrived; a `BuildSummary` for people (report/).

Invariants: `latest.json` is written last, and only when every destination has every file; a version that another
dataset is built against stays (stages/retention.py).
Price: one request per file, or per part of a large one; no file is read that a destination has already.
"""
