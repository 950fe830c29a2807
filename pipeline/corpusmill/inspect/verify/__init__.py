"""Verify: re-read everything that a build made, and report every fault.

In:  a build (its plan's receipt); its work folder and its destinations, in any state.
Out: a `Verification`: what was read, and a `Finding` for every fault: what, where (file, and byte if known), expected,
got. No finding: all is well.

    receipts.py      finds the build's folders, from receipts that may be damaged; files <-> receipt; balance
    recount          counts, details and the order-free record digest, from the files (a part of every stage)
    exports.py       each format's own verifier, with sizes from the layout and ids from the tokenize receipts
    delivered.py     a delivered version by itself, without a build
    repair.py        two destinations against each other, without a build
    destinations.py  every file there, of the right size and sha256, and nothing else; documents on the list of
                     `forget`, and spans of their texts in every format

A receipt is bound as a whole: by its seal, by the fingerprint in its folder's name, and by the digest that the next
steps' receipts name. An edited receipt counts as damaged, whichever field was changed. A forger who adjusts all of
these still faces the recounts.

Rules: nothing is repaired, written or locked; no finding hides another (a damaged file's step is still checked for all
else), but a step whose receipt is missing is reported once, not once per step that needed it. Local source files are
not read: they belong to the user, and a changed one means a new plan.

Price: every file of the build and of its local destinations once for its sha256, and once more, from the page cache,
for its content: 400 to 500 MB/s in all on one core, 1.2 s for a build of 500 tiny steps. Memory is the receipts, and
per worker a few blocks and the ends of one shard's records (about 40 bytes each).
"""

from corpusmill.inspect.verify.delivered import render_version, verify_copy, verify_version
from corpusmill.inspect.verify.finding import Finding
from corpusmill.inspect.verify.verification import Verification, render, verify_build

__all__ = ["Finding", "Verification", "render", "render_version", "verify_build", "verify_copy", "verify_version"]
