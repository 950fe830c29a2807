"""What a build does, a line for each step, and the DAGs that do it (an Airflow DAG file).

`build_dataset` builds any configuration from a form, `dataset__<name>` that of a file in datasets/, with the steps that
it uses; `reprocess_shard` and `forget_documents` have the same steps.
"""

from pathlib import Path

from corpusmill_airflow.factory import make_dags


def steps_of_a_build(steps):
    """The steps, in order; one that a dataset does not need is left out."""
    return [
        steps.plan(),  # reads the sources, and decides how many tasks each step has
        steps.download(),  # sources, references, lists and benchmarks
        steps.index(),  # text shards, the user's steps, decontamination, anchors
        steps.approve_decontamination(),  # only where dag.approve_removal asks for it
        steps.near_duplicates(),  # copies of an earlier document but for small differences
        steps.approve_near_duplicates(),
        steps.find_ranges(),  # which bytes repeat, over the whole dataset
        steps.approve_removal(),
        steps.writeback(),  # cuts what repeats, writes the documents back
        steps.tokenize(),  # ids, and their audit
        steps.shuffle(),  # scatter, gather
        steps.export(),  # a task for each format
        steps.upload(),  # manifest, destinations
        steps.report(),
    ]


globals().update(make_dags(Path(__file__).parent / "datasets", steps_of_a_build))
