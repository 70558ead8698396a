#!/usr/bin/env bash
# Packs the Helm chart into dist/packages, with its alerts and dashboards in the place of the links to them. By tar alone: a chart is an archive of
# one folder, and the same files give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
for key in version appVersion; do
  grep -q "^$key: $version\$" deploy/helm/platform/Chart.yaml || { echo "build-chart: Chart.yaml has another $key than $version" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp --recursive --dereference deploy/helm/platform "$work/platform"
# What checks it is not for who installs it.
rm -r "$work/platform/ci"
mkdir -p dist/packages
rm -f dist/packages/platform-chart-*.tgz
# Helm wants Chart.yaml before the rest.
tar --create --directory "$work" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$SOURCE_DATE_EPOCH" --sort=name --no-recursion \
  platform/Chart.yaml $(cd "$work" && find platform -type f ! -path platform/Chart.yaml | LC_ALL=C sort) | gzip -9n > "dist/packages/platform-chart-$version.tgz"
echo "dist/packages/platform-chart-$version.tgz"
