"""Corpusmill: raw text dumps in, training-ready tokens out.

    source files -> shards -> text shards -> duplicate ranges -> token shards -> shuffled records -> four exports

Rooms: ``storage`` moves bytes, ``documents`` reads and writes text records, ``dedup`` finds duplicate ranges,
``tokens`` encodes, ``shuffle`` permutes, ``export`` writes training formats, ``ledger`` decides run or reuse and
keeps the accounts, ``report`` tells people, and ``stages`` is the only place where the rooms meet.
Nothing in this package imports Airflow.
"""

__version__ = "0.1.0"
