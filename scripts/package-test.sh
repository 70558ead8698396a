#!/usr/bin/env bash
# The Debian packages in a clean root: install, start as the units say, use, upgrade, a disk that is full, remove, purge.
# usage: package-test.sh [PACKAGES]
#
# The root is made of Debian's packages by mmdebstrap and kept packed in .tools/. Everything runs in namespaces of its own (network, processes,
# mounts): the machine's ports are not touched, and nothing outlives it. There is no systemd as the first process: the test reads from each
# unit which program runs as whom, where and with what, starts that, and is the service manager that hears of it. systemd itself judges the
# units (systemd-analyze), and its journald writes the journal.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=${1:-dist/packages}
suite=bookworm
base=$PWD/.tools/package-root-$suite.tar
[ "$(id -u)" = 0 ] || { echo "package-test: it makes a root and namespaces: run it as root" >&2; exit 77; }
needs() { # PROGRAM PACKAGE
  command -v "$1" >/dev/null && return
  apt-get install --quiet --yes "$2" >/dev/null 2>&1 || { apt-get update --quiet >/dev/null && apt-get install --quiet --yes "$2" >/dev/null; }
}
needs mmdebstrap mmdebstrap
needs lintian lintian
needs ip iproute2

echo "== lintian"
lintian --allow-root --fail-on error,warning "$packages"/platform_*.deb "$packages"/platform-mixer_*.deb

if [ ! -e "$base" ]; then
  mkdir -p .tools
  mmdebstrap --quiet --format=tar --variant=minbase --include=systemd,python3,init-system-helpers,adduser,procps "$suite" "$base.new"
  mv "$base.new" "$base"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/root"
tar -C "$work/root" -xf "$base"
echo "127.0.0.1 localhost press-1" > "$work/root/etc/hosts"
mkdir -p "$work/root/packages/old"
cp "$packages"/platform_*.deb "$packages"/platform-mixer_*.deb "$work/root/packages/"
# The same programs as an older release, and a conffile that was another one there.
for package in platform platform-mixer; do
  dpkg-deb -R "$packages/$package"_*.deb "$work/old"
  sed -i 's/^Version: .*/Version: 0.0.9-1/; s/(= .*)/(= 0.0.9-1)/' "$work/old/DEBIAN/control"
  sed -i '1s/^/# Of release 0.0.9.\n/' "$work/old/etc/platform/$package.toml"
  dpkg-deb --root-owner-group -Znone --build "$work/old" "$work/root/packages/old/${package}_0.0.9-1.deb" >/dev/null
  rm -rf "$work/old"
done
install -m 755 scripts/package-test-inside.py "$work/root/packages/inside.py"
install -m 644 scripts/package_test_services.py "$work/root/packages/"
unshare --net --pid --mount --uts --ipc --fork --kill-child --mount-proc="$work/root/proc" bash -euc '
  ip link set lo up
  hostname press-1
  mount -t tmpfs run "$0/run"
  mount -t tmpfs tmp "$0/tmp"
  mount --rbind /sys "$0/sys" # journald asks for control groups
  for device in null zero full random urandom; do touch "$0/dev/$device"; mount --bind "/dev/$device" "$0/dev/$device"; done
  exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 chroot "$0" python3 /packages/inside.py' "$work/root"
