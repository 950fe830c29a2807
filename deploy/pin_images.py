"""`make pin-images`: writes the digest of every image that docker-compose.yaml and the Dockerfile name behind its tag.

Docker is asked (`docker buildx imagetools inspect`), so its logins and mirrors count, and a digest is that of the image
of all platforms. Run again, it asks for the tags' digests of now: `git diff` shows what has moved.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = ("docker-compose.yaml", "Dockerfile")
IMAGE = re.compile(r"^(\s*image: |FROM )([\w./-]+:[\w.-]+)(?:@sha256:[0-9a-f]{64})?$", re.MULTILINE)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def digest_of(image: str) -> str:
    """The digest of a tag, as its registry has it now; SystemExit with docker's words if it cannot be had."""
    command = ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", image]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    digest = asked.stdout.strip()
    if asked.returncode or not DIGEST.fullmatch(digest):
        sys.exit(f"docker does not know the digest of {image}: {asked.stderr.strip() or digest}")
    return digest


def pinned(text: str) -> str:
    """The text with every image's digest."""
    return IMAGE.sub(lambda named: f"{named[1]}{named[2]}@{digest_of(named[2])}", text)


def main(root: Path) -> None:
    """All files, or none of them if a digest cannot be had."""
    texts = {name: pinned((root / name).read_text(encoding="utf-8")) for name in FILES}
    for name, text in texts.items():
        (root / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
