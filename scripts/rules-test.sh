#!/usr/bin/env bash
# Checks the alerts of deploy/prometheus and the expressions of the dashboards by Prometheus' own promtool, and runs the alerts' unit tests. Takes
# promtool of the machine, or of Debian's package in .tools/senders-debian (scripts/install-senders.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
promtool=$(command -v promtool || echo .tools/senders-debian/usr/bin/promtool)
[ -x "$promtool" ] || { echo "rules-test: promtool is missing; install it with: apt-get install prometheus, or scripts/install-senders.sh" >&2; exit 69; }
"$promtool" check rules deploy/prometheus/rules.yml
"$promtool" test rules deploy/prometheus/rules-test.yml

# As rules that record something, with Grafana's variables in place. JSON is YAML.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - deploy/grafana/dashboards/*.json > "$work/panels.yml" <<'PY'
import json, sys
rules = []
for file in sys.argv[1:]:
    for panel in json.load(open(file))["panels"]:
        for target in panel["targets"]:
            if "expr" in target:
                expr = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
                rules.append({"record": f"panel:{panel['id']}:{target['refId']}", "expr": expr})
json.dump({"groups": [{"name": "panels", "rules": rules}]}, sys.stdout)
PY
"$promtool" check rules "$work/panels.yml"
