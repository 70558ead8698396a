#!/usr/bin/env bash
# The main job on real input: one Mixer, two Racks, real log files, real host metrics, a generated message flow; shows what
# came of it through the CLI and, from outside, through DuckDB; stops everything in order.
#   demo.sh        run it             KEEP=1 demo.sh   leave it running
#   demo.sh stop   stop what KEEP=1 left running
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
run="$root/demo-run"
platform="$root/dist/platform" mixer="$root/dist/platform-mixer" duckdb="$root/.tools/bin/duckdb"

. "$root/scripts/playground.sh"

if [ "${1:-}" = stop ]; then stop_all || true; rm -rf "$run"; exit 0; fi

started=$(date +%s)
begin_afresh
mkdir -p "$run/mixer"

files=()
for file in /var/log/syslog /var/log/messages /var/log/dpkg.log /var/log/apt/history.log /var/log/alternatives.log /var/log/bootstrap.log /var/log/fontconfig.log; do
  [ -r "$file" ] && [ -s "$file" ] && [ "${#files[@]}" -lt 3 ] && files+=("$file")
done
[ "${#files[@]}" -gt 0 ] || fail "this machine has no readable log file under /var/log"

{
  echo 'meta: { name: demo, version: "1", description: "real logs and metrics, and a flow of two gears" }'
  echo 'racks: [ { name: watch }, { name: flow } ]'
  echo 'gears:'
  for i in "${!files[@]}"; do
    echo "  - { name: log-$i, type: file_tail, deploy: watch, config: { path: \"${files[$i]}\" } }"
  done
  echo '  - { name: host, type: host_metrics, deploy: watch, config: { interval: 1s } }'
  echo '  - { name: orders, type: generator, deploy: flow, config: { rate: 200, count: 1000, seed: 42 } }'
  echo '  - { name: sink, type: log_sink, deploy: flow }'
  echo 'wires:'
  echo '  - { from: orders.out, to: sink.in }'
} > "$run/mixer/scenario.yaml"

cat > "$run/mixer/platform-mixer.toml" <<TOML
[mixer]
startup_scenario = "scenario.yaml"
[enrollment]
auto_adopt = true
push_delay = "100ms"
TOML

say "Starting a Mixer (with its bus) and two Racks"
start_mixer
# Who comes through a proxy is not taken for the user of this machine, who needs no token.
proxied() {
  exec 3<>"/dev/tcp/127.0.0.1/$api_port"
  printf 'GET /api/v1/racks HTTP/1.1\r\nhost: localhost\r\nvia: 1.1 demo\r\nconnection: close\r\n\r\n' >&3
  timeout 10 head -n 1 <&3 | tr -d '\r'
}
status=$(proxied || true)
[[ $status = "HTTP/1.1 401 "* ]] || fail "authentication is not on: a call through a proxy and without a token got \"$status\" instead of 401"
echo "Authentication is on: a call through a proxy and without a token got $status"
policy='read_roots = ["/var/log"]' start_racks watch flow
cat "$run"/*/stdout
"$platform" racks list

rest_rows() { "$platform" logs --since 1h --gear "$1" --limit 10000 --output ndjson 2>/dev/null | grep -c "$2" || true; }
tree="$run/mixer/data/telemetry"
duck_rows() { "$duckdb" -noheader -csv -c "select count(*) from read_parquet('$tree/$1/**/*.parquet') where $2"; }
lines=0
for file in "${files[@]}"; do lines=$((lines + $(wc -l < "$file"))); done
rest_tail() { local sum=0 i; for i in "${!files[@]}"; do sum=$((sum + $(rest_rows "log-$i" log.file.path))); done; echo $sum; }
duck_sink() { duck_rows logs "(attributes->>'gear.id') = 'sink' and flux_id is not null"; }
duck_tail() { duck_rows logs "(attributes->>'gear.type') = 'file_tail' and (attributes->>'log.file.path') is not null"; }
rest_sink() { rest_rows sink '"flux_id":"'; }
enough() { [ "$("$1")" -ge "$2" ]; }

await "the rows of the real log files" enough rest_tail "$(( lines < 30000 ? lines : 30000 ))"
await "all 1000 messages of the flow" enough rest_sink 1000
await "a metric" sh -c "\"$platform\" metrics --name system.cpu.utilization --since 1h -o ndjson | grep -q value"

say "Logs: the newest lines of ${files[*]}"
"$platform" logs --gear log-0 --limit 5
say "A metric in buckets of a minute"
"$platform" metrics --name system.memory.utilization --interval 1m --since 1h --limit 5
say "One trace as a tree"
trace=$("$platform" traces --span-name "log_sink sink" --limit 1 --output ndjson 2>/dev/null | sed -n 's/.*"trace_id":"\([0-9a-f]*\)".*/\1/p')
"$platform" trace "$trace"

say "The Parquet tree, as DuckDB sees it from outside"
await "the flow's rows in Parquet" enough duck_sink 1000
await "the files' rows in Parquet" enough duck_tail "$(rest_tail)"
(cd "$run/mixer/data" && find telemetry -name '*.parquet' -printf '%p  %s bytes\n' | sort)

say "The same rows asked twice"
printf '%-34s %10s %10s\n' "" REST DuckDB
rest=$(rest_sink) duck=$(duck_sink)
printf '%-34s %10s %10s\n' "messages of the flow" "$rest" "$duck"
[ "$rest" = 1000 ] && [ "$duck" = 1000 ] || fail "the flow made 1000 messages"
rest=$(rest_tail) duck=$(duck_tail)
printf '%-34s %10s %10s\n' "lines of the log files" "$rest" "$duck"
[ "$rest" = "$duck" ] || fail "REST and DuckDB disagree"

if [ "${KEEP:-}" = 1 ]; then
  trap - EXIT
  say "Left running in demo-run/ (stop it with: make clean-demo)"
  cat <<USE
export PLATFORM_API_URL=$api
dist/platform logs --since 10m
dist/platform metrics --name system.cpu.utilization --interval 1m --group-by entity_name
curl -s '$api/api/v1/telemetry/logs?limit=3'
.tools/bin/duckdb -c "select level, count(*) from read_parquet('demo-run/mixer/data/telemetry/logs/**/*.parquet') group by all"
USE
  echo "The page: $api/"
  exit 0
fi
say "Stopping: Racks, then the Mixer, which stops its bus last"
trap - EXIT
stop_all loud || fail "something did not stop cleanly"
echo "done in $(( $(date +%s) - started )) s"
