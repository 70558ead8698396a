#!/usr/bin/env bash
# Builds both release binaries into dist/, with manual pages and completions in dist/share, and checks what they promise.
# platform is static (glibc with +crt-static; --target keeps build scripts dynamic); platform-mixer is dynamic.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${1:-x86_64-unknown-linux-gnu}
out=${CARGO_TARGET_DIR:-target}
cargo build --release --locked --workspace --bin platform-mixer
RUSTFLAGS="-C target-feature=+crt-static" cargo build --profile dist --locked --target "$target" -p platform-cli
mkdir -p dist
install -m 0755 "$out/release/platform-mixer" "$out/$target/dist/platform" dist/
dist/platform man dist/share/man/man1
install -d dist/share/bash-completion/completions dist/share/zsh/site-functions dist/share/fish/vendor_completions.d
dist/platform completions bash > dist/share/bash-completion/completions/platform
dist/platform completions zsh > dist/share/zsh/site-functions/_platform
dist/platform completions fish > dist/share/fish/vendor_completions.d/platform.fish

ldd dist/platform 2>&1 | grep -qE 'not a dynamic executable|statically linked' || { echo "dist/platform is dynamic" >&2; exit 1; }
size=$(stat -c %s dist/platform)
[ "$size" -lt 30000000 ] || { echo "dist/platform has $size bytes, over 30 MB" >&2; exit 1; }
echo "dist/platform ($((size / 1024)) KiB, static) and dist/platform-mixer ($(($(stat -c %s dist/platform-mixer) / 1024)) KiB)"
