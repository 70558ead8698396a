#!/usr/bin/env bash
# Builds both release binaries into dist/, with manual pages and completions in dist/share, and checks what they promise.
# Beside each lies its bill of materials (CycloneDX); the same list is in the program, where `cargo audit bin` finds it.
# platform is static (release-rustc.sh says how); platform-mixer is dynamic. One build: what both use is compiled once.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${CARGO_TARGET_DIR:-target}
export RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/release-rustc.sh CARGO_INCREMENTAL=0
echo "building the release programs: some 450 crates, the large ones are DataFusion's (half an hour on 2 cores if nothing is compiled yet)"
cargo build --release --locked --workspace --bin platform-mixer --bin platform
mkdir -p dist
install -m 0755 "$out/release/platform-mixer" "$out/release/platform" dist/
for program in platform:platform-cli platform-mixer:platform-mixer; do
  name=${program%:*} package=${program#*:}
  scripts/bill-of-materials.py sbom "$package" > "dist/$name.cdx.json"
  scripts/bill-of-materials.py section "$package" > "$out/$name.dep-v0"
  objcopy --add-section .dep-v0="$out/$name.dep-v0" --set-section-flags .dep-v0=noload,readonly "dist/$name"
done
dist/platform man dist/share/man/man1
install -d dist/share/bash-completion/completions dist/share/zsh/site-functions dist/share/fish/vendor_completions.d
dist/platform completions bash > dist/share/bash-completion/completions/platform
dist/platform completions zsh > dist/share/zsh/site-functions/_platform
dist/platform completions fish > dist/share/fish/vendor_completions.d/platform.fish

ldd dist/platform 2>&1 | grep -qE 'not a dynamic executable|statically linked' || { echo "dist/platform is dynamic" >&2; exit 1; }
for program in platform:27 platform-mixer:113; do
  size=$(stat -c %s "dist/${program%:*}")
  [ "$size" -lt "${program#*:}000000" ] || { echo "dist/${program%:*} has $size bytes, over ${program#*:} MB" >&2; exit 1; }
done
echo "dist/platform ($(($(stat -c %s dist/platform) / 1024)) KiB, static) and dist/platform-mixer ($(($(stat -c %s dist/platform-mixer) / 1024)) KiB)"
