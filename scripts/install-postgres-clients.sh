#!/usr/bin/env bash
# Clients of PostgreSQL, pinned and hash-checked: those for Python in .tools/postgres-python, where there is npm those for JavaScript in
# .tools/postgres-node, and where there is apt the JDBC driver of Debian in .tools/postgres-jdbc (750 MB). psql and Java are the machine's.
# Idempotent: a second run only compares versions.
set -euo pipefail
cd "$(dirname "$0")/.."
here=tests/suite/postgres/clients
left_out() { echo "install-postgres-clients: $1" >&2; }

python=.tools/postgres-python/bin/python
# One that was broken off has Python and no pip.
$python -m pip --version >/dev/null 2>&1 || python3 -m venv --clear .tools/postgres-python
$python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r $here/requirements.txt

if ! command -v npm >/dev/null; then
  left_out "npm is missing, so the clients in JavaScript are; install it with: apt-get install npm"
# What is there already is what the lock file says.
elif ! cmp --silent $here/node/package-lock.json .tools/postgres-node/installed.json; then
  mkdir -p .tools/postgres-node
  cp $here/node/package.json $here/node/package-lock.json .tools/postgres-node/
  (cd .tools/postgres-node && npm ci --ignore-scripts --no-audit --no-fund --loglevel error >/dev/null)
  cp $here/node/package-lock.json .tools/postgres-node/installed.json
fi

command -v psql >/dev/null || left_out "psql is missing; install it with: apt-get install postgresql-client"
command -v javac >/dev/null || left_out "a JDK is missing, so JDBC is not run; install it with: apt-get install openjdk-17-jdk-headless"
jdbc=libpostgresql-jdbc-java=42.5.5-0+deb12u1
jdbc_sha=2092c08d8ff68fc59434fc32fa75714f38b74bfe4fd78f457765c73d47963832
[ -f ".tools/postgres-jdbc/$jdbc_sha" ] && exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { left_out "there is no apt-get here, so JDBC is not run"; exit 0; }
work=$(mktemp -d "$PWD/.tools/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
# Where the package is written, apt may not be somebody else.
fetch() { (cd "$work" && apt-get download --quiet=2 -o APT::Sandbox::User=root "$jdbc" >/dev/null 2>&1); }
fetch || { [ "$(id -u)" = 0 ] && apt-get update --quiet=2 >/dev/null 2>&1 && fetch; } || { left_out "$jdbc cannot be fetched from Debian's archive"; exit 0; }
package=$(echo "$work"/*.deb)
echo "$jdbc_sha  $package" | sha256sum --check --quiet - || { left_out "$jdbc is not the pinned package"; exit 65; }
dpkg-deb --extract "$package" "$work/root"
mkdir -p "$work/new"
cp --dereference "$work"/root/usr/share/java/postgresql.jar "$work/new/"
touch "$work/new/$jdbc_sha"
rm -rf .tools/postgres-jdbc
mv "$work/new" .tools/postgres-jdbc
