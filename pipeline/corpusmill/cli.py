"""Entry point of the command line: runs a command and turns errors into messages and exit codes."""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from typing import NoReturn

from corpusmill.errors import CorpusmillError, PermanentError, TransientError
from corpusmill.installed import worker_required

# Nothing here multiplies matrices, and OpenBLAS's idle threads spin: 55 ms of CPU in each process that loads numpy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
with worker_required():
    from corpusmill.builds.processes import collect_seldom
    from corpusmill.commands import app

# What a path that someone typed may cause; others, such as EIO or those of a step's own work, keep their traceback.
OF_PATHS = {
    *(errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
    *(errno.ENOENT, errno.ENOTDIR, errno.EPERM, errno.EROFS),
}


def main() -> None:
    """Run a command; our errors, and those of paths that cannot be used, are messages, not tracebacks."""
    collect_seldom()
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        with worker_required():
            app()
    except CorpusmillError as error:
        _end_with(error)
    except Exception as error:
        if "CORPUSMILL_TASK" in os.environ:
            traceback.print_exc()  # the scheduler retries an unforeseen error, as it would one of its own process
            raise SystemExit(TransientError.exit_code) from None
        in_step = bool(getattr(error, "__notes__", ()))  # engine/running.py
        if in_step or not isinstance(error, OSError) or error.filename is None or error.errno not in OF_PATHS:
            raise
        where, next_step = error.filename2 or error.filename, "check the path and its permissions"
        _end_with(
            PermanentError(
                "command.path_unusable: a path cannot be used", where=where, got=error.strerror, next_step=next_step
            )
        )


def _end_with(error: CorpusmillError) -> NoReturn:
    print(error, file=sys.stderr)
    raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
