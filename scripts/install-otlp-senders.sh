#!/usr/bin/env bash
# OpenTelemetry's SDKs and exporters for Python and, where there is npm, for JavaScript (150 MB), pinned and hash-checked, in
# .tools/otlp-python and .tools/otlp-node. Idempotent: a second run only compares versions.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.tools/otlp-python/bin/python
[ -x $python ] || python3 -m venv .tools/otlp-python
$python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r tests/suite/otlp/requirements.txt
command -v npm >/dev/null || { echo "install-otlp-senders: npm is missing, so the senders in JavaScript are; install it with: apt-get install npm" >&2; exit 0; }
mkdir -p .tools/otlp-node
# What is there already is what the lock file says.
cmp --silent tests/suite/otlp/node/package-lock.json .tools/otlp-node/installed.json && exit 0
cp tests/suite/otlp/node/package.json tests/suite/otlp/node/package-lock.json .tools/otlp-node/
npm ci --prefix .tools/otlp-node --ignore-scripts --no-audit --no-fund --silent
cp tests/suite/otlp/node/package-lock.json .tools/otlp-node/installed.json
