#!/usr/bin/env bash
# Makes sure that cargo-nextest is there: the machine's own, or the pinned version from the crate registry.
set -euo pipefail
cargo nextest --version >/dev/null 2>&1 && exit 0
echo "installing cargo-nextest (a few minutes, once)" >&2
cargo install --locked --version 0.9.143 cargo-nextest
