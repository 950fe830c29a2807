"""The stages of this room: what lists, decisions and the user's own steps drop or change.

join, decided and copies find the documents of lists and decisions; filter runs the steps before deduplication, refine
those after it, and lost measures what late steps cost. ``applying`` applies steps for both, and sums up for the report.
"""
