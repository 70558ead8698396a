#!/usr/bin/env bash
# Lints the Helm chart and renders it with each file of its ci/; every object is checked against the schemas of Kubernetes, every configuration
# that comes out by the programs (dist/, or the folder that PROGRAMS names), and what must be refused is. No cluster is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { echo "chart-test: $*" >&2; exit 1; }
scripts/install-helm.sh
# The chart has links to the alerts and dashboards, which it says each time.
helm() { .tools/bin/helm "$@" 2> >(grep -v 'found symbolic link' >&2 || true); }
python=$PWD/.tools/kubernetes-python/bin/python programs=${PROGRAMS:-dist}
chart=deploy/helm/platform
[ -x "$programs/platform-mixer" ] || fail "$programs/platform-mixer is missing; make it with: make build"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Helm asks for a home.
export HOME=$work COLLECTOR_KEY=secret
passed=0

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)

for values in $chart/ci/*.yaml; do
  case=$(basename "$values" .yaml)
  helm lint --quiet --strict -f "$values" $chart
  helm template mixer $chart --namespace telemetry -f "$values" > "$work/$case.yaml"
  # The oldest that the chart allows, and the newest that the schemas have.
  for kubernetes in 1.27 1.37; do
    "$python" scripts/chart-check/check.py "$case" $kubernetes "$work" < "$work/$case.yaml"
  done
  passed=$((passed + 1))
done
[ -n "$(grep -l 'alert: PlatformMixerDown' "$work"/*.yaml)" ] || fail "no rendered rules have the alerts"
grep -q '"uid": "platform-storage"' "$work/full.yaml" || fail "the dashboards are not rendered"
grep -q 'uid: platform-prometheus' "$work/full.yaml" || fail "the data sources are not rendered"
# Readers have what the Mixer has of questions, and nothing of what it takes in.
reader=$(cat "$work"/full.*-reader.platform-mixer.toml)
case $reader in *'max_concurrent = 6'*) ;; *) fail "readers do not get config.query" ;; esac
case $reader in *floor*) fail "readers get config.ingest" ;; esac

# A command runs in the Mixer's place, on its volume, and once: an upgrade has the same Job while the command is the same.
long=a-release-whose-name-is-as-long-as-a-release-can-be
helm template mixer $chart --namespace telemetry -f $chart/ci/maintenance.yaml --is-upgrade --set startupFailureThreshold=9 > "$work/upgraded.yaml"
helm template $long $chart --namespace telemetry -f $chart/ci/maintenance.yaml --set-json 'maintenance.command=["rotate-key"]' > "$work/long.yaml"
"$python" - "$work"/{maintenance,upgraded,long}.yaml <<'PY'
import sys, yaml
def specs(path):
    return {(one["kind"], one["metadata"]["name"]): one["spec"] for one in yaml.safe_load_all(open(path)) if one and "spec" in one}
def job_of(of):
    ((name, job),) = [(name, spec) for (kind, name), spec in of.items() if kind == "Job"]
    return name, job
of, upgraded, long = map(specs, sys.argv[1:])
mixer, (name, job) = of["StatefulSet", "mixer-platform"], job_of(of)
assert name.startswith("mixer-platform-job-"), name
assert job_of(upgraded) == (name, job), upgraded
other = job_of(long)[0]
assert len(other) <= 63 and other.split("-")[-1] != name.split("-")[-1], other
assert job["backoffLimit"] == 7, job
assert job["podFailurePolicy"]["rules"] == [
    {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    {"action": "FailJob", "onExitCodes": {"containerName": "platform-mixer", "operator": "NotIn", "values": [69]}, "onPodConditions": []},
], job
assert job["template"]["metadata"]["annotations"] == {"team": "operations"}, job
assert job["template"]["spec"]["priorityClassName"] == mixer["template"]["spec"]["priorityClassName"] == "urgent", job
pod, command = (one["template"]["spec"] for one in (mixer, job))
(serves,), (runs,) = pod["containers"], command["containers"]
assert mixer["replicas"] == 0 and runs["args"] == ["check", "--repair"], runs
assert all(serves[key] == runs[key] for key in ["image", "env", "volumeMounts", "securityContext"]), runs
assert command["volumes"] == pod["volumes"] + [{"name": "data", "persistentVolumeClaim": {"claimName": "data-mixer-platform-0"}}], command["volumes"]
assert not runs.keys() & {"ports", "livenessProbe", "readinessProbe", "startupProbe"}, runs
PY
passed=$((passed + 1))
# Root's connections over loopback are those of whoever may forward ports.
[ "$(grep -l '^auth = "own"$' "$work"/*.platform-mixer.toml | wc -l)" = "$(ls "$work"/*.platform-mixer.toml | wc -l)" ] || fail "a Mixer trusts root"

for file in "$work"/*.toml; do
  case $file in
    *.platform-mixer.toml) "$programs/platform-mixer" -c "$file" config show > "$work/shown" ;;
    *) "$programs/platform" -c "$file" config show > "$work/shown" ;;
  esac 2> "$work/said" || { cat "$file" "$work/said" >&2; fail "$(basename "$file") is refused"; }
  [ ! -s "$work/said" ] || { cat "$file" "$work/said" >&2; fail "$(basename "$file") is not clean"; }
  passed=$((passed + 1))
done
# The controls: a field that Kubernetes does not know is found. Keys that nobody knows are refused, and so reach the program as they are.
sed 's/terminationGracePeriodSeconds/terminationGraceSeconds/' "$work/local.yaml" | "$python" scripts/chart-check/check.py wrong 1.37 "$work" > /dev/null 2> "$work/said" \
  && fail "a field that Kubernetes does not know is taken"
grep -q terminationGraceSeconds "$work/said" || fail "the error does not name the field: $(cat "$work/said")"
helm template mixer $chart -f $chart/ci/local.yaml --set config.api.no_such_key=1 | "$python" scripts/chart-check/check.py wrong 1.37 "$work" > /dev/null
"$programs/platform-mixer" -c "$work"/wrong.*.toml config show > /dev/null 2> "$work/said" && fail "a key that does not exist is taken"
grep -q no_such_key "$work/said" || fail "the error does not name the key: $(cat "$work/said")"

# refused PATTERN FLAG...: the chart does not render, and says why
refused() {
  local pattern=$1
  shift
  .tools/bin/helm template mixer $chart "$@" > /dev/null 2> "$work/said" && fail "rendered: $*"
  grep -q "$pattern" "$work/said" || { cat "$work/said" >&2; fail "$* is not refused with $pattern"; }
  passed=$((passed + 1))
}
refused 'has no certificate'
refused 'objectStore.url' --set tls.allowInsecure=true --set readers.replicas=1
refused 'tls.clientSecret' --set tls.existingSecret=a --set tls.clientCaKey=b
refused 'an invite admits one' -f $chart/ci/racks.yaml --set racks.replicas=2
refused 'bus.external.url' --set tls.allowInsecure=true --set bus.mode=external
refused 'tokenSecret' --set tls.allowInsecure=true --set metrics.serviceMonitor.enabled=true
refused 'is no section' --set tls.allowInsecure=true --set-json 'readers={}' --set-json 'config={"a":{"b":1}}' --set-string config.c=d --skip-schema-validation
refused 'replica' --set tls.allowInsecure=true --set replicas=3
refused 'maintenance' --set tls.allowInsecure=true --set maintenance.command=check
refused 'ClusterIP' --set tls.allowInsecure=true --set service.type=Anything

package=dist/packages/platform-chart-$version.tgz
[ -e "$package" ] || scripts/build-chart.sh
helm lint --quiet --strict -f $chart/ci/local.yaml "$package"
helm template mixer "$package" --namespace telemetry -f $chart/ci/full.yaml > "$work/packaged.yaml"
cmp "$work/full.yaml" "$work/packaged.yaml" || fail "the package renders something else"
echo "$passed passed, 0 failed"
