# Two devices send 600 readings each over one connection each. Every 10th is noise (-999), every 100th is hot; in between
# each sends one line that is no reading. The Mixer and its bus are dead while the second third is sent.

devices=(oven-1 oven-2)
for i in "${!devices[@]}"; do
  exec {line}<>"/dev/tcp/127.0.0.1/${port[7101]}"
  lines[i]=$line
done

# Readings $1 to $2 of every device.
measure() {
  local number i celsius
  for number in $(seq "$1" "$2"); do
    celsius=$((20 + number % 50)).5
    if [ $((number % 10)) = 5 ]; then celsius=-999; fi
    if [ $((number % 100)) = 0 ]; then celsius=97.5; fi
    for i in "${!devices[@]}"; do echo "${devices[i]},$number,$celsius" >&"${lines[i]}"; done
  done
}
# Lines of the book at the plant, of all devices or of one.
booked() { cat "$run/plant/data/files/readings.ndjson"* 2>/dev/null | grep -c "\"device\":\"${1:-}" || true; }
archived() { count "select count(*) from messages where src_gear_id = 'pace'"; }
outbox() { du -sb "$run/gateway-north/data/outbox" | cut -f1; }

say "Readings 1 to 200 of each device"
measure 1 200
for i in "${!devices[@]}"; do echo "no reading at all" >&"${lines[i]}"; done
await "some readings at the plant" enough booked 100
"$platform" messages --from pace --limit 3

say "The Mixer is killed, its bus dies with it; readings 201 to 400 come all the same"
kill_mixer
before=$(outbox)
measure 201 400
await "readings in the gateway's outbox" enough outbox $((before + 20000))
echo "they wait at the gateway: $(outbox) bytes in its outbox"

say "The Mixer is back; readings 401 to 600"
start_mixer
measure 401 600
for line in "${lines[@]}"; do exec {line}>&-; done
await "the last reading at the plant" enough booked 1080
await "the last reading in the archive" enough archived 1080

say "What came of it"
"$platform" scenario status
"$platform" logs --gear alarms --limit 3
"$platform" logs --gear readings --min-level error --limit 3
must "archived: all but the noise, every tenth" 1080 "$(archived)"
must "archived, each signal counted once" 1080 "$(count "select count(distinct flux_id) from messages where src_gear_id = 'pace'")"
must "lines in the plant's book" 1080 "$(booked)"
must "of them noise" 0 "$(grep -c -e -999 "$run/plant/data/files/readings.ndjson" || true)"
for device in "${devices[@]}"; do
  must "$device: lines out of their order" 0 \
    "$(sed -n "s/.*\"device\":\"$device\",\"number\":\([0-9]*\).*/\1/p" "$run/plant/data/files/readings.ndjson" | awk '$1 <= last { wrong++ } { last = $1 } END { print wrong + 0 }')"
done
hot() { "$platform" logs --gear alarms --level warn --limit 100 --output ndjson | grep -c celsius; }
await "the alarms" enough hot 12
must "alarms" 12 "$(hot)"
