"""Corpusmill: raw text dumps in, training-ready tokens out.

    source files -> shards -> text shards -> duplicate ranges -> token shards -> shuffled records -> four exports

A room is a step, or what steps build on. A step's stages are files in `<room>/stages/`.

    sources          download, index: planned files become text shards     documents    reads and writes text records
    steps            the user's own functions, lists, decisions            storage      moves bytes
    decontamination  finds benchmark items                                 config       one dataset, one configuration
    near_duplicates  finds copies with small differences                   kernels      what compiled loops use
    dedup            find_ranges, writeback: what occurred earlier         engine       runs any graph of stages, and
    tokens           tokenize: ids, audited                                             keeps the ledger
    shuffle          shuffle: scatter, gather                              report       shows results to people
    export           export: training formats
    upload           upload, report: description and delivery

Above them, ``builds`` has the graph of all stages, plans, checks, estimates and runs a build, and forgets documents;
``inspect`` opens, traces, verifies and compares what was built; ``training`` plans mixtures and lists the documents of
a training step; ``direct`` tokenizes or reorders files without a build. ``commands`` is the command line, ``api`` the
scripting interface. Nothing in this package imports Airflow; tests/test_house_rules.py states who
imports whom.
"""

from corpusmill.api import build, load, open_dataset, plan, trace, trace_samples
from corpusmill.version import __version__

__all__ = ["__version__", "build", "load", "open_dataset", "plan", "trace", "trace_samples"]
