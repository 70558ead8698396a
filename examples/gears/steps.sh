# The scenario of every gear type, one after another on one Rack, each until what it makes has arrived where it ends: at its log
# sinks, in its file, in the metrics. What needs input gets a little.

file_of() { echo "$run/node-01/data/files/$1"; }
# Messages that a sink has written, or records of a file that is followed, since the scenario runs.
written() { count "select count(*) from logs where attributes->>'gear.id' = '$1' and ts >= '$since' and (flux_id is not null or attributes->>'log.file.path' is not null)"; }
# Who follows a file from its end sees what comes after it has begun: lines go on coming.
at_sink() { [ "$kind" != file_tail ] || feed file_tail; written "$sink"; }
measured() { count "select count(*) from metrics where name = 'system.memory.usage' and ts >= '$since'"; }
forwarded() { count "select count(*) from logs where attributes->>'otel.scope.name' = 'export' and ts >= '$since'"; }
scraped() { count "select count(*) from metrics where name = 'up' and value = 1 and ts >= '$since'"; }
exported() { count "select count(*) from logs where message = 'hello over OTLP' and ts >= '$since'"; }
lines() { wc -l < "$(file_of file-out.ndjson)"; }
says() { [ "$2" = "$3" ] || fail "$1 is answered with $3, not with $2"; }

feed() {
  local answer
  case $1 in
    tcp_in)
      exec {door}<>"/dev/tcp/127.0.0.1/${port[8282]}"
      echo hello >&"$door"
      read -r answer <&"$door"
      says "a line" hello "$answer"
      exec {door}>&- ;;
    http_in)
      curl -sSf -d hello "http://127.0.0.1:${port[8181]}/in" > "$run/answer"
      says "a sum" '{"sum":5}' "$(curl -sSf -d '{"a": 2, "b": 3}' "http://127.0.0.1:${port[8182]}/sum")" ;;
    syslog_in)
      echo '<13>Nov 22 10:00:00 press-7 hello over TCP' > "/dev/tcp/127.0.0.1/${port[5514]}"
      echo '<13>1 2026-11-22T10:00:00Z press-7 app 1 - - hello over UDP' > "/dev/udp/127.0.0.1/${port[5514]}" ;;
    otlp_in)
      says "an export" '{}' "$(curl -sSf -H 'content-type: application/json' "http://127.0.0.1:${port[4318]}/v1/logs" \
        -d '{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "hello over OTLP"}}]}]}]}')" ;;
    file_tail) echo 'WARN a new line' >> "$(file_of packages.log)" ;;
    # Retained: who subscribes later gets it too.
    mqtt_in)
      exec {door}<>"/dev/tcp/127.0.0.1/${port[1883]}"
      printf '\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01t' >&"$door"
      head -c 4 <&"$door" > /dev/null
      printf '\x31\x19\x00\x13plant/7/temperature21.5' >&"$door"
      exec {door}>&- ;;
  esac
}

# The broker of the MQTT gears, one for both; false where it is not installed.
broker() {
  local mosquitto
  if [ -e "$run/broker/mosquitto.conf" ]; then return; fi
  mosquitto=$(PATH="$PATH:/usr/sbin" command -v mosquitto) || return 1
  mkdir -p "$run/broker"
  printf 'listener %s 127.0.0.1\nallow_anonymous true\nuser %s\n' "${port[1883]}" "$(id -un)" > "$run/broker/mosquitto.conf"
  "$mosquitto" -v -c "$run/broker/mosquitto.conf" > "$run/broker/stdout" 2> "$run/broker/stderr" & echo $! > "$run/broker.pid"
  await "the MQTT broker" grep -q ' running$' "$run/broker/stderr"
}

# Runs the scenario of one type.
show() {
  local kind=$1 sink messages=1 found=0
  prepare "$here/$kind.yaml"
  sed -i "s:/var/log/dpkg.log:$(file_of packages.log):" "$run/scenario.yaml"
  touch "$(file_of packages.log)"
  if [ "$kind" = modbus ]; then
    mkdir -p "$run/device"
    PYTHONPATH="$root/.tools/pymodbus" "$root/scripts/modbus-device.py" "${port[5020]}" \
      > "$run/device/stdout" 2> "$run/device/stderr" & echo $! > "$run/device.pid"
    await "the Modbus device" grep -q '^ready ' "$run/device/stdout"
  fi
  if [ "$kind" = journald_in ]; then
    must "gears/$kind: skipped, it needs the journal of systemd" yes yes
    return
  fi
  if [[ $kind = mqtt_* ]] && ! broker; then
    must "gears/$kind: skipped, mosquitto is missing" yes yes
    return
  fi
  activate > "$run/activated" 2>&1 || { cat "$run/activated"; fail "$kind does not run"; }
  since=$(date -u +%FT%T.%6NZ)
  feed "$kind"
  if [ "$kind" = syslog_in ]; then messages=2; fi
  for sink in $(sed -n 's/.*{ name: \([a-z-]*\), type: \(log_sink\|file_tail\),.*/\1/p' "$run/scenario.yaml"); do
    await "messages at $sink" enough at_sink "$messages"
    found=$((found + 1))
  done
  if [ "$kind" = file_out ]; then await "lines of the file" enough lines 1; found=$((found + 1)); fi
  if [ "$kind" = host_metrics ]; then await "a measurement" enough measured 1; found=$((found + 1)); fi
  if [ "$kind" = otlp_out ]; then await "a forwarded record" enough forwarded 1; found=$((found + 1)); fi
  if [ "$kind" = prometheus_scrape ]; then await "a scrape" enough scraped 1; found=$((found + 1)); fi
  if [ "$kind" = otlp_in ]; then await "the exported record" enough exported 1; found=$((found + 1)); fi
  if [ "$kind" = mqtt_out ]; then
    await "messages at the broker" grep -q 'Received PUBLISH from numbers' "$run/broker/stderr"
    found=$((found + 1))
  fi
  must "gears/$kind: it reaches what it leads to" yes "$([ "$found" -gt 0 ] && echo yes)"
}

for file in "$here"/*.yaml; do
  kind=$(basename "$file" .yaml)
  if [ "$only" = gears ] || [ "$only" = "$kind" ]; then show "$kind"; shown=$kind; fi
done
[ -n "${shown:-}" ] || fail "there is no examples/gears/$only.yaml"
"$platform" logs --limit 5 --min-level info
