"""What is done with a whole build: plan it, check that it can end, estimate it, run it here, do a shard again.

In: a configuration. Out: a plan's receipt (``plan``), or one error with everything that would keep the build from
ending (``preflight``, ``memory``, ``apart``); a finished build (``local``: a process per core); an estimate from a
sample (``estimate``, ``sampling``); a first configuration from a look at the files (``starting``); the steps of a shard
asked for again (``reprocess``).

Invariants: nothing is written beside the sources; a build that is refused leaves nothing behind; an estimate touches
no step of the real build.
Price: planning lists every source; an estimate reads the drawn files once and builds their sample three times.
"""
