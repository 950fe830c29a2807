"""Entry point of the command line: runs a command and turns errors into messages and exit codes."""

from __future__ import annotations

import gc
import logging
import os
import sys
import traceback

from corpusmill.errors import CorpusmillError, TransientError
from corpusmill.installed import worker_required

with worker_required():
    from corpusmill.commands import app

GARBAGE_THRESHOLD = 50_000  # objects; at Python's 700, garbage collection takes a tenth of a small job's time


def main() -> None:
    """Run a command; our errors are messages, not tracebacks."""
    gc.set_threshold(GARBAGE_THRESHOLD)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        with worker_required():
            app()
    except CorpusmillError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except Exception:
        if "CORPUSMILL_TASK" not in os.environ:
            raise
        traceback.print_exc()  # the scheduler retries an unforeseen error, as it would one of its own process
        raise SystemExit(TransientError.exit_code) from None


if __name__ == "__main__":
    main()
