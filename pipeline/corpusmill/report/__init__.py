"""The report: what a build did to a dataset, for people.

In:  a `BuildSummary`, filled from receipts by a stage (this room reads no receipt and no data file).
Out: the same facts in three forms: JSON (`to_json`, the stored form), a terminal page, one HTML file. Also a live view
 of a run, fed by its runner.

    facts.py       frozen pydantic models, flows, stages and the rows of steps;  content.py: what was found in the text
    summary.py     the facts of a build, from them; derived verdicts and headline figures
    histograms.py  lengths -> histogram by powers of two, exact integers
    figures.py     numbers -> text: 1,234,567   1.23 GiB   4.56 B   2 h 05 m   12.3 %
    terminal.py    summary -> a table of steps, totals and warnings on the terminal
    html.py        summary -> HTML, with flags for trainers; report.html and report.css are its template
    flow.py        the picture of what flows through the steps;  plots.py: the others;  svg.py: their marks
    shards.py      a row per shard, and the digests of steps
    card.py        figures -> README.md with the hub's header and code that loads each format, and Croissant
    tried.py       what steps would do to sample documents, on the terminal and as a page (tried.html)
    progress.py    bars that move while a build runs; plain lines where there is no terminal

Invariants: the same summary gives the same bytes of JSON and HTML. The HTML file is self-contained: no script, no
request, light and dark by the reader's preference. Untrusted text (names, paths, examples) is escaped in HTML and never
treated as markup on the terminal. Every number shown is exact in a tooltip or a table, even where the picture rounds.

Price: memory in proportion to the summary. HTML takes 0.1 s and is 85 kB for a usual build; 0.3 s and 1.4 MB for one
of 200 shards, 3,000 source files and 1,000 output files. Lists in HTML are cut at 2,000 rows, and state it; the JSON
has all of them.
"""
