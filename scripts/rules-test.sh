#!/usr/bin/env bash
# Checks the alerts of deploy/prometheus and runs their unit tests, by Prometheus' own promtool: that of the machine, or of Debian's package in
# .tools/senders-debian (scripts/install-senders.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
promtool=$(command -v promtool || echo .tools/senders-debian/usr/bin/promtool)
[ -x "$promtool" ] || { echo "rules-test: promtool is missing; install it with: apt-get install prometheus, or scripts/install-senders.sh" >&2; exit 69; }
"$promtool" check rules deploy/prometheus/rules.yml
"$promtool" test rules deploy/prometheus/rules-test.yml
