#!/usr/bin/env bash
# Images under the names that the Dockerfile and docker-compose.yaml use, for a machine that reaches no image registry.
# They are made of Debian's packages (debootstrap; needs root), and SeaweedFS of the program WEED: the same users, folders
# and entry points as the originals', but PostgreSQL 15 and Redis 7.0. An image that is there already is kept.
#
#   stand_ins.sh WEED IMAGE...
set -euo pipefail
weed=$1; shift
base=corpusmill-stand-in
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT

make_base() { # Debian, trusting what this machine trusts: its network may end TLS itself
    docker image inspect "$base" >/dev/null 2>&1 && return
    debootstrap --variant=minbase --include=ca-certificates,netbase,tzdata bookworm "$folder/root" >"$folder/log" ||
        { tail -20 "$folder/log" >&2; exit 1; }
    cp -L /etc/ssl/certs/ca-certificates.crt "$folder/root/etc/ssl/certs/"
    tar -C "$folder/root" -c . | docker import -c 'ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt' \
        -c 'ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt' - "$base" >/dev/null
}

install() { # a Dockerfile's line that installs packages
    echo "RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends $* >/dev/null && rm -rf /var/lib/apt/lists/*"
}

dockerfile() {
    echo "FROM $base"
    case $1 in
    python:3.11-*)
        install python3 python3-venv python3-pip
        cat <<'D'
RUN rm /usr/lib/python3.11/EXTERNALLY-MANAGED && ln -s /usr/bin/python3 /usr/local/bin/python
CMD ["python"]
D
        ;;
    postgres:*)
        echo 'RUN groupadd --gid 999 postgres && useradd --uid 999 --gid 999 --home-dir /var/lib/postgresql postgres'
        install postgresql-15
        cat <<'D'
ENV PATH=/usr/lib/postgresql/15/bin:/usr/local/bin:/usr/bin:/bin PGDATA=/var/lib/postgresql/data
COPY entrypoint /usr/local/bin/docker-entrypoint.sh
RUN rm -rf /var/lib/postgresql/* && mkdir -p "$PGDATA" /var/run/postgresql \
    && chown -R postgres:postgres /var/lib/postgresql /var/run/postgresql && chmod 3777 /var/run/postgresql
VOLUME /var/lib/postgresql/data
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["postgres"]
D
        ;;
    redis:*)
        echo 'RUN groupadd --gid 999 redis && useradd --uid 999 --gid 999 redis'
        install redis-server
        printf '%s\n' 'RUN mkdir -p /data && chown redis:redis /data' 'WORKDIR /data' 'VOLUME /data' 'CMD ["redis-server"]'
        ;;
    chrislusf/seaweedfs:*)
        echo 'RUN useradd --uid 1000 seaweed && mkdir /data && chown seaweed:seaweed /data'
        install wget
        printf '%s\n' 'COPY weed /usr/bin/weed' 'WORKDIR /data' 'VOLUME /data' 'ENTRYPOINT ["weed"]'
        ;;
    *) echo "no stand-in for the image $1" >&2; exit 1 ;;
    esac
}

mkdir "$folder/context"
cp "$weed" "$folder/context/weed"
cat >"$folder/context/entrypoint" <<'S'
#!/bin/bash
# As the original's: the first start makes the database and its user, whose password every connection must give.
set -e
if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb --username="$POSTGRES_USER" --pwfile=<(echo "$POSTGRES_PASSWORD") --auth=scram-sha-256 >/dev/null
    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
    pg_ctl --options='--listen_addresses=' --wait start >/dev/null
    PGPASSWORD=$POSTGRES_PASSWORD createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl --mode=fast --wait stop >/dev/null
fi
if [ "$1" = postgres ]; then set -- "$@" --listen_addresses='*'; fi
exec "$@"
S
chmod +x "$folder/context/entrypoint"
for image in "$@"; do
    docker image inspect "$image" >/dev/null 2>&1 && continue
    make_base
    dockerfile "$image" >"$folder/context/Dockerfile"
    docker build --quiet --tag "$image" "$folder/context" >/dev/null
    echo "$image: a stand-in"
done
