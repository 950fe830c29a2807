"""Corpusmill: raw text dumps in, training-ready tokens out.

    source files -> shards -> text shards -> duplicate ranges -> token shards -> shuffled records -> four exports

Rooms: ``storage`` moves bytes, ``documents`` reads and writes text records, ``dedup`` finds duplicate ranges,
``tokens`` encodes, ``shuffle`` permutes, ``export`` writes training formats, ``ledger`` decides run or reuse and
keeps the accounts, ``report`` tells people, and ``stages`` is where the rooms meet in a build. On top of it,
``lineage`` follows tokens to their documents and back, ``verify`` reads everything again, ``single`` runs one step by
itself, and ``mixture`` plans the training on several finished datasets. ``cli`` and ``local`` are the command line.
Nothing in this package imports Airflow.
"""

__version__ = "0.1.0"
