#!/usr/bin/env bash
# Runs the release benches and prints every figure; quote medians. Arguments choose some: run.sh engine store
set -euo pipefail
cd "$(dirname "$0")/.."
bins=(first-light engine store http-ingest otlp-ingest guarded memory layout hour readers queries load tail lanes gaps isolation fleet rack reload late object-store iceberg page)
# As build-dist.sh, so that nothing is compiled again.
export RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/release-rustc.sh CARGO_INCREMENTAL=0
cargo build --release --locked --workspace "${bins[@]/#/--bin=bench-}"
export PLATFORM_TEST_BIN_DIR=$PWD/dist
bin=${CARGO_TARGET_DIR:-target}/release
python=.tools/bench-python/bin/python
if [ -n "${BENCH_PEERS:-}" ]; then
  scripts/install-readers.sh
  # A collector of OpenTelemetry; the wheel is for CPython 3.11, as those of benches/requirements.txt.
  scripts/fetch-tool.sh rotel rotel 0.0.1a15 2f4117e58410c933e0dc042a268ef738dab2e3a5d63b5831209acdac2a6ddcb7 \
    rotel/rotel-agent 182f2a4ad68346bb1ca3bb87b8d52c80595f89aa9751dc8d80f0feb9ca18ca5d
fi
[ ! -x $python ] || export BENCH_PYTHON=${BENCH_PYTHON:-$PWD/$python}
lakehouse=.tools/lakehouse-python/bin/python
[ ! -x $lakehouse ] || export BENCH_LAKEHOUSE=${BENCH_LAKEHOUSE:-$PWD/$lakehouse}
[ $# -gt 0 ] || set -- "${bins[@]}" lanes-guarded fleet-guarded
for bench in "$@"; do
  case $bench in
    first-light) for round in 1 2 3; do echo "round $round"; "$bin/bench-first-light"; done ;;
    engine | store | http-ingest | otlp-ingest | guarded | memory | hour | load | tail | lanes | gaps | isolation | fleet | rack | reload | late | iceberg) "$bin/bench-$bench" ;;
    object-store) for part in outage requests reader; do "$bin/bench-object-store" $part; done ;;
    lanes-guarded | fleet-guarded) "$bin/bench-${bench%-guarded}" guarded ;;
    page)
      if command -v chromium >/dev/null; then "$bin/bench-page"; else echo "page: left out, it needs Debian's package chromium"; fi ;;
    layout) "$bin/bench-layout" && "$bin/bench-layout" sizes ;;
    readers | queries)
      if [ -n "${BENCH_PYTHON:-}" ]; then "$bin/bench-$bench"; else echo "$bench: left out, BENCH_PEERS=1 installs the peers"; fi ;;
    *) echo "no bench is named $bench" >&2; exit 64 ;;
  esac
done
