#!/usr/bin/env bash
# Builds both container images out of dist/ into dist/packages, as tar archives of OCI image layouts; no daemon, no root, no base image.
#
#   platform        the static program with the certificate authorities: a Rack, and the command line
#   platform-mixer  both programs, the shared libraries that the Mixer needs, nats-server of install-tools.sh
#                   (or NATS_SERVER), certificate authorities, licences
#
# Both run as user 65532, need no capability and write in their volume only. The libraries and authorities are those of this machine (Debian's
# packages, which the label `platform.packages` names): build on an up-to-date one. The same programs and packages give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { echo "build-images: $*" >&2; exit 1; }
for program in platform platform-mixer; do
  [ -x "dist/$program" ] || fail "dist/$program is missing; make it with: make build"
done
nats=${NATS_SERVER:-.tools/bin/nats-server}
[ -x "$nats" ] || fail "$nats is missing; make it with: make tools"
authorities=/etc/ssl/certs/ca-certificates.crt
[ -r $authorities ] || fail "$authorities is missing; install it with: apt-get install ca-certificates"
[ "$(uname -m)" = x86_64 ] || fail "images are for x86_64 only, and this machine is $(uname -m)"
command -v dpkg-query >/dev/null || fail "there is no dpkg here, which says what package a library is of: build the images on Debian"

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
mkdir -p dist/packages
rm -f dist/packages/platform-*.oci.tar
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A package's version and licence go with its files: put_licence FOLDER PACKAGE
put_licence() {
  install -D -m 0644 "/usr/share/doc/$2/copyright" "$1/usr/share/doc/$2/copyright"
  dpkg-query --show --showformat '${Package} ${Version}\n' "$2" >> "$work/packages"
}

# What every image has beside its programs: base FOLDER HOME
base() {
  install -d "$1/etc" "$1$2"
  printf 'root:x:0:0::/:/\nplatform:x:65532:65532::%s:/\n' "$2" > "$1/etc/passwd"
  printf 'root:x:0:\nplatform:x:65532:\n' > "$1/etc/group"
  echo 'hosts: files dns' > "$1/etc/nsswitch.conf"
  install -D -m 0644 $authorities "$1/etc/ssl/certs/ca-certificates.crt"
  put_licence "$1" ca-certificates
}

# config NAME TITLE HOME ENVIRONMENT ENTRYPOINT COMMAND PORTS HEALTHCHECK: the lists are JSON.
config() {
  python3 - "$@" "$version" "$revision" "$(sort -u "$work/packages" | paste -sd, | sed 's/,/, /g')" > "$work/$1.json" <<'PY'
import json, sys
name, title, home, environment, entrypoint, command, ports, health, version, revision, packages = sys.argv[1:]
label = "org.opencontainers.image."
second = 1_000_000_000
config = {
    "User": "65532:65532",
    "WorkingDir": home,
    "Env": ["PATH=/usr/bin", f"HOME={home}", *json.loads(environment)],
    "Entrypoint": json.loads(entrypoint),
    "Cmd": json.loads(command),
    "ExposedPorts": {f"{port}/tcp": {} for port in json.loads(ports)},
    "Volumes": {home: {}},
    "StopSignal": "SIGTERM",
    "Labels": {
        label + "title": title,
        label + "version": version,
        label + "revision": revision,
        label + "licenses": "Apache-2.0",
        "platform.packages": packages,
    },
}
if test := json.loads(health):
    # Docker's own; others take it for nothing.
    config["Healthcheck"] = {"Test": ["CMD", *test], "Interval": 30 * second, "Timeout": 15 * second, "StartPeriod": 600 * second, "Retries": 3}
config = {key: value for key, value in config.items() if value}
json.dump({"name": name, "version": version, "owned": [home], "config": config}, sys.stdout)
PY
}

# The shared libraries of a program and its loader, each where it is looked for, and the licences of the packages that they are of.
libraries() {
  local found path real package
  found=$(ldd "$2") || fail "ldd does not read $2"
  case $found in *'not found'*) fail "$2 needs libraries that this machine does not have: $found" ;; esac
  while read -r path; do
    real=$(readlink -f "$path")
    install -D -m 0755 "$real" "$1$path"
    # Where /lib is a link, packages may know the file by either name.
    package=$(dpkg-query --search "$path" "$real" "${real#/usr}" 2>/dev/null | head -n 1 | cut -d: -f1 || true)
    [ -n "$package" ] || fail "$path is of no Debian package"
    put_licence "$1" "$package"
  done <<< "$(grep -o '/[^ ]*' <<< "$found" | sort -u)"
}

: > "$work/packages"
base "$work/rack" /var/lib/platform
install -d "$work/rack/usr/bin" "$work/rack/etc/platform"
install -m 0755 dist/platform "$work/rack/usr/bin/"
install -m 0644 deploy/container/platform.toml "$work/rack/etc/platform/"
config platform "Rack agent and command line of the telemetry platform" /var/lib/platform \
  '[]' '["/usr/bin/platform"]' '["run", "-c", "/etc/platform/platform.toml"]' '[]' '[]'
scripts/oci-image.py "dist/packages/platform-$version.oci.tar" "$work/platform.json" "$work/rack"

# The programs are a layer of their own: what is below them changes rarely.
: > "$work/packages"
base "$work/base" /var/lib/platform-mixer
libraries "$work/base" dist/platform-mixer
install -D -m 0755 "$nats" "$work/base/usr/bin/nats-server"
install -D -m 0644 /usr/share/common-licenses/Apache-2.0 "$work/base/usr/share/doc/nats-server/copyright"
install -d "$work/programs/usr/bin" "$work/programs/etc/platform"
install -m 0755 dist/platform dist/platform-mixer "$work/programs/usr/bin/"
install -m 0644 deploy/container/platform-mixer.toml "$work/programs/etc/platform/"
config platform-mixer "Mixer of the telemetry platform, with its bus" /var/lib/platform-mixer \
  "[\"PLATFORM_SNAKE_SERVER_SHA256=$(sha256sum "$nats" | cut -d' ' -f1)\"]" \
  '["/usr/bin/platform-mixer", "-c", "/etc/platform/platform-mixer.toml"]' '[]' '[8090, 4222, 5432, 4317, 4318]' \
  '["/usr/bin/platform", "doctor", "--mixer", "--ready"]'
scripts/oci-image.py "dist/packages/platform-mixer-$version.oci.tar" "$work/platform-mixer.json" "$work/base" "$work/programs"
