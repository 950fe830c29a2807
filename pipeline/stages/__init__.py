"""The stages of a build, one file each. ``graph`` lists them in order; engine/stage.py says what a stage is.

In: the outputs of earlier steps, by receipt. Out: files in the step's folder. What several stages share stands beside
them: ``layout`` (which output file holds which records), ``description`` (what a dataset says of itself),
``recounting`` (reading a step's files again), ``summarize`` (receipts to the report's figures), ``retention`` (older
versions at destinations), ``versions`` (the latest there), ``hub_upload`` (a delivery as one commit), ``card`` (figures
of a dataset's card), ``announce`` (a build's Asset event), ``contamination`` (the hits of all shards).

The modules are light to import; stages import the rooms that do the work when they run. docs/stages.md adds one.
"""
