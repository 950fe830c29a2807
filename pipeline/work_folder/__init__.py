"""A work folder in a bucket: many machines that share nothing else.

In:  a work folder `s3://bucket/prefix`. Its mirror on this machine (mirrored.py) has the layout of a local one, and
     every stage reads and writes there as it does in a local one.
Out: the same folder for every machine. Small files lie in the bucket under the names that they have in the mirror,
     outputs beside them under their step's fingerprint and the attempt that wrote them::

         <prefix>/<dataset>/<stage>/<unit>-<fingerprint>/receipt.json    the commit: conditional, names the attempt
         <prefix>/<dataset>/plan/<plan>/.started, .delivered ...         marks, as in a local folder
         <prefix>/<dataset>/.run.json                                    the lease of a run (engine/claim.py)
         <prefix>/<dataset>/outputs/<fingerprint>/<attempt>/<output>     never changed, never read without its receipt

How a step commits: its outputs are sent first, under a name that no other attempt has; then its receipt is put where
none is (`If-None-Match: *`), or over the one that was there when the step began (`If-Match`). One request decides.
Whoever comes second finds a receipt: with the same digest it is as good as its own, with another one the step is not
deterministic, and that is an error. Nothing else is conditional but the lease.

How a step reads: a receipt is asked for when a process first needs it. Outputs come block by block: what of a file is
not here, or is not what `.blocks` says, is fetched in one request per stretch and compared (ledger/blocks.py), so a
hole, a bit that flipped in the cache and an answer that was damaged on its way are the same thing.

Invariants: outputs without a receipt are garbage; a receipt is believed only by its seal; clocks of machines are never
compared, times are the store's own; no client of a store crosses a fork.

Price: a request for each receipt that a process looks at, one for each stretch of blocks, two for each output that it
writes, three for each step.
"""
