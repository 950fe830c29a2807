"""The limit of open files of a process: every memory map counts."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from corpusmill.errors import PermanentError

ENOUGH = 65_536  # the limit is not raised beyond it: some programs close every number below the limit


@contextmanager
def open_files(what: str) -> Iterator[None]:
    """Raise the process's limit as far as allowed; PermanentError if `what` needs more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):  # a kernel may have a lower limit than it states
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.EMFILE, errno.ENFILE}:
            raise
        raise PermanentError(
            f"run.too_few_open_files: {what} needs more open files than allowed",
            expected="64 or more, for any number of shards",
            got=f"a limit of {resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,}",
            next_step="raise it, for example with ulimit -n 1024",
        ) from error
