"""Run by the consumers' tests with Corpusmill's own interpreter: what corpusmill.trace_samples says, as JSON.

Arguments: a configuration, and the other arguments as JSON. Writes [[number, file, [[export file, record, first token,
end, [[source, line], ...]], ...]], ...], or the error's class and words and exits with 1.
"""

from __future__ import annotations

import json
import sys

import corpusmill
from corpusmill.errors import CorpusmillError
from corpusmill.inspect.lineage.facts import Piece

try:
    samples = [
        [
            sample.number,
            sample.file,
            [
                [
                    record.file,
                    record.record,
                    *record.record_tokens,
                    [[part.document.source, part.document.line] for part in record.parts if isinstance(part, Piece)],
                ]
                for record in sample.records
            ],
        ]
        for sample in corpusmill.trace_samples(sys.argv[1], **json.loads(sys.argv[2]))
    ]
except CorpusmillError as error:
    print(f"{type(error).__name__}: {error}")
    raise SystemExit(1) from error
print(json.dumps(samples))
