#!/usr/bin/env bash
# Runs both images of dist/packages without a container engine: each unpacked, its digests compared, and started with bubblewrap as its own user
# without capabilities, on a read-only root with one writable volume. A Mixer becomes ready, a Rack joins it by an invite, a row is stored and
# read, both stop in order. Prints the sizes. The volume is as Kubernetes gives it (fsGroup: root's, writable for the group), the token file is a
# mounted secret. Needs root, which gives the volume to the images' user, and bubblewrap.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { echo "image-test: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "run it as root: it starts programs as user 65532"
for tool in bwrap setpriv; do
  command -v $tool >/dev/null || fail "$tool is missing; install it with: apt-get install bubblewrap util-linux"
done
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# Not below a folder that only root may enter.
work=$(mktemp -d /tmp/image-test.XXXXXX)
chmod 0755 "$work"
pids=()
# A sandbox whose outer process is killed takes its own with it.
trap 'for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done; rm -rf "$work"' EXIT

# unpack NAME: the root file system in $work/NAME, the configuration in $work/NAME.json
unpack() {
  python3 - "dist/packages/$1-$version.oci.tar" "$work/$1" <<'PY'
import gzip, hashlib, io, json, os, sys, tarfile
image, root = sys.argv[1:]
with tarfile.open(image) as archive:
    files = {entry.name: archive.extractfile(entry).read() for entry in archive if entry.isfile()}
def blob(described):
    content = files["blobs/" + described["digest"].replace(":", "/")]
    if len(content) != described["size"] or "sha256:" + hashlib.sha256(content).hexdigest() != described["digest"]:
        sys.exit(f"{image}: {described['digest']} is another file")
    return content
manifest = json.loads(blob(json.loads(files["index.json"])["manifests"][0]))
config = json.loads(blob(manifest["config"]))
os.makedirs(root)
size = 0
for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
    content = gzip.decompress(blob(layer))
    size += len(content)
    if "sha256:" + hashlib.sha256(content).hexdigest() != diff_id:
        sys.exit(f"{image}: {diff_id} is another layer")
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for entry in archive:
            if entry.uid not in (0, 65532) or entry.mode & 0o7022 and not entry.issym():
                sys.exit(f"{image}: {entry.name} has owner {entry.uid} and mode {entry.mode:o}")
        archive.extractall(root, numeric_owner=True)
# What engines make for themselves.
for folder in ["proc", "dev"]:
    os.makedirs(f"{root}/{folder}", exist_ok=True)
json.dump(config["config"], open(root + ".json", "w"))
print(f"{os.path.basename(root)}: {os.path.getsize(image) >> 20} MiB packed, {size >> 20} MiB unpacked, {len(manifest['layers'])} layers")
PY
}

# A field of an image's configuration, a line for each item: of NAME FIELD
of() { python3 -c 'import json, sys; found = json.load(open(sys.argv[1]))[sys.argv[2]]; print(*(found if isinstance(found, list) else [found]), sep="\n")' "$work/$1.json" "$2"; }

# Runs a program of an image as an engine does: in NAME COMMAND...
inside() {
  local name=$1 home env=() variable
  shift
  home=$(of "$name" WorkingDir)
  while read -r variable; do env+=(--setenv "${variable%%=*}" "${variable#*=}"); done < <(of "$name" Env)
  for variable in "${extra[@]}"; do env+=(--setenv "${variable%%=*}" "${variable#*=}"); done
  setpriv --reuid 65532 --regid 65532 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \
    bwrap --unshare-user --unshare-ipc --unshare-pid --unshare-uts --uid 65532 --gid 65532 --die-with-parent --clearenv "${env[@]}" \
    --ro-bind "$work/$name" / --proc /proc --dev /dev --bind "$work/volume-$name" "$home" --chdir "$home" "${mounts[@]}" -- "$@"
}

# Starts an image with its own entry point: start NAME ARGUMENT...
start() {
  local name=$1 command
  shift
  mapfile -t command < <(of "$name" Entrypoint)
  inside "$name" "${command[@]}" "$@" > "$work/$name.out" 2> "$work/$name.err" &
  pids+=($!)
}

# waits FILE PATTERN: at most a minute for a line
waits() {
  for _ in $(seq 300); do
    if grep -q "$2" "$1"; then return 0; fi
    kill -0 "${pids[-1]}" 2>/dev/null || break
    sleep 0.2
  done
  cat "$work"/*.out "$work"/*.err >&2
  fail "$(basename "$1") did not say $2"
}

# stops NAME PID: SIGTERM to the program within, whose exit code bwrap gives on
stops() {
  local child code=0
  child=$(pgrep -P "$2" | head -n 1)
  # The first process of the sandbox is bwrap's own; the program is its child.
  child=$(pgrep -P "$child" | head -n 1 || true)
  kill -TERM "${child:-$2}"
  for _ in $(seq 200); do kill -0 "$2" 2>/dev/null || break; sleep 0.1; done
  kill -0 "$2" 2>/dev/null && fail "$1 did not stop within 20 s"
  wait "$2" || code=$?
  [ $code = 0 ] || { cat "$work/$1.err" >&2; fail "$1 stopped with $code"; }
  echo "$1 stopped in order"
}

for name in platform platform-mixer; do
  unpack $name
  [ "$(of $name User)" = 65532:65532 ] || fail "$name runs as $(of $name User)"
  install -d -o 0 -g 65532 -m 2775 "$work/volume-$name"
done
[ "$(ls "$work/platform/usr/bin")" = platform ] || fail "the image platform has other programs: $(ls "$work/platform/usr/bin")"

extra=() mounts=()
inside platform-mixer /usr/bin/platform-mixer -c /etc/platform/platform-mixer.toml config show > /dev/null
secret=$(inside platform /usr/bin/platform token generate)
printf '[[token]]\nname = "monitor"\ntoken = "%s"\nroles = ["monitor"]\n' "$secret" > "$work/tokens.toml"
chown 0:65532 "$work/tokens.toml"
chmod 0440 "$work/tokens.toml"
extra=(PLATFORM_STORE_DIR=/var/lib/platform-mixer/data PLATFORM_API_PORT=0 PLATFORM_SNAKE_PORT=0 PLATFORM_SNAKE_TLS=on PLATFORM_API_TOKENS_FILE=/etc/tokens.toml)
touch "$work/platform-mixer/etc/tokens.toml"
mounts=(--ro-bind "$work/tokens.toml" /etc/tokens.toml)
start platform-mixer
mixer=$!
waits "$work/platform-mixer.out" '^ready '
api=$(sed -n 's/^ready .*api=\([^ ]*\).*/\1/p' "$work/platform-mixer.out")
bus=$(sed -n 's/^ready .*bus=\([^ ]*\).*/\1/p' "$work/platform-mixer.out")
extra=(PLATFORM_API_URL="$api")
mounts=()
# As the health check does it: the Mixer's own user needs no token.
inside platform-mixer /usr/bin/platform doctor --mixer --wide
extra=(PLATFORM_API_URL="$api" PLATFORM_TOKEN="$secret")
inside platform /usr/bin/platform whoami | grep -q monitor || fail "the token of the mounted file is not known"

extra=(PLATFORM_API_URL="$api")
invite=$(inside platform-mixer /usr/bin/platform racks invite rack-a | grep -o 'plinv1_[^ ]*' | head -n 1)
mapfile -t command < <(of platform Cmd)
extra=(PLATFORM_SNAKE_URL="$bus" PLATFORM_RACK_INVITE="$invite" PLATFORM_BASE_NAME=rack-a)
start platform "${command[@]}"
rack=$!
waits "$work/platform.out" '^ready '
extra=(PLATFORM_API_URL="$api")
seen() { inside platform-mixer /usr/bin/platform racks list --output ndjson | grep '"name":"rack-a"' | grep -q '"state":"active"'; }
seen || fail "the Mixer does not know the Rack"
# The Rack's own metrics come over the bus.
stored() { inside platform-mixer /usr/bin/platform metrics --name rack.spool.size --since 1h --output ndjson | grep -q rack-a; }
for _ in $(seq 300); do if stored; then break; fi; sleep 0.2; done
stored || fail "no row of the Rack is stored"
echo "a Rack joined by an invite, and its rows are stored and read"
for path in / /usr/bin /etc/platform; do
  inside platform-mixer /usr/bin/platform man "$path/written" 2>/dev/null && fail "$path can be written"
done
[ "$(stat -c %a "$work/volume-platform-mixer/data")" = 2750 ] || fail "the store has mode $(stat -c %a "$work/volume-platform-mixer/data")"
stops platform $rack
stops platform-mixer $mixer
echo "1 passed, 0 failed"
