"""A work folder in a bucket, for machines that share nothing else.

In:  a work folder `s3://bucket/prefix`. Its mirror on this machine (mirrored.py) has the layout of a local
     one, and every stage reads and writes there as it does in a local one.
Out: the same folder for every machine. Small files have the same names in the bucket as in the mirror; outputs are
under their step's fingerprint and the attempt that wrote them::

         <prefix>/<dataset>/<stage>/<unit>-<fingerprint>/receipt.json    the commit: conditional, names the attempt
         <prefix>/<dataset>/plan/<plan>/.started, .delivered ...         marks, as in a local folder
         <prefix>/<dataset>/.run.json                                    the lease of a run (engine/claim.py)
         <prefix>/<dataset>/outputs/<fingerprint>/<attempt>/<output>     never changed, never read without its receipt

How a step commits: it sends its outputs first, under a name that no other attempt has; then it puts its receipt where
none exists (`If-None-Match: *`), or over the one that existed when the step began (`If-Match`). One request decides.
The second attempt finds a receipt: the same digest is as good as its own; another digest means that the step is not
deterministic, which is an error. Besides receipts, only the lease is conditional.

How a step reads: a process requests a receipt when it first needs it. Outputs come block by block: blocks that are
missing here, or differ from `.blocks`, are fetched in one request per range and checked (engine/ledger/blocks.py), so a
hole, a flipped bit in the cache and a response damaged in transit are handled alike.

Invariants: outputs without a receipt are garbage; a receipt is trusted only by its seal; machines' clocks are never
compared, times are the store's own; no client of a store crosses a fork.

Price: one request per receipt that a process reads, one per range of blocks, one per output that it writes or per
part of it, five per step (builds/estimate.py counts them).
"""
