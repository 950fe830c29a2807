#!/usr/bin/env bash
# Docker Compose 2 where an engine runs and no Compose that docker-compose.yaml needs: Debian 12 ships 1.29, Debian 13 a
# static binary of 2.26. Taken from the next release of this machine's own Debian source, without installing anything of it.
set -euo pipefail
docker info >/dev/null 2>&1 || exit 0
docker compose version >/dev/null 2>&1 && exit 0
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
mkdir "$folder/parts" "$folder/lists"
sed 's/bookworm/trixie/g' /etc/apt/sources.list.d/debian.sources >"$folder/parts/next.sources"
next=(-qq -o APT::Sandbox::User=root -o Dir::Etc::SourceList=/dev/null
    -o "Dir::Etc::SourceParts=$folder/parts" -o "Dir::State::Lists=$folder/lists")
apt-get "${next[@]}" update
(cd "$folder" && apt-get "${next[@]}" download docker-compose/trixie)
dpkg-deb --extract "$folder"/docker-compose_*.deb "$folder/package"
plugins=${DOCKER_CONFIG:-$HOME/.docker}/cli-plugins
mkdir -p "$plugins"
install -m 755 "$folder/package/usr/libexec/docker/cli-plugins/docker-compose" "$plugins/docker-compose"
