#!/usr/bin/env bash
# Takes the libraries of the page out of their npm packages, pinned and hash-checked, into web/vendor, with their licences. SHA256SUMS
# says what came of it; a test of the Mixer compares. For another version: change its line here, run this, read the difference.
set -euo pipefail
export LC_ALL=C # the order of names
cd "$(dirname "$0")/.."
command -v npm >/dev/null || { echo "vendor-web: npm is missing; install it with: apt-get install npm" >&2; exit 69; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/vendor"
printf '# Licences of the vendored libraries\n' > "$work/vendor/LICENSES.md"

# fetch NAME VERSION SHA256: unpacks a package, and keeps its licence.
fetch() {
  local name=$1 version=$2 sha=$3
  (cd "$work" && npm pack --silent --ignore-scripts "$name@$version" >/dev/null)
  echo "$sha  $work/$name-$version.tgz" | sha256sum --check --quiet - || { echo "vendor-web: $name $version is not the pinned package" >&2; exit 65; }
  mkdir "$work/$name"
  tar -xzf "$work/$name-$version.tgz" -C "$work/$name" --strip-components 1
  { printf '\n## %s %s\n\n```text\n' "$name" "$version"; printf '%s\n```\n' "$(sed '/./,$!d' "$work/$name/LICENSE")"; } >> "$work/vendor/LICENSES.md"
}

# take FILE NAME: a file as a browser loads it without a bundler. Source maps are not there.
take() {
  sed -e 's|from"preact"|from"./preact.js"|g' -e '/^\/\/# sourceMappingURL=/d' "$work/$1" > "$work/vendor/$2"
}

fetch preact 11.2.0 3c4456766bd32b6b534d52bf4e9c2a29b33e7eedf6e96ed479300ba1a7888ebf
take preact/dist/preact.mjs preact.js
take preact/hooks/dist/hooks.mjs hooks.js
fetch htm 3.1.1 2425b9bee11409177bcabc7f32e319926fc6690c1701c0b257c88bdff2d5ba90
take htm/dist/htm.mjs htm.js
fetch uplot 1.6.32 4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d
take uplot/dist/uPlot.iife.min.js uplot.js
take uplot/dist/uPlot.min.css uplot.css

(cd "$work/vendor" && sha256sum -- * > "$work/SHA256SUMS")
mv "$work/SHA256SUMS" "$work/vendor/"
mkdir -p web/vendor
# Our declarations (*.d.ts) are not made by this; all else is, so that what is taken no more goes.
find web/vendor -type f ! -name '*.d.ts' -delete
cp "$work"/vendor/* web/vendor/
cat web/vendor/SHA256SUMS
