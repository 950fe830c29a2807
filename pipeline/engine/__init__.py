"""A build and its steps, whatever the stages are.

In: a plan's receipt and a graph of stages. Out: a folder per step with its outputs and its receipt.

    <work>/<stage>/<unit>-<fingerprint>/   what the step wrote, blocks.xxh3, receipt.json
    <work>/plan/<name>-<fingerprint>/      config.json, plan.json, receipt.json, .started, .delivered, .rollup-<stage>
    <work>/.run.json                       who has the dataset (claim.py)
    <work>/estimate.json                   the last estimate (estimates.py)

A **stage** is what is done (index, match, tokenize ...), a **unit** is what it is done to (a shard, a partition, a
cell, a part), and a step is one stage on one unit. From a step's inputs and settings follows its fingerprint, so
**where every receipt lies is a function of the plan and of the receipts before it**. Nothing else is handed from task
to task: no list of results in a scheduler's database can go stale (decisions/0001-receipts-not-messages.md).

``stage`` says what a stage is, ``graph`` derives order and dependence, ``build`` looks at steps and their
receipts, ``running`` runs or reuses them, ``rollup`` keeps what all receipts of a stage come to, ``reclaim`` deletes
what no step needs any more, ``preview`` says which steps will run, ``runs`` tells runs of plans apart, ``claim`` keeps
two of them from building at once, ``garbage`` finds what no plan needs any more.

Invariants: no stage is known by name here; a step's receipt is written last; opening a build reads nothing.
Price: about 0.2 ms for each receipt that a step opens: those of its inputs.
"""
