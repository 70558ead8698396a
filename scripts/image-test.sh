#!/usr/bin/env bash
# Runs both images of dist/packages without a daemon: each unpacked, its digests compared, and started by runc as its own user without
# capabilities, on a read-only root with one writable volume. A Mixer becomes ready, a Rack joins it by an invite, rows are stored and read, both
# stop in order. Prints the sizes. Volumes are as Kubernetes gives them (fsGroup: root's, writable for the group), and so is a secret. Needs root
# and runc.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { echo "image-test: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "run it as root, as container engines are"
for tool in runc openssl; do
  command -v $tool >/dev/null || fail "$tool is missing; install it with: apt-get install $tool"
done
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# Not below a folder that only root may enter.
work=$(mktemp -d /tmp/image-test.XXXXXX)
chmod 0755 "$work"
container=${work##*.}
clean() {
  for name in platform platform-mixer; do engine delete --force "$container-$name" 2>/dev/null || true; done
  rm -rf "$work"
}
trap clean EXIT

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
json.dump(config["config"], open(root + ".json", "w"))
print(f"{os.path.basename(root)}: {os.path.getsize(image) >> 20} MiB packed, {size >> 20} MiB unpacked, {len(manifest['layers'])} layers")
PY
}

# A field of an image's configuration, a line for each item: of NAME FIELD
of() { python3 -c 'import json, sys; found = json.load(open(sys.argv[1]))[sys.argv[2]]; print(*(found if isinstance(found, list) else [found]), sep="\n")' "$work/$1.json" "$2"; }

# bundle NAME ARGUMENT...: what runc starts: the image's entry point on a read-only root, without capabilities, on this machine's network.
bundle() {
  mkdir -p "$work/bundle-$1"
  python3 - "$work" "$@" <<'PY'
import json, os, sys
work, name, *args = sys.argv[1:]
image = json.load(open(f"{work}/{name}.json"))
env = image["Env"] + [line for line in open(f"{work}/{name}.env").read().splitlines() if line]
home = image["WorkingDir"]
bind = lambda source, to, mode: {"destination": to, "type": "bind", "source": source, "options": ["bind", mode, "nosuid", "nodev"]}
mounts = [
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
    bind(f"{work}/volume-{name}", home, "rw"),
]
if os.path.exists(f"{work}/secret-{name}"):
    mounts += [bind(f"{work}/secret-{name}", "/etc/platform/secret", "ro"), bind(f"{work}/hosts", "/etc/hosts", "ro")]
uid, gid = map(int, image["User"].split(":"))
process = {"terminal": False, "user": {"uid": uid, "gid": gid}, "args": image["Entrypoint"] + args, "env": env, "cwd": home, "noNewPrivileges": True}
process["capabilities"] = {kind: [] for kind in ["bounding", "effective", "inheritable", "permitted", "ambient"]}
spec = {"ociVersion": "1.0.2", "process": process, "root": {"path": f"{work}/{name}", "readonly": True}, "mounts": mounts}
spec["linux"] = {"namespaces": [{"type": kind} for kind in ["pid", "ipc", "uts", "mount"]]}
json.dump(spec, open(f"{work}/bundle-{name}/config.json", "w"))
PY
}

engine() { runc --root "$work/runc" "$@"; }

# start NAME ARGUMENT...: with the variables of $work/NAME.env
start() {
  bundle "$@"
  engine run --bundle "$work/bundle-$1" "$container-$1" < /dev/null > "$work/$1.out" 2> "$work/$1.err" &
  pid=$!
}

# inside NAME COMMAND...: as `docker exec` and probes do
inside() {
  local name=$1
  shift
  engine exec "$container-$name" "$@"
}

# waits NAME PATTERN: at most a minute for a line of its output
waits() {
  for _ in $(seq 300); do
    if grep -q "$2" "$work/$1.out"; then return 0; fi
    kill -0 $pid 2>/dev/null || break
    sleep 0.2
  done
  cat "$work"/*.out "$work"/*.err >&2
  fail "$1 did not say $2"
}

# stops NAME PID
stops() {
  local code=0
  engine kill "$container-$1" TERM
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
hash=$(sha256sum "$work/platform-mixer/usr/bin/nats-server" | cut -d' ' -f1)
of platform-mixer Env | grep -qx "PLATFORM_SNAKE_SERVER_SHA256=$hash" || fail "the image does not pin its nats-server"
[ "$(ls "$work/platform/usr/bin")" = platform ] || fail "the image platform has other programs: $(ls "$work/platform/usr/bin")"

# Mounted secrets, as fsGroup has them, and the pod's hosts: as the chart does it, the probe asks over loopback by the name of the certificate.
host=mixer-platform.telemetry.svc
echo "127.0.0.1 localhost $host" > "$work/hosts"
secret=$work/secret-platform-mixer
install -d "$secret"
issue() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "$@" 2> "$work/openssl" || { cat "$work/openssl" >&2; fail "openssl failed"; }; }
issue -subj "/CN=authority" -keyout "$work/ca.key" -out "$secret/ca.crt"
printf '[req]\ndistinguished_name=name\nx509_extensions=leaf\n[name]\n[leaf]\nsubjectAltName=DNS:%s\n' "$host" > "$work/leaf.cnf"
issue -config "$work/leaf.cnf" -subj "/CN=$host" -CA "$secret/ca.crt" -CAkey "$work/ca.key" -keyout "$secret/tls.key" -out "$secret/tls.crt"
token=plt_$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
printf '[[token]]\nname = "monitor"\ntoken = "%s"\nroles = ["monitor"]\n' "$token" > "$secret/tokens.toml"
chown -R 0:65532 "$secret"
chmod 0440 "$secret"/*
cat > "$work/platform-mixer.env" <<ENV
PLATFORM_STORE_DIR=/var/lib/platform-mixer/data
PLATFORM_API_PORT=0
PLATFORM_API_ALLOWED_HOSTS=$host
PLATFORM_API_TLS_CERT=/etc/platform/secret/tls.crt
PLATFORM_API_TLS_KEY=/etc/platform/secret/tls.key
PLATFORM_API_TOKENS_FILE=/etc/platform/secret/tokens.toml
PLATFORM_CA_FILE=/etc/platform/secret/ca.crt
PLATFORM_SNAKE_PORT=0
PLATFORM_SNAKE_TLS=on
ENV
start platform-mixer
mixer=$pid
waits platform-mixer '^ready '
api=https://$host:$(sed -n 's/^ready .*api=[^ ]*:\([0-9]*\) .*/\1/p' "$work/platform-mixer.out")
bus=$(sed -n 's/^ready .*bus=\([^ ]*\).*/\1/p' "$work/platform-mixer.out")
ask() { inside platform-mixer /usr/bin/platform "$@" --api-url "$api"; }
# As the health check does it: the Mixer's own user needs no token.
ask doctor --mixer --wide
ask token list --output ndjson | grep -q '"name":"monitor"' || fail "the token of the mounted secret is not known"
# Root beside it does: what forwards ports into the container connects as root.
said=$(python3 - "https://127.0.0.1:${api##*:}/api/v1/racks" <<'PY'
import ssl, sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], context=ssl._create_unverified_context()).status)
except urllib.error.HTTPError as error:
    print(error.code)
PY
)
[ "$said" = 401 ] || fail "root without a token is answered $said"

invite=$(ask racks invite rack-a 2> /dev/null | grep -o 'plinv1_[^ ]*' | head -n 1)
printf 'PLATFORM_SNAKE_URL=%s\nPLATFORM_RACK_INVITE=%s\nPLATFORM_BASE_NAME=rack-a\n' "$bus" "$invite" > "$work/platform.env"
mapfile -t command < <(of platform Cmd)
start platform "${command[@]}"
rack=$pid
waits platform '^ready '
ask racks list --output ndjson | grep '"name":"rack-a"' | grep -q '"state":"active"' || fail "the Mixer does not know the Rack"
# The Rack's own metrics come over the bus.
stored() { ask metrics --name rack.spool.size --since 1h --output ndjson 2> /dev/null | grep -q rack-a; }
for _ in $(seq 300); do if stored; then break; fi; sleep 0.2; done
stored || fail "no row of the Rack is stored"
echo "a Rack joined by an invite, and its rows are stored and read"

for folder in / /usr/bin /etc/platform; do
  inside platform-mixer /usr/bin/platform man "$folder/written" 2> /dev/null && fail "$folder can be written"
done
inside platform-mixer /usr/bin/platform man /var/lib/platform-mixer/written
mode=$(stat -c %a "$work/volume-platform-mixer/data")
[ "$mode" = 2750 ] || fail "the store has mode $mode"
stops platform $rack
stops platform-mixer $mixer
echo "1 passed, 0 failed"
