"""Corpusmill: raw text dumps in, training-ready tokens out.

    source files -> shards -> text shards -> duplicate ranges -> token shards -> shuffled records -> four exports

Rooms: ``storage`` moves bytes, ``documents`` reads and writes text records, ``dedup`` finds duplicate ranges,
``tokens`` encodes, ``shuffle`` permutes, ``export`` writes training formats, ``ledger`` decides run or reuse and keeps
the accounts, and ``report`` shows the results. ``decontamination`` finds benchmark items, ``steps`` calls the user's
own functions. ``sources`` plans and reads source files; ``engine`` runs a graph of stages without knowing any of them;
``stages`` is where the rooms meet, a file per stage; ``builds`` plans, checks, estimates and runs a whole build, or
its first stages. On top, ``lineage`` follows tokens to their documents and back, ``verify`` reads everything again,
``forgetting`` keeps the list of takedowns and searches for remains of their text, ``datasets`` opens, merges and
repairs finished datasets, ``difference`` compares two versions, ``mixture`` plans training on several datasets, and
``training`` lists the documents of a training step. Without a build, ``in_order`` tokenizes files in source order and
``reshuffle`` reorders finished files. ``commands`` is the command line, ``api`` the scripting interface. Nothing in
this package imports Airflow; tests/test_house_rules.py states who imports whom.
"""

from corpusmill.api import build, load, open_dataset, plan, trace, trace_samples
from corpusmill.version import __version__

__all__ = ["__version__", "build", "load", "open_dataset", "plan", "trace", "trace_samples"]
