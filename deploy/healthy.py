"""A container's health check: exit code 0 if the address answers and no component that it lists is unhealthy."""

from __future__ import annotations

import json
import sys
import urllib.request


def main(url: str) -> int:
    """0 or 1."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, timeout=10) as answer:
        answered = json.load(answer)
    return int(
        any(component.get("status") == "unhealthy" for component in answered.values() if isinstance(component, dict))
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
