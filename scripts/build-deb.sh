#!/usr/bin/env bash
# Builds the Debian packages platform and platform-mixer from what build-dist.sh left in dist/, with dpkg-deb alone, into dist/packages.
# usage: build-deb.sh [DIST [OUT]]
#
# The same programs and the same commit make the same bytes: times are the commit's (SOURCE_DATE_EPOCH), owners are root, members are
# sorted, packing has one thread. VERSION names another version than the workspace's, for tests of upgrades.
set -euo pipefail
cd "$(dirname "$0")/.."
dist=${1:-dist} out=${2:-dist/packages}
version=${VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)}-1
maintainer=${MAINTAINER:-Platform packages <packages@platform.example.org>}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
architecture=$(dpkg --print-architecture)
# The bus server is pinned for it alone (scripts/install-tools.sh), and so are the programs' promises.
[ "$architecture" = amd64 ] || { echo "build-deb: packages are for x86_64 (amd64) only, and this machine is $architecture" >&2; exit 69; }
bus=${NATS_SERVER:-.tools/bin/nats-server}
for needed in "$dist/platform" "$dist/platform-mixer" "$dist/platform.cdx.json" "$dist/platform-mixer.cdx.json" "$dist/share/man/man1/platform.1" "$bus"; do
  [ -e "$needed" ] || { echo "build-deb: $needed is missing: make build tools" >&2; exit 69; }
done
command -v objdump >/dev/null || { echo "build-deb: objdump is missing, which says what libraries a program needs: apt install binutils" >&2; exit 69; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

# The oldest C library that has every symbol that a program asks for. Another library would be a dependency that nobody named.
libc_of() {
  local foreign
  foreign=$(objdump -p "$1" | awk '$1 == "NEEDED" {print $2}' | grep -vxE 'lib(c|m|gcc_s|pthread|dl|rt)\.so\.[0-9]+|ld-linux-.*' || true)
  [ -z "$foreign" ] || { echo "build-deb: $1 needs $foreign, which no package is named for" >&2; exit 1; }
  echo "libc6 (>= $(objdump -T "$1" | grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -uV | tail -1)), libgcc-s1 (>= 4.2)"
}

file() { # MODE FROM TO: a file of the package
  install -D -m "$1" "$2" "$root/$3"
}

packed() { # FROM TO: the same, packed without a name and a time
  mkdir -p "$(dirname "$root/$2")"
  gzip -9n < "$1" > "$root/$2"
}

pages() { # what a package says of itself
  local doc=usr/share/doc/$1
  file 644 deploy/debian/copyright "$doc/copyright"
  printf '%s (%s) stable; urgency=medium\n\n  * What changed: changelog.gz.\n\n -- %s  %s\n' \
    "$1" "$version" "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" > "$work/changelog"
  packed "$work/changelog" "$doc/changelog.Debian.gz"
  packed CHANGELOG.md "$doc/changelog.gz"
  packed "$out/$1.cdx.json" "$doc/$1.cdx.json.gz"
  for page in docs/operate.md docs/operate/*.md; do
    file 644 "$page" "$doc/${page#docs/}"
  done
}

package() { # NAME: the package of what lies in $root
  local source=deploy/debian/$1
  file 644 "deploy/$1.service" "usr/lib/systemd/system/$1.service"
  file 644 "deploy/sysusers.d/$1.conf" "usr/lib/sysusers.d/$1.conf"
  file 644 "deploy/tmpfiles.d/$1.conf" "usr/lib/tmpfiles.d/$1.conf"
  [ ! -e "$source/lintian-overrides" ] || file 644 "$source/lintian-overrides" "usr/share/lintian/overrides/$1"
  pages "$1"
  mkdir -p "$root/DEBIAN"
  for script in postinst prerm postrm; do
    sed "s/@name@/$1/g" "deploy/debian/$script" > "$work/$script"
    file 755 "$work/$script" "DEBIAN/$script"
  done
  (cd "$root" && find etc -type f -printf '/%p\n' | LC_ALL=C sort) > "$root/DEBIAN/conffiles"
  {
    sed -n '1,/^Priority/p' "$source/control"
    printf 'Version: %s\nArchitecture: %s\nMaintainer: %s\nInstalled-Size: %s\nHomepage: %s\n' "$version" "$architecture" "$maintainer" \
      "$(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f1)" "${HOMEPAGE:-https://platform.example.org}"
    sed '1,/^Priority/d' "$source/control" | sed "s/@libc@/$(libc_of "$dist/$1" 2>/dev/null || true)/; s/@version@/$version/"
  } > "$root/DEBIAN/control"
  (cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' md5sum) > "$root/DEBIAN/md5sums"
  find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  rm -f "$out/$1"_*.deb
  dpkg-deb --root-owner-group -Zxz --threads-max=1 --build "$root" "$out/$1_${version}_$architecture.deb"
}

mkdir -p "$out"
install -m 644 "$dist/platform.cdx.json" "$out/"
scripts/bill-of-materials.py with-bus "$dist/platform-mixer.cdx.json" "$(realpath "$bus")" > "$out/platform-mixer.cdx.json"
root=$work/platform
file 755 "$dist/platform" usr/bin/platform
for page in "$dist"/share/man/man1/platform*.1; do
  packed "$page" "usr/share/man/man1/$(basename "$page").gz"
done
(cd "$dist/share" && find bash-completion zsh fish -type f) | while read -r completion; do
  file 644 "$dist/share/$completion" "usr/share/${completion/zsh\/site-functions/zsh\/vendor-completions}"
done
file 644 deploy/debian/platform/platform.toml etc/platform/platform.toml
file 755 deploy/debian/platform/join-local usr/lib/platform/join-local
file 644 deploy/debian/platform/join-local.conf usr/lib/systemd/system/platform.service.d/join-local.conf
package platform

root=$work/platform-mixer
file 755 "$dist/platform-mixer" usr/bin/platform-mixer
file 755 deploy/debian/platform-mixer/platform-mixer-admin usr/sbin/platform-mixer-admin
file 755 "$bus" usr/lib/platform-mixer/nats-server
# Not in the configuration, which is the operator's and stays as it is when an upgrade brings another server.
mkdir -p "$root/usr/lib/systemd/system/platform-mixer.service.d"
sed "s/@sha256@/$(sha256sum "$bus" | cut -d' ' -f1)/" deploy/debian/platform-mixer/bus-server.conf \
  > "$root/usr/lib/systemd/system/platform-mixer.service.d/bus-server.conf"
packed deploy/debian/platform-mixer/platform-mixer.1 usr/share/man/man1/platform-mixer.1.gz
packed deploy/debian/platform-mixer/platform-mixer-admin.8 usr/share/man/man8/platform-mixer-admin.8.gz
file 644 deploy/debian/platform-mixer/platform-mixer.toml etc/platform/platform-mixer.toml
file 644 deploy/debian/platform-mixer/first.yaml etc/platform/first.yaml
libc_of "$dist/platform-mixer" > /dev/null
package platform-mixer
