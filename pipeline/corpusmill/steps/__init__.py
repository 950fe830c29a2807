"""Custom steps: functions and classes of users that keep, drop and edit documents; docs/steps.md explains them.

In: batches of documents (text, id, file, line), the steps of a configuration.
Out: per document, why it is dropped (or that it is kept), its new text if a step changed it, its attributes.

    use: module:name --identity_of--> what the plan pins        loading.py
                     --load--> the function or class            what is in memory, against its files
    batch --Chain--> outcomes                                    chain.py, answering.py
    try_steps: the first documents of some files, without a build chain.py
    Document, Batch, Drop, Keep, Reasons: what steps see and say answers.py

    decisions made elsewhere --read_decisions--> write_sorted --> Sorted.find  decisions.py

Three steps as models, each with its source: gopher.py, repetition.py (kernels: text_kernels.py, repetition_kernels.py)
and c4.py.

Invariants: a document's outcome depends on its text, id, file and line, and on the steps; a sample of the
batches runs twice, the second time backwards and by a new instance, and must give the same answers. No error quotes a
text.
Price: benchmarks/results/steps.json. Memory: some 10 bytes a byte of a batch (BATCH_BYTES), or of its longest text.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corpusmill.steps.answers import Answer, Batch, Document, Drop, Keep, Reasons

__all__ = ["Answer", "Batch", "Document", "Drop", "Keep", "Reasons"]


def __getattr__(name: str) -> Any:
    """One of the types above, when a step asks for it: stages are imported where numpy may be missing."""
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module("corpusmill.steps.answers"), name)
