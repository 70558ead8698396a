#!/usr/bin/env bash
# Checks the types of the page by the TypeScript compiler, as web/tsconfig.json says. The compiler is one program that needs no Node; npm brings
# its package, pinned and hash-checked, into .tools/typescript (28 MB). Idempotent: a second run only compares the hash of the package.
set -euo pipefail
cd "$(dirname "$0")/.."
package=@typescript/typescript-linux-x64@7.0.2
sha=7ecad6f67377e831856367ab062ef394f21506a611405bf8ac0ff039348637d3
if [ "$(cat .tools/typescript/installed.txt 2>/dev/null)" != $sha ]; then
  [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || { echo "check-page: the compiler is pinned for Linux x86_64 only" >&2; exit 69; }
  command -v npm >/dev/null \
    || { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update --quiet >/dev/null 2>&1 && apt-get install --quiet --yes npm >/dev/null 2>&1; } \
    || { echo "check-page: npm is missing; install it with: apt-get install npm" >&2; exit 69; }
  mkdir -p .tools
  work=$(mktemp -d "$PWD/.tools/fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  (cd "$work" && npm pack --silent --ignore-scripts $package >/dev/null)
  echo "$sha  $(echo "$work"/*.tgz)" | sha256sum --check --quiet - || { echo "check-page: $package is not the pinned package" >&2; exit 65; }
  tar -xzf "$work"/*.tgz -C "$work"
  echo $sha > "$work/package/installed.txt"
  rm -rf .tools/typescript
  mv "$work/package" .tools/typescript
fi
.tools/typescript/lib/tsc --project web
