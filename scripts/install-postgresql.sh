#!/usr/bin/env bash
# Installs the PostgreSQL server that the differential test compares answers with: packages of Debian 12, pinned by version and
# hash, unpacked into .tools/postgresql; nothing of the system changes. Libraries are fetched only where the machine lacks them.
# Idempotent: a second run only looks at a stamp.
set -euo pipefail
cd "$(dirname "$0")/.."
server=postgresql-15=15.18-0+deb12u1
server_sha=6974c43ddec4f383d099e7d642cd59d0af83c2c90c0fb153a4179aa1bb4d73c1
# Library, package, hash.
libraries='
libxml2.so.2 libxml2=2.9.14+dfsg-1.3~deb12u6 4460e39dda10a815881374217cde08474747cfa018358cd8612c14b390eff53b
libicuuc.so.72 libicu72=72.1-3+deb12u1 f7f6f99c6d7b025914df2447fc93e11d22c44c0c8bdd8b6f36691c9e7ddcef88
libldap-2.5.so.0 libldap-2.5-0=2.5.13+dfsg-5 4b6c30f6554149c594628d945edc6003f0eea8d0cc1341638c0e71375db147ed
libsasl2.so.2 libsasl2-2=2.1.28+dfsg-10 11ee190ad39f8d7af441d2c8347388b9449434c73acc67b4b372445ac4152efa
libpq.so.5 libpq5=15.18-0+deb12u1 baef57c288d7d8c09c84cd461da35d28f981aa71c60448c1d95b52110cc9faf9
'
target=.tools/postgresql
stamp="$target/$server_sha"
[ -f "$stamp" ] && exit 0

left_out() { echo "install-postgresql: $1; the differential test says that it is skipped" >&2; exit 0; }
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || left_out "there is no apt-get here"
mkdir -p .tools
work=$(mktemp -d "$PWD/.tools/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
# Where the package is written, apt may not be somebody else.
unpack() {
  (cd "$work" && apt-get download --quiet=2 -o APT::Sandbox::User=root "$1" >/dev/null 2>&1) || return 1
  for package in "$work"/*.deb; do
    echo "$2  $package" | sha256sum --check --quiet - || { echo "install-postgresql: $1 is not the pinned package" >&2; exit 65; }
    dpkg-deb --extract "$package" "$work/root"
    rm "$package"
  done
}
unpack "$server" "$server_sha" || {
  [ "$(id -u)" = 0 ] && apt-get update --quiet=2 >/dev/null 2>&1
  unpack "$server" "$server_sha" || left_out "$server cannot be fetched from Debian's archive"
}
bin="$work/root/usr/lib/postgresql/15/bin"
lacks() { LD_LIBRARY_PATH="$work/root/usr/lib/x86_64-linux-gnu" ldd "$bin/postgres" "$bin/initdb" | grep "$1 => not found" >/dev/null; }
while read -r library package sha; do
  if [ -n "$library" ] && lacks "$library"; then
    unpack "$package" "$sha" || left_out "$package cannot be fetched from Debian's archive"
  fi
done <<<"$libraries"
lacks '.*' && left_out "libraries are missing: $(ldd "$bin/postgres" | grep 'not found' | tr -s '\n\t' ' ')"

# What starting a server takes, and no more.
new="$work/new"
mkdir -p "$new/lib/postgresql/15/bin" "$new/lib/postgresql/15/lib" "$new/lib/x86_64-linux-gnu" "$new/share/postgresql"
cp "$bin/postgres" "$bin/initdb" "$new/lib/postgresql/15/bin"
cp "$work"/root/usr/lib/postgresql/15/lib/{plpgsql,dict_snowball}.so "$new/lib/postgresql/15/lib"
cp -r "$work/root/usr/share/postgresql/15" "$new/share/postgresql"
cp -a "$work"/root/usr/lib/x86_64-linux-gnu/*.so* "$new/lib/x86_64-linux-gnu" 2>/dev/null || true
touch "$new/$server_sha"
rm -rf "$target"
mv "$new" "$target"
echo "installed PostgreSQL ${server#*=} in $target"
