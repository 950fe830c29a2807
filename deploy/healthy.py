"""A container's health check: exit code 0 if the address answers with success, and reaches the database if it says so.

The scheduler answers with an empty text, the api-server with JSON on every component: of those its own database counts,
since a scheduler that is away leaves the api-server in order.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from urllib.error import URLError


def main(url: str) -> int:
    """0, or 1 with the reason on standard output, which `docker inspect` shows."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=10) as answer:
            text = answer.read()
    except (URLError, OSError) as error:
        print(f"{url}: {error}")
        return 1
    database = json.loads(text)["metadatabase"]["status"] if text.startswith(b"{") else "healthy"
    print(f"{url}: database {database}")
    return int(database != "healthy")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
