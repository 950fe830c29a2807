"""Whole builds: plan them, check that they can finish, estimate them, run them here, reprocess a shard.

``graph`` lists all stages in order; ``chain`` groups them into the steps that people know. forgetting/ has the list of
takedowns, and searches for remains of their text.

In: a configuration. Out: a plan's receipt (``plan``), or one error with everything that would stop the build later
(``preflight``, ``room``, ``overlap``); a finished build (``local``: one process per core; ``processes``: how they
end); an estimate from a sample (``estimate``, ``sampling``); a first configuration derived from the files
(``starting``); the reprocessed steps of a shard (``reprocess``).

Invariants: nothing is written next to the sources; a refused build leaves no files; an estimate touches no step of the
real build.
Price: planning lists every source; an estimate reads the drawn files once and builds their sample twice.
"""
