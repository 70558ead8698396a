#!/usr/bin/env bash
# Holds the API of a real Mixer, with a Rack and a little data, against its own OpenAPI document: schemathesis generates
# requests, right and wrong ones, and looks at every answer.
#   CASES=n   about so many requests for each operation, beside those for each rule of the document (default 10)
#   SEED=n    repeat a run; it is printed
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
here="$root/scripts/schema-check"
bin=${CARGO_TARGET_DIR:-$root/target}/debug
python="$root/.tools/schema-check/bin/python"
seed=${SEED:-$((RANDOM * 32768 + RANDOM))}

python3 -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
  || { echo "schema-check: schemathesis is pinned for Python 3.11: put it on PATH as python3" >&2; exit 69; }
[ -x "$python" ] || python3 -m venv --without-pip "$root/.tools/schema-check"
python3 -m pip --python "$python" install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
  -r "$here/requirements.txt"

run=$(mktemp -d)
pids=()
stop_all() {
  local code=0 at
  for ((at = ${#pids[@]} - 1; at >= 0; at--)); do
    kill -TERM "${pids[at]}" 2>/dev/null || code=1
    wait "${pids[at]}" || code=1
  done
  pids=()
  return $code
}
trap 'stop_all || true; rm -rf "$run"' EXIT

# Starts a program in a folder of its own and waits until it is ready.
start() {
  local name=$1 program=$2
  (cd "$run/$name" && exec "$program" > stdout 2> stderr) & pids+=($!)
  for _ in $(seq 300); do
    if grep -q '^ready ' "$run/$name/stdout" 2>/dev/null; then return; fi
    kill -0 "${pids[-1]}" 2>/dev/null || break
    sleep 0.1
  done
  cat "$run/$name/stderr" >&2
  echo "schema-check: $name is not ready" >&2
  exit 69
}

mkdir "$run/mixer" "$run/rack"
cp "$root/examples/flow.yaml" "$run/mixer/scenario.yaml"
# Everybody needs a token, so that requests without one are seen to be refused.
PLATFORM_TOKEN=$("$bin/platform" token generate)
export PLATFORM_TOKEN
(umask 077; printf '[[token]]\nname = "schema-check"\ntoken = "%s"\nroles = ["admin"]\n' "$PLATFORM_TOKEN" > "$run/mixer/tokens.toml")
cat > "$run/mixer/platform-mixer.toml" <<TOML
[mixer]
startup_scenario = "scenario.yaml"
[enrollment]
auto_adopt = true
push_delay = "100ms"
[api]
port = 0
auth = "tokens"
tokens_file = "tokens.toml"
[snake]
port = 0
server_binary = "$root/.tools/bin/nats-server"
TOML
start mixer "$bin/platform-mixer"
api=$(sed -n 's/^ready .*api=\([^ ]*\).*/\1/p' "$run/mixer/stdout")
bus=$(sed -n 's/^ready .*bus=\([^ ]*\).*/\1/p' "$run/mixer/stdout")
printf '[base]\nname = "node-01"\n[snake]\nurl = "%s"\n' "$bus" > "$run/rack/platform.toml"
start rack "$bin/platform"
"$python" "$here/data.py" "$api" "$bus" "$run/mixer/data/keys/bus-operator.nk"

echo "schema-check: seed $seed, $api"
status=0
cp -r "$here" "$run/check"
(cd "$run/check" && "$root/.tools/schema-check/bin/st" --config-file schemathesis.toml run "$api/api/v1/openapi.json" \
  --header "Authorization: Bearer $PLATFORM_TOKEN" --seed "$seed" --max-examples "${CASES:-10}" --no-color "$@") || status=$?
stop_all || { cat "$run/mixer/stderr" >&2; echo "schema-check: something did not stop cleanly" >&2; status=1; }
if grep -q panicked "$run/mixer/stderr"; then grep -A20 panicked "$run/mixer/stderr" >&2; status=1; fi
exit $status
