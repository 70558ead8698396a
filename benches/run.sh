#!/usr/bin/env bash
# Runs the release benches three times against dist/ and prints every figure; quote medians.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked --workspace --bin bench-first-light
export PLATFORM_TEST_BIN_DIR=$PWD/dist
for round in 1 2 3; do
  echo "round $round"
  "${CARGO_TARGET_DIR:-target}/release/bench-first-light"
done
