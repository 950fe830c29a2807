"""The plugin's pages: of a run, and of all datasets. Imported at the first request.

    endpoints.py  the URLs, who may see them, and the pages of refused requests
    records.py    Airflow's records: runs, task instances, XComs, the user's permissions
    receipts.py   receipts read once, and for a bounded time in one request; the files of a report's step
    live.py       records and receipts -> progress of each step and each shard
    state.py      all of what a run's page shows
    datasets.py   every dataset the user may see, and its history
    templates/    the pages;  static/: their style and scripts, without a build step

A request names only a run, so it cannot choose which file is read: paths come from the XComs of the run's own tasks,
and are followed only if they are receipts below the work folder of the run's plan. Numbers and words come from
corpusmill.report; figures that a receipt states are never computed here. Nothing here writes: the browser reprocesses a
shard through Airflow's own API, with the user's own permission.

Price: a page of 200 shards takes four queries and, at first, up to READING_SECONDS to read receipts; the next request
reads the rest, and the page says so.
"""
