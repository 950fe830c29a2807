"""Corpusmill: raw text dumps in, training-ready tokens out.

    source files -> shards -> text shards -> duplicate ranges -> token shards -> shuffled records -> four exports

Rooms: ``storage`` moves bytes, ``documents`` reads and writes text records, ``dedup`` finds duplicate ranges,
``tokens`` encodes, ``shuffle`` permutes, ``export`` writes training formats, ``ledger`` decides run or reuse and keeps
the accounts, and ``report`` tells people. ``decontamination`` finds the items of benchmarks, ``steps`` asks functions
of the user's own. ``sources`` plans and reads source files; ``engine`` runs a graph of stages without knowing any of
them; ``stages`` is where the rooms meet, a file per stage; ``builds`` plans, checks, estimates and runs a whole build,
or its first stages. On top, ``lineage`` follows tokens to their documents and back, ``verify`` reads everything again,
``forgetting`` keeps the list of takedowns and looks for what is left of them,
``datasets`` opens, merges and repairs what is finished, ``difference`` compares two versions, ``mixture`` plans the
training on several datasets, and ``training`` says what was in a step of it. Without a build, ``in_order`` tokenizes
files as they are and ``reshuffle`` gives ready files another order. ``commands`` is the command line, ``api`` what
people script. Nothing in this package imports Airflow; tests/test_house_rules.py says who imports whom.
"""

from corpusmill.api import build, load, open_dataset, plan, trace, trace_samples
from corpusmill.version import __version__

__all__ = ["__version__", "build", "load", "open_dataset", "plan", "trace", "trace_samples"]
