"""The stages of this room: what lists, decisions and the user's own steps drop or change.

decisions, join and decided (decisions.py) and copies (filter.py) find the documents of lists and decisions; filter runs
the steps before deduplication, refine those after it, and lost (refine.py) measures what late steps cost. ``applying``
applies steps for both, and sums up for the report.
"""
