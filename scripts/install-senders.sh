#!/usr/bin/env bash
# Applications and agents that tests send with, as their makers ship them: of PyPI and npm pinned and hash-checked, of Debian as its archive signs
# them (400 MB), in .tools/senders-python, -elasticsearch8, -node and -debian. Idempotent: a second run only compares versions.
set -euo pipefail
cd "$(dirname "$0")/.."
lists=tests/suite/senders
python=.tools/senders-python/bin/python
[ -x $python ] || python3 -m venv .tools/senders-python
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
  npm ci --prefix .tools/senders-node --ignore-scripts --no-audit --no-fund --silent
  cp $lists/node/package-lock.json .tools/senders-node/installed.json
fi

# Debian's are unpacked, not installed: no daemon is started, and none of the machine is replaced. Names and hashes tell what is there.
debian=(prometheus rsyslog rsyslog-elasticsearch libestr0 libfastjson4 liblognorm5)
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  echo "install-senders: Prometheus and rsyslog are skipped: they are fetched by root with Debian's apt-get" >&2
  exit 0
fi
archive() { apt-get download --print-uris "${debian[@]}" 2>/dev/null; }
if ! found=$(archive) && ! { apt-get update --quiet >/dev/null 2>&1 && found=$(archive); }; then
  echo "install-senders: Prometheus and rsyslog are skipped: the package lists of this machine do not have them" >&2
  exit 0
fi
[ "$found" = "$(cat .tools/senders-debian/installed.txt 2>/dev/null)" ] && exit 0
rm -rf .tools/senders-debian
mkdir -p .tools/senders-debian/packages
(cd .tools/senders-debian/packages && apt-get download --quiet --quiet -o APT::Sandbox::User=root "${debian[@]}")
for package in .tools/senders-debian/packages/*.deb; do
  dpkg-deb --extract "$package" .tools/senders-debian
done
rm -rf .tools/senders-debian/packages
echo "$found" > .tools/senders-debian/installed.txt
