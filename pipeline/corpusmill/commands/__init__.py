"""The command line: each command parses its options, calls one function of another room and prints what it returns.

    build.py       Build: init, config, estimate, plan, build, reprocess, run-task, claim, export
    removing.py    Build: gc, forget
    inspect.py     Inspect: verify, trace, locate, peek, step try
    steps.py       Single steps on text: dedup, infini-gram, tokenize, megatron, nanoset
    decontaminate.py   Single step: decontaminate; Inspect: benchmarks
    shuffling.py   Single steps on files that are ready: shuffle, shuffle-text
    datasets.py    Datasets: merge, mix, repair, diff; Transfers: download, upload, check-store

    app.py         the panels of `corpusmill --help`, an example for each command; addresses, refused where a path of
                   this machine is meant
    options.py     the options that several commands have: one name, one type, one help text; files that a command
                   replaces: only those of an earlier run; writes HTML pages

Invariants: an option has the name of the matching configuration key (`--text-field`, `--work-folder`); input files are
arguments, output goes to `--output`; a command on a configured dataset takes CONFIG first. docs/commands.md lists all
of them.
Price: nothing heavy is imported before a command runs, so that `--help` takes 0.3 s.
"""

from corpusmill.commands import build, removing, inspect, steps, decontaminate  # isort: skip (panels)
from corpusmill.commands import shuffling, datasets  # isort: skip (help lists them in this order)
from corpusmill.commands.app import app

__all__ = [
    "app",
    "build",
    "datasets",
    "decontaminate",
    "inspect",
    "removing",
    "shuffling",
    "steps",
]
