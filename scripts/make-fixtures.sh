#!/usr/bin/env bash
# Makes tests/fixtures/release-VERSION.tar.gz: what the programs of a release leave behind, for the test that later ones take it over.
#   make-fixtures.sh PROGRAMS    PROGRAMS is the folder with that release's platform and platform-mixer; needs root, nats-server from .tools/bin
# Everything runs in namespaces of its own, in /srv/fixture on a machine called fixture, at the default ports: no path and no name of this
# machine gets into the archive, which is searched for them at the end. What is sent over HTTP is the same each time; identities, keys and
# the times of what Racks wrote are new ones. What is in it: tests/fixtures/README.md.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${FIXTURE_HOST:-}" ]; then
  [ "$(id -u)" = 0 ] || { echo "make-fixtures: namespaces need root" >&2; exit 77; }
  programs=$(cd "${1:?the folder of the programs}" && pwd)
  export FIXTURE_HOST FIXTURE_WORK TZ=UTC
  FIXTURE_HOST=$(hostname) FIXTURE_WORK=$(mktemp -d)
  trap 'rm -rf "$FIXTURE_WORK"' EXIT
  unshare --uts --mount --net --fork "$0" "$programs"
  exit
fi

hostname fixture
ip link set lo up
mount --bind "$FIXTURE_WORK" /srv
run=/srv/fixture platform="$1/platform" mixer="$1/platform-mixer"
. "$root/scripts/playground.sh"
begin_afresh
api_port=8090 bus_port=4222 version=$("$mixer" --version | sed 's/.* //')
mkdir -p -m 0750 "$run"/{mixer,rack-a,rack-b,rack-gone,sent} "$run/mixer/data/specs"
cd "$run"

# Rows that are sent are of the first of November 2026, and are to be kept for as long as anybody runs the test.
cat > mixer/platform-mixer.toml <<'TOML'
[audit]
keep = "3650d"
[observability]
self_tracing = false
[observability.embedded]
flush_interval = "200ms"
[observability.embedded.rotation]
max_age_days = 36500
TOML
for rack in rack-a rack-b rack-gone; do
  printf '[base]\nname = "%s"\n[rack]\nip = "127.0.0.1"\nheartbeat_interval = "2s"\n[snake]\nreconnect_wait = "100ms"\n' $rack > $rack/platform.toml
done
cat > mixer/data/specs/order.yaml <<'YAML'
name: order
version: 1
match: { gear: parse }
prefix: ord
fields:
  - { name: number, path: /number, type: int }
  - { name: line, path: /line, type: string }
YAML
chmod 0640 mixer/data/specs/order.yaml

for hour in 06 07 08; do for n in $(seq 10 59); do
  echo "{\"ts\":\"2026-11-01T$hour:$n:00.000123Z\",\"entity_name\":\"press-$((n % 3))\",\"level\":\"warn\",\"message\":\"sent $hour $n\",\"attributes\":{\"n\":$n,\"unit\":\"µm\"}}"
done; done > sent/logs.ndjson
for n in $(seq 10 59); do
  echo "{\"ts\":\"2026-11-01T06:$n:01.5Z\",\"trace_id\":\"0af7651916cd43dd8448eb211c8031$n\",\"span_id\":\"b7ad6b71692033$n\",\"entity_name\":\"press-1\",\"span_name\":\"stroke $((n % 4))\",\"duration_ms\":$n.25,\"status\":\"ok\",\"attributes\":{\"n\":$n}}"
done > sent/traces.ndjson
for n in $(seq 10 59); do
  echo "{\"ts\":\"2026-11-01T07:$n:02Z\",\"name\":\"press.force\",\"entity_name\":\"press-2\",\"type\":\"gauge\",\"value\":$n.125,\"labels\":{\"side\":\"$((n % 2))\"}}"
done > sent/metrics.ndjson
for n in $(seq 10 49); do
  echo "{\"ts\":\"2026-11-01T09:$n:00Z\",\"entity_name\":\"press-0\",\"level\":\"info\",\"message\":\"in the log only $n\",\"attributes\":{}}"
done > sent/late.ndjson

plant() {
  cat > "plant-$1.yaml" <<YAML
meta: { name: plant, version: '$1' }
racks: [ { name: rack-a }, { name: rack-b } ]
gears:
  - { name: tail, type: file_tail, deploy: rack-a, config: { path: app.log, poll_interval: $2 } }
  - { name: parse, type: map, deploy: rack-b, config: { data: "{'number': int(text.split(' ')[1]), 'line': text}" } }
  - { name: sink, type: log_sink, deploy: rack-b }
wires:
  - { from: tail.out, to: parse.in, lane: guaranteed }
  - { from: parse.out, to: sink.in, lane: guaranteed }
YAML
}
# lines FROM TO WORD: each with its number, or with a word that no gear can read
lines() { local n; for n in $(seq "$1" "$2"); do echo "line $3$n of the plant"; done >> rack-a/data/files/app.log; }
rack() { (cd "$1" && exec "$platform" > stdout 2>> stderr) & echo $! > "$1.pid"; }
send() { curl -sSf -o answer -H "Authorization: Bearer $sender" -H 'Content-Type: application/x-ndjson' -H "Idempotency-Key: $2" --data-binary "@sent/$2.ndjson" "$api/api/v1/ingest/$1"; }
# first KEY: of the first row of a JSON answer
first() { python3 -c 'import json, sys; print(json.load(sys.stdin)[0][sys.argv[1]])' "$1"; }
rows() { [ "$("$platform" sql "SELECT count(*) AS n FROM $1" -o csv | tail -n 1)" = "$2" ]; }
letters() { [ "$("$platform" dlq list --state "$1" -o ndjson | wc -l)" = "$2" ]; }

say "The first run: rows, Racks, scenarios, letters"
start_mixer
sender=$("$platform" token create sender --role ingester,reader)
reader=$("$platform" token create reader --role reader)
revoked=$("$platform" token create revoked --role reader)
"$platform" token revoke revoked --yes
send logs logs; send traces traces; send metrics metrics
plant 1 100ms; plant 2 50ms
"$platform" scenario import plant-1.yaml
for name in rack-a rack-gone; do
  rack $name
  await "the key of $name" grep -q '^pending ' $name/stdout
  "$platform" racks approve $name --key "$(sed -n 's/^pending .*key=\([^ ]*\).*/\1/p' $name/stdout)"
  await $name grep -q '^ready ' $name/stdout
done
"$platform" racks invite rack-b | (cd rack-b && "$platform" join)
rack rack-b
await rack-b grep -q '^ready ' rack-b/stdout
"$platform" racks label rack-a hall=north
"$platform" racks remove rack-gone --yes
end rack-gone || true
"$platform" racks invite rack-late --expires-in 30d > answer
"$platform" scenario activate plant:1 --wait 30s
"$platform" scenario activate plant-2.yaml --wait 30s
lines 0 49 ''; lines 50 54 x; lines 55 59 ''
await "55 lines" rows "logs WHERE attributes->>'gear.id' = 'sink' AND flux_id IS NOT NULL" 55
await "five letters" letters open 5
"$platform" dlq drop "$("$platform" dlq list -o json | first id)" --yes
"$platform" dlq replay "$("$platform" dlq list -o json | first id)"
await "the letter of a replay" letters all 6
end rack-a; end rack-b
# A file is sealed five minutes after it got its last row, if its hour is over.
sealed() { [ "$(find mixer/data/index -name '*.idx' | wc -l)" = 4 ]; }
sleep 300
await "sealed files with their indexes" sealed
end mixer

say "The second run: rows that are in the log only"
export PLATFORM_OBSERVABILITY_EMBEDDED_FLUSH_INTERVAL=1h
start_mixer
unset PLATFORM_OBSERVABILITY_EMBEDDED_FLUSH_INTERVAL
send logs late
for name in rack-a rack-b; do rack $name; done
lines 60 99 ''
await "95 lines" rows "logs WHERE attributes->>'gear.id' = 'sink' AND flux_id IS NOT NULL" 95
# What Racks write of themselves is there up to this moment, whatever they write when they end.
sleep 2
cutoff=$(date -u +%FT%TZ)
sleep 3
end rack-a; end rack-b
python3 "$root/scripts/fixture-record.py" "$api" "$version" "$cutoff" "$sender" "$reader" "$revoked" > expected.json
end mixer -KILL || true

say "A Rack without a Mixer: its spool and its outbox"
rack rack-a
await "the scenario of before" grep -q 'plant:2' rack-a/logs/platform-rack.log
lines 100 139 ''
sleep 5
end rack-a -KILL || true

say "The archive"
# Ends of processes, and what each start makes anew. A Rack knows its file by the inode, which no archive keeps.
rm -rf mixer/logs mixer/std* mixer/data/js/{nats.conf,store.lock,*.ports} mixer/data/platform.sql rack-*/logs rack-*/std* rack-gone rack-*/data/files/app.log answer
for name in "$root" "$FIXTURE_WORK" /root /home /tmp; do
  if grep -rlaF -- "$name" .; then fail "these have $name"; fi
done
if find . -type f -exec strings -a -n 8 {} + | grep -wF -- "$FIXTURE_HOST"; then fail "the archive would have this machine's name"; fi
archive="$root/tests/fixtures/release-$version.tar.gz"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=2026-11-01 --sparse --hole-detection=raw --format=gnu -c . | gzip -9n > "$archive"
trap - EXIT
ls -l "$archive"
