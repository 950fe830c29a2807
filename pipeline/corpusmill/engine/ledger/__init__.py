"""The ledger: every step runs once, records what it did, and its accounts balance.

In: a `Step` (stage, unit, settings that can change its bytes, digests of its inputs' receipts) and a body that writes
files into the folder it is given and returns its counts.
Out: the path of a receipt. The folder carries the step's fingerprint, and the receipt is written last::

     work/<dataset>/<stage>/<unit>-<16 hex digits of the fingerprint>/
         <output files>        written by the body before the receipt appears
         receipt.json          flushed, and renamed into place last: everything next to it was complete
         .blocks               the XXH3-128 of every 1 MiB of the outputs: checked when another step opens them
         .lock                 held while the body runs, so that two runs never write one folder
         .again/               the step must run again; it writes here, while others read the files next to it

Invariants:

* A step is reused only if its receipt exists, matches its seal, states the same fingerprint, and every output has the
  size that it states. Anything else runs again.
* A receipt and its outputs are kept until new ones are written: readers still find them, and a step that fails on a
  rerun loses nothing. New files replace the old ones one by one, by rename, and have the same bytes; if they differ
  (the old were damaged), readers detect it by the block digests and wait.
* Only receipts are flushed to the device. A power cut may take outputs and leave their receipt; readers find that out
  by the digests (decisions/0001-outputs-are-not-flushed.md).
* A step checks its inputs against their block digests when it opens them (blocks.py). Damaged files are never used: the
  step that wrote them runs again, and no other has to, since later steps checked what they opened.
* Outputs that no step needs may be freed (finished.py): they are deleted, and the receipt records it and remains
  valid. Opening one reruns the step.
* A receipt's `digest` covers stage, counts, details and outputs (names, sizes, sha256), not how they were produced. A
  step's fingerprint holds its inputs' digests, so if an upstream step reruns and writes the same bytes, nothing
  downstream reruns.
* Receipts hold no secrets. Only `plan`, `download` and `upload` name places outside the work folder.

Price: one extra read of every output for its sha256 (about 1.2 GB/s per core with SHA instructions).
"""

from corpusmill.engine.ledger.balance import Check, require_balanced
from corpusmill.engine.ledger.blocks import Blocks, DamagedStepError
from corpusmill.engine.ledger.cache import evict_excess
from corpusmill.engine.ledger.finished import nobody_reading, reading, reclaim_outputs, request_rerun, rerun_requested
from corpusmill.engine.ledger.lock import LOCK_NAME, RUN_LOCK, LockHeldError, lock_owner, locked
from corpusmill.engine.ledger.once import Outcome, Step, peak_memory_bytes, place_of, run_once, size_of, valid_receipt
from corpusmill.engine.ledger.receipt import (
    RECEIPT_NAME,
    InputReceipt,
    OutputFile,
    Receipt,
    output_file,
    read_receipt,
    read_receipt_as,
    versions_of,
)

__all__ = [
    "LOCK_NAME",
    "RECEIPT_NAME",
    "RUN_LOCK",
    "Blocks",
    "Check",
    "DamagedStepError",
    "InputReceipt",
    "LockHeldError",
    "Outcome",
    "OutputFile",
    "Receipt",
    "Step",
    "evict_excess",
    "lock_owner",
    "locked",
    "nobody_reading",
    "output_file",
    "peak_memory_bytes",
    "place_of",
    "read_receipt",
    "read_receipt_as",
    "reading",
    "reclaim_outputs",
    "request_rerun",
    "require_balanced",
    "rerun_requested",
    "run_once",
    "size_of",
    "valid_receipt",
    "versions_of",
]
