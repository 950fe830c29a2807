"""What the plugin shows: the page of a run, and the page of all datasets. Imported at the first request, not before.

    endpoints.py  the addresses, who may see them, and what a refused request is told
    records.py    what Airflow knows: runs, task instances, what tasks handed on, what the user may do
    receipts.py   receipts read once, and for a bounded time in one request
    live.py       records and receipts -> how far each stage and each shard is
    finished.py   the files of a report's step; what reprocessing changed
    datasets.py   every dataset the user may see, and its history
    templates/    the pages;  static/: their style and scripts, without a build step

A request names only a run, so it cannot choose which file is read: paths come from the XComs of the run's own tasks,
and are followed only if they are receipts below the work folder of the run's plan. Numbers and words come from
corpusmill.report; nothing is counted here that a receipt states. Nothing here writes: the browser reprocesses a shard
through Airflow's own API, with the user's own permission.

Price: a page of 200 shards takes four queries and, at first, up to READING_SECONDS to read receipts; the next request
reads the rest, and the page says so.
"""
