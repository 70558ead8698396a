#!/usr/bin/env bash
# Applications and agents that tests send with, as their makers ship them: of PyPI and npm pinned and hash-checked, of Debian as its archive signs
# them (400 MB), in .tools/senders-python, -elasticsearch8, -node and -debian. Idempotent: a second run only compares versions.
set -euo pipefail
cd "$(dirname "$0")/.."
lists=tests/suite/senders
python=.tools/senders-python/bin/python
# One that was broken off has Python and no pip.
"$python" -m pip --version >/dev/null 2>&1 || python3 -m venv --clear .tools/senders-python
pip=("$python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes)
"${pip[@]}" -r $lists/requirements.txt
# Two versions of one client need different versions of one library.
if ! cmp --silent $lists/requirements-elasticsearch8.txt .tools/senders-elasticsearch8/installed.txt; then
  rm -rf .tools/senders-elasticsearch8
  "${pip[@]}" --target .tools/senders-elasticsearch8 -r $lists/requirements-elasticsearch8.txt
  cp $lists/requirements-elasticsearch8.txt .tools/senders-elasticsearch8/installed.txt
fi

if ! command -v npm >/dev/null; then
  echo "install-senders: npm is missing, so the senders in JavaScript are; install it with: apt-get install npm" >&2
elif ! cmp --silent $lists/node/package-lock.json .tools/senders-node/installed.json; then
  mkdir -p .tools/senders-node
  cp $lists/node/package.json $lists/node/package-lock.json .tools/senders-node/
  (cd .tools/senders-node && npm ci --ignore-scripts --no-audit --no-fund --loglevel error >/dev/null)
  cp $lists/node/package-lock.json .tools/senders-node/installed.json
fi

# Debian's are unpacked, not installed: no daemon is started, and none of the machine is replaced. Names and hashes tell what is there.
debian=(prometheus rsyslog rsyslog-elasticsearch libestr0 libfastjson4 liblognorm5)
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  echo "install-senders: Prometheus and rsyslog are skipped: they are fetched by root with Debian's apt-get" >&2
  exit 0
fi
archive() { apt-get download --print-uris "${debian[@]}" 2>/dev/null; }
update() { apt-get update --quiet >/dev/null 2>&1; }
if ! found=$(archive) && ! { update && found=$(archive); }; then
  echo "install-senders: Prometheus and rsyslog are skipped: the package lists of this machine do not have them" >&2
  exit 0
fi
[ "$found" = "$(cat .tools/senders-debian/installed.txt 2>/dev/null)" ] && exit 0
# What is there stays until what replaces it is whole.
new=.tools/senders-debian.new
trap 'rm -rf "$new"' EXIT
fetch() {
  rm -rf "$new"
  mkdir -p "$new/packages"
  (cd "$new/packages" && apt-get download --quiet --quiet -o APT::Sandbox::User=root "${debian[@]}")
}
# Lists that are old name packages that the archive has no more.
if ! fetch && ! { update && found=$(archive) && fetch; }; then
  echo "install-senders: Prometheus and rsyslog cannot be fetched from Debian's archive; what was installed before is left" >&2
  exit 0
fi
for package in "$new"/packages/*.deb; do
  dpkg-deb --extract "$package" "$new"
done
rm -rf "$new/packages"
echo "$found" > "$new/installed.txt"
rm -rf .tools/senders-debian
mv "$new" .tools/senders-debian
