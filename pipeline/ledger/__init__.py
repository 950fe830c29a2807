"""The ledger: every step runs once, says what it did, and its accounts balance.

In:  a `Step` (stage, unit, settings that can change its bytes, digests of its inputs' receipts) and a body that
     writes files into the folder it is given and returns its counts.
Out: the path of a receipt. The folder carries the step's fingerprint, and the receipt is written last::

     work/<dataset>/<stage>/<unit>-<16 hex digits of the fingerprint>/
         <output files>        written by the body, flushed to the device before the receipt appears
         receipt.json          renamed into place last: its presence means that everything beside it is whole
         .blocks               the XXH3-128 of every 1 MiB of the outputs: compared when another step opens them
         .lock                 held while the body runs, so that two runs never write one folder
         .again/               the step is to run again; it writes here, while others read what is beside it

Invariants:

* A step is reused only if its receipt exists, is as written (its seal), names the same fingerprint, and every
  output has the size it states. Anything else runs again.
* A receipt and its outputs stay until new ones are written: whoever reads them meanwhile finds them, and a step that
  fails when it runs again has lost nothing. What it writes anew takes the old files' places one by one, by rename, and
  has the same bytes; where it has not (the old were damaged), readers see it by the block digests and wait for it.
* A step compares its inputs with their block digests when it opens them (blocks.py). What is damaged is never used:
  the step that wrote it runs again, and since later steps compared what they opened, no other has to.
* Outputs that no step needs may be given back (given_back.py): they are deleted, the receipt says so and stays valid.
  Whoever opens one has the step run again.
* A receipt's `digest` covers stage, counts, details and outputs (names, sizes, sha256), not how they came about. A
  step's fingerprint holds its inputs' digests, so an upstream step that ran again and wrote the same bytes
  changes nothing downstream.
* Receipts hold no secrets. Only `plan`, `download` and `upload` name places outside the work folder.

Price: one extra read of every output for its sha256 (about 1.2 GB/s per core with SHA instructions).
"""

from corpusmill.ledger.again import ask_again, asked_again
from corpusmill.ledger.balance import Check, require_balanced
from corpusmill.ledger.blocks import Blocks, DamagedStepError
from corpusmill.ledger.cached import let_go
from corpusmill.ledger.given_back import give_back, nobody_reading, reading
from corpusmill.ledger.lock import RUN_LOCK, LockHeldError, held
from corpusmill.ledger.once import Outcome, Step, run_once, valid_receipt
from corpusmill.ledger.receipt import (
    RECEIPT_NAME,
    InputReceipt,
    OutputFile,
    Receipt,
    output_file,
    read_receipt,
    versions_of,
)

__all__ = [
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
    "ask_again",
    "asked_again",
    "give_back",
    "held",
    "let_go",
    "nobody_reading",
    "output_file",
    "read_receipt",
    "reading",
    "require_balanced",
    "run_once",
    "valid_receipt",
    "versions_of",
]
