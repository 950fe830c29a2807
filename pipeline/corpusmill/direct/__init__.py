"""Files to files, without a build.

    in_order/    JSON lines to tokens, in source order: the jobs of a trainer's own tools
    reshuffle/   finished files in another order

What stops halfway leaves no file under its final name.
"""
