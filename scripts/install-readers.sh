#!/usr/bin/env bash
# The outside readers from Python (DuckDB, polars, pyarrow, pandas, chdb, DataFusion; 1.2 GB), pinned and hash-checked,
# in .tools/bench-python. Idempotent: a second run only compares versions.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.tools/bench-python/bin/python
[ -x $python ] || python3 -m venv .tools/bench-python
$python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r benches/requirements.txt
