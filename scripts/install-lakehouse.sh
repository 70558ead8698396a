#!/usr/bin/env bash
# Engines that read the Iceberg catalogue, from Python, pinned and hash-checked, in .tools/lakehouse-python: those of the suite (pyiceberg,
# DuckDB and polars; 600 MB), and with the argument `all` those of `make lakehouse` too (1.8 GB in all). Idempotent: a second run only compares versions.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.tools/lakehouse-python/bin/python
# One that was broken off has Python and no pip.
$python -m pip --version >/dev/null 2>&1 || python3 -m venv --clear .tools/lakehouse-python
pip=($python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes)
"${pip[@]}" --only-binary :all: -r tests/suite/lakehouse/requirements.txt
touch .tools/lakehouse-python/installed
[ "${1-}" = all ] || exit 0
# PySpark is built in this environment, so that nothing is fetched for it that is not pinned.
"${pip[@]}" --only-binary :all: -r /dev/stdin <<< "wheel==0.45.1 --hash=sha256:708e7481cc80179af0e556bbf0cc00b8444c7321e2700b8d8580231d13017248"
"${pip[@]}" --only-binary :all: --no-binary pyspark --no-build-isolation -r tests/suite/lakehouse/requirements-lakehouse.txt
