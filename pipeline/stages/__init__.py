"""The stages of a build, one file each. ``graph`` lists them in order; engine/stage.py defines a stage.

In: the outputs of earlier steps, found by their receipts. Out: files in the step's folder. Shared by several stages:
``layout`` (which output file holds which records), ``description`` (a dataset's description of itself), ``recounting``
(reading a step's files again), ``summarize`` (receipts to the report's figures), ``retention`` (older versions at
destinations), ``versions`` (the latest there), ``hub_upload`` (a delivery as one commit), ``card`` (figures of a
dataset's card), ``announce`` (a build's Asset event), ``contamination`` (the hits of all shards).

The modules are light to import; a stage imports the rooms that do the work when it runs. docs/stages.md adds one.
"""
