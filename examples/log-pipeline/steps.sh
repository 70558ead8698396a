# Two programs send 300 numbered lines of RFC 5424 over TCP, 150 each, and 60 of RFC 3164 over UDP; every tenth is for debugging,
# every twentieth an error. While the second third is sent the collector is dead.

exec {counted}<>"/dev/tcp/127.0.0.1/${port[7301]}" {plain}<>"/dev/tcp/127.0.0.1/${port[7301]}"

# Lines $1 to $2 over TCP, once with their length in front and once with a line feed behind.
send_tcp() {
  local number severity line
  for number in $(seq "$1" "$2"); do
    severity=6
    if [ $((number % 10)) = 0 ]; then severity=7; fi
    if [ $((number % 20)) = 5 ]; then severity=3; fi
    line="<$((16 * 8 + severity))>1 $(date -u +%FT%T.%3NZ) press-7 plc 42 - - counted $number"
    printf '%s %s' "${#line}" "$line" >&"$counted"
    printf '%s\n' "${line/counted/plain}" >&"$plain"
  done
}
# The same over UDP, in the old form.
send_udp() {
  local number severity
  for number in $(seq "$1" "$2"); do
    severity=6
    if [ $((number % 10)) = 0 ]; then severity=7; fi
    if [ $((number % 20)) = 5 ]; then severity=3; fi
    printf '<%s>%s oven-3 dryer[7]: datagram %s' $((3 * 8 + severity)) "$(LC_ALL=C date '+%b %e %T')" "$number" > "/dev/udp/127.0.0.1/${port[7301]}"
  done
}
ours="entity_name = 'site-syslog'"
collected() { count "select count(*) from logs where $ours"; }
alarms() { grep -c error "$run/watch/data/files/alarms.ndjson" 2>/dev/null || true; }

say "Lines 1 to 50 of each"
send_tcp 1 50
send_udp 1 20
await "some lines at the collector" enough collected 50

say "The collector is killed and away for two seconds; lines 51 to 100 come all the same"
kill_mixer
send_tcp 51 100
send_udp 21 40
sleep 2

say "The collector is back; lines 101 to 150"
start_mixer
send_tcp 101 150
send_udp 41 60
echo "<13>hello, who am I" >&"$plain"
exec {counted}>&- {plain}>&-
await "the last line at the collector" enough collected 325
await "the last alarm" enough alarms 19

say "What came of it"
"$platform" scenario status
"$platform" logs --entity site-syslog --limit 5
"$platform" logs --gear collector --min-level info --limit 5
must "lines at the collector: 360 and one, less 36 for debugging" 325 "$(collected)"
must "different lines" 325 "$(count "select count(distinct message) from logs where $ours")"
must "of them over UDP" 54 "$(count "select count(*) from logs where $ours and message like 'datagram %'")"
must "of them for debugging: those whose number ends with 0" 0 "$(count "select count(*) from logs where $ours and message like '%0'")"
must "of them errors" 19 "$(count "select count(*) from logs where $ours and level = 'error'")"
must "alarms at the watch" 19 "$(alarms)"
must "outages of the collector that the gear has told" 1 "$("$platform" logs --gear collector -q 'times in a row' --output ndjson | grep -c collector || true)"
