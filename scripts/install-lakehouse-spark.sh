#!/usr/bin/env bash
# What Spark's Iceberg runtime of PyPI lacks, in .tools/lakehouse-python/spark-libraries: Jackson and Apache HttpComponents 5 under the names that
# Iceberg gives them. Spark's own Jackson and Debian's HttpComponents are renamed. The latter is older than the runtime wants by a class that only
# TLS needs: an empty one stands in for it, so this Spark speaks plain HTTP. Nothing fails where a part is missing: Spark says so in the test.
set -euo pipefail
cd "$(dirname "$0")/.."
site=$(echo .tools/lakehouse-python/lib/python3*/site-packages)
left_out() { echo "install-lakehouse: $1, so Spark cannot be run" >&2; exit 0; }
[ -f .tools/lakehouse-python/spark-libraries/installed ] && exit 0
command -v javac >/dev/null || left_out "a JDK is missing (apt-get install openjdk-17-jdk-headless)"
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || left_out "there is no apt-get here"
packages=(libasm-java=9.4-1 libjarjar-java=1.4+svn142-12 libhttpclient5-java=5.2.1-1 libhttpcore5-java=5.2.1-1)
work=$(mktemp -d "$PWD/.tools/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
# Where the packages are written, apt may not be somebody else.
fetch() { (cd "$work" && apt-get download --quiet=2 -o APT::Sandbox::User=root "${packages[@]}" >/dev/null 2>&1); }
fetch || { [ "$(id -u)" = 0 ] && apt-get update --quiet=2 >/dev/null 2>&1 && fetch; } || left_out "Debian's archive does not have ${packages[*]}"
(cd "$work" && sha256sum --check --quiet -) <<'SUMS' || left_out "a package of Debian is not the pinned one"
df86dcfa204fd084b4bdec98ded755905614066bafee012ac82fcc94d8958079  libasm-java_9.4-1_all.deb
e53c1bea1dae0a3b7a25ddb306ae5ec8123efdf5f3964b1644e2b0ad6568c989  libhttpclient5-java_5.2.1-1_all.deb
f9bc078836e8bf8adc3ca012d12c3ce0c4e0850d861507961e6a5f7d0d972ff1  libhttpcore5-java_5.2.1-1_all.deb
0d22a72bc64ed34ebb6b5e9c95183a6000ea797f5b48fe9c139008904b6f3193  libjarjar-java_1.4+svn142-12_all.deb
SUMS
for package in "$work"/*.deb; do dpkg-deb --extract "$package" "$work/root"; done
java=$work/root/usr/share/java
new=$work/new
mkdir -p "$new" "$work/plain"
# Classes for newer versions of Java would be there twice under their new names.
python3 - "$work/plain" "$site"/pyspark/jars/jackson-{core,databind,annotations}-2*.jar "$java"/{httpclient5,httpcore5,httpcore5-h2}.jar <<'PLAIN'
import os
import sys
import zipfile

for path in sys.argv[2:]:
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(os.path.join(sys.argv[1], os.path.basename(path)), "w") as new:
        for name in old.namelist():
            if not name.startswith("META-INF/versions/") and not name.endswith(("/", "module-info.class")):
                new.writestr(name, old.read(name))
PLAIN
shaded=org.apache.iceberg.shaded
printf 'rule org.apache.hc.** %s.org.apache.hc.@1\nrule com.fasterxml.jackson.** %s.com.fasterxml.jackson.@1\n' $shaded $shaded > "$work/rules"
for jar in "$work"/plain/*.jar; do
  java -cp "$java/jarjar.jar:$java/asm.jar:$java/asm-commons.jar:$java/asm-tree.jar:$java/asm-analysis.jar" \
    com.tonicsystems.jarjar.Main process "$work/rules" "$jar" "$new/$(basename "$jar")"
done
echo "package $shaded.org.apache.hc.client5.http.ssl; public interface TlsSocketStrategy {}" > "$work/TlsSocketStrategy.java"
javac -d "$work/classes" "$work/TlsSocketStrategy.java"
python3 -m zipfile -c "$new/tls-socket-strategy.jar" "$work/classes/org"
touch "$new/installed"
rm -rf .tools/lakehouse-python/spark-libraries
mv "$new" .tools/lakehouse-python/spark-libraries
