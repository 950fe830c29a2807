"""Single steps that need no configuration and no work folder: files in, files out.

    shuffle_text.py   lines in, the same lines in a global shuffle out      (the job of terashuf)
    reshuffle.py      ready tars of contexts in, reshuffled tars out        (the job of tokshuf --shuffle-only)

Both give the same bytes for the same inputs and seed, whatever the memory. Outputs appear under their names when they
are whole; a folder that holds other shards is refused, so that old and new ones never mix.
"""
