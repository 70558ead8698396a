#!/usr/bin/env bash
# Runs the release benches, three rounds each, and prints every figure; quote medians. Arguments choose some: run.sh engine
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked --workspace --bin bench-first-light --bin bench-engine --bin bench-http-ingest
export PLATFORM_TEST_BIN_DIR=$PWD/dist
bin=${CARGO_TARGET_DIR:-target}/release
[ $# -gt 0 ] || set -- first-light engine http-ingest
for bench in "$@"; do
  case $bench in
    first-light) for round in 1 2 3; do echo "round $round"; "$bin/bench-first-light"; done ;;
    engine) "$bin/bench-engine" ;;
    http-ingest) for round in 1 2 3; do echo "round $round"; "$bin/bench-http-ingest"; done ;;
    *) echo "no bench is named $bench" >&2; exit 64 ;;
  esac
done
