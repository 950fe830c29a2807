"""Finished builds and datasets: opened, traced, verified, compared, merged.

    datasets/     a dataset by its files and `dataset.json` alone: open, peek, merge, repair
    lineage/      from a record to its documents, and back
    verify/       everything is read again, and every fault reported
    difference/   two versions, compared by document

Nothing here writes into a build or a dataset, except `repair` and `merge`.
"""
