# A Mixer and Racks on free ports of the loopback interface, in the folder $run; sourced by what shows something on them.
# Needs $root, $run, and the programs $platform and $mixer, wherever those lie; nats-server is that of $root/.tools.
# Every process has a file $run/NAME.pid and a folder $run/NAME.

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
fail() { echo "${0##*/}: $*" >&2; exit 1; }

# Ends one process, in order within 20 s or, with -KILL, at once; its exit code, if it was started here.
end() {
  local name=$1 signal=${2:--TERM} pid code=0
  pid=$(cat "$run/$name.pid")
  rm -f "$run/$name.pid"
  kill "$signal" "$pid" 2>/dev/null || return 0
  for _ in $(seq 200); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  if kill -0 "$pid" 2>/dev/null; then kill -KILL "$pid"; fi
  wait "$pid" 2>/dev/null || code=$?
  [ $code = 127 ] || return $code
}

# Ends every process: Racks first, then the Mixer, which stops its bus last.
stop_all() {
  local name names=() code=0 ended
  for name in "$run"/*.pid; do
    name=$(basename "$name" .pid)
    [ "$name" = mixer ] || names+=("$name")
  done
  for name in "${names[@]}" mixer; do
    [ -f "$run/$name.pid" ] || continue
    ended=0
    end "$name" || ended=$? code=1
    if [ "${1:-}" = loud ]; then echo "stopped $name (exit $ended)"; fi
  done
  return $code
}

# Waits for a condition, at most 120 s, asking five times a second.
await() {
  local what=$1 file name; shift
  for _ in $(seq 600); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    for file in "$run"/*.pid; do
      name=$(basename "$file" .pid)
      if [ -f "$file" ] && ! kill -0 "$(cat "$file")" 2>/dev/null; then
        tail -n 20 "$run/$name/stderr" >&2
        fail "$name ended while waiting for $what"
      fi
    done
    sleep 0.2
  done
  tail -n 20 "$run"/*/stderr "$run"/*/logs/*.log >&2 2>/dev/null || true
  fail "waited in vain for $what${1:+; the last answer to \"$*\" was: $(cat "$run/answer" 2>/dev/null)}"
}

# Starts afresh: no settings of the shell, nothing runs, the folder is empty; whatever happens, everything is stopped at the end.
begin_afresh() {
  unset "${!PLATFORM_@}"
  export PATH="$root/.tools/bin:$PATH"
  stop_all || true
  rm -rf "$run"
  mkdir -p "$run"
  trap 'stop_all || true' EXIT
}

# A port that nobody listens on, outside of the range from which the system gives ports to others.
free_port() {
  local port
  while :; do
    port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  printf -v "$1" %s "$port"
}

# Starts the Mixer with the platform-mixer.toml that lies in its folder, the next time on the same ports: sets $api and $bus.
start_mixer() {
  [ -n "${api_port:-}" ] || { free_port api_port; free_port bus_port; }
  # What the one before said is not this one's.
  rm -f "$run/mixer/stdout"
  export PLATFORM_API_PORT=$api_port PLATFORM_SNAKE_PORT=$bus_port
  (cd "$run/mixer" && exec "$mixer" > stdout 2>> stderr) & echo $! > "$run/mixer.pid"
  unset PLATFORM_API_PORT PLATFORM_SNAKE_PORT
  await "the Mixer" grep -q '^ready ' "$run/mixer/stdout"
  api=$(sed -n 's/^ready .*api=\([^ ]*\).*/\1/p' "$run/mixer/stdout")
  bus=$(sed -n 's/^ready .*bus=\([^ ]*\).*/\1/p' "$run/mixer/stdout")
  export PLATFORM_API_URL=$api
}

# Starts Racks and waits until the Mixer has adopted them. Their gears may connect to this machine, and what else lines in $policy allow.
start_racks() {
  local rack
  for rack in "$@"; do
    mkdir -p "$run/$rack"
    rm -f "$run/$rack/stdout"
    printf '[base]\nname = "%s"\n[snake]\nurl = "%s"\n[policy]\nconnect = ["*", "localhost"]\n%s\n' "$rack" "$bus" "${policy:-}" > "$run/$rack/platform.toml"
    (cd "$run/$rack" && exec "$platform" > stdout 2>> stderr) & echo $! > "$run/$rack.pid"
  done
  for rack in "$@"; do await "Rack $rack" grep -q '^ready ' "$run/$rack/stdout"; done
}
