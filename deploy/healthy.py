"""A container's health check: exit code 0 if the address answers with success, and says that a component is healthy.

    healthy.py http://127.0.0.1:8974/health                              the scheduler, which answers with an empty text
    healthy.py http://127.0.0.1:8080/api/v2/monitor/health               the api-server: its database counts alone
    healthy.py http://api-server:8080/api/v2/monitor/health triggerer    by its heartbeat, as the api-server sees it

The api-server tells of every component; one that is away leaves the api-server in order. `airflow jobs check` would ask
the same, for 3 to 6 s of CPU each time.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from urllib.error import URLError


def main(url: str, component: str = "metadatabase") -> int:
    """0, or 1 with the reason on standard output, which `docker inspect` shows."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=10) as answer:
            text = answer.read()
    except (URLError, OSError) as error:
        print(f"{url}: {error}")
        return 1
    status = json.loads(text)[component]["status"] if text.startswith(b"{") else "healthy"
    print(f"{url}: {component} {status}")
    return int(status != "healthy")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
