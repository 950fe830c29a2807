"""A build and its steps, independent of the stages.

In: a plan's receipt and a graph of stages. Out: a folder per step with its outputs and its receipt.

    <work>/<stage>/<unit>-<fingerprint>/   what the step wrote, .blocks, receipt.json
    <work>/plan/<name>-<fingerprint>/      config.json, plan.json, receipt.json, .started, .delivered, .rollup-<stage>
    <work>/.run.json                       which run holds the dataset (claim.py)
    <work>/estimate.json                   the last estimate (estimates.py)

A **stage** is an operation (index, match, tokenize ...), a **unit** its object (a shard, a partition, a cell, a part),
and a step is one stage on one unit. A step's inputs and settings determine its fingerprint, so **the path of every
receipt is a function of the plan and of the receipts before it**. Nothing else is passed between tasks: no list of
results in a scheduler's database can go stale (decisions/0001-receipts-not-messages.md).

``stage`` defines a stage and the graph of all, ``work`` what its steps do and are given, ``plan`` which files are in
which shard, ``build`` reads steps and their receipts, ``running`` runs or reuses them, ``rollup`` keeps the totals of a
stage's receipts and finds stages that are as they were, ``reclaim`` deletes files that no step needs any more,
``preview`` predicts which steps will run, ``runs`` orders the runs of plans, ``claim`` keeps two runs from building at
once, ``garbage`` finds what no plan needs any more, ``sections`` are files in which a step writes to many others.

Invariants: no stage is named here; a step's receipt is written last; opening a build reads nothing.
Price: about 0.1 ms for each receipt that a step opens: those of its inputs.
"""
