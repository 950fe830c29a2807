"""`make compose-env`: the secrets of docker-compose.yaml in .env, generated; what stands there already stays."""

from __future__ import annotations

import base64
import os
import secrets
import sys
from pathlib import Path

SECRETS = (
    *("POSTGRES_PASSWORD", "REDIS_PASSWORD", "BUCKET_PASSWORD", "BUCKET_READER_PASSWORD"),
    *("BUCKET_ADMIN_PASSWORD", "JWT_SECRET", "API_SECRET_KEY", "ADMIN_PASSWORD"),
)


def main(path: Path) -> None:
    """Add what is missing; say the login when it is new."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    known = {line.split("=", 1)[0] for line in before.splitlines() if "=" in line}
    made = {name: secrets.token_urlsafe(32) for name in SECRETS}
    made["FERNET_KEY"] = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    made["MEMORY_GIB"] = str(max(1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30))
    made["COMPOSE_PROFILES"] = "shared"  # workers share /data; `apart`: nothing but the bucket
    new = {name: value for name, value in made.items() if name not in known}
    text = before + ("\n" if before and not before.endswith("\n") else "")
    text += "".join(f"{name}={value}\n" for name, value in new.items())
    temporary = path.with_name(f"{path.name}.new")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(text)
    temporary.replace(path)
    print(f"{path}: {len(new)} values added, {len(known)} kept; only you may read it")
    if "ADMIN_PASSWORD" in new:
        print(f"Airflow's login: admin, password {new['ADMIN_PASSWORD']}   (said only now)")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ".env"))
