#!/usr/bin/env bash
# Bans, licences, sources and known advisories of all dependencies, by cargo-deny and deny.toml. Offline: the advisories are those of
# advisories.tsv, laid out in .tools/ as the database that cargo-deny would fetch.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.tools/bin:$PATH"
database=.tools/advisories/advisory-db-3157b0e258782691 # named after the address of the database
rm -rf .tools/advisories && mkdir -p "$database"
python3 - scripts/advisories.tsv "$database" <<'PY'
import json, pathlib, sys

source, database = sys.argv[1:]
for line in open(source, encoding="utf-8"):
    if line.startswith("#"):
        continue
    id, package, date, informational, patched, unaffected = line.rstrip("\n").split("\t")
    versions = {"patched": patched, "unaffected": unaffected}
    fields = {"id": id, "package": package, "date": date, "informational": informational}
    text = ["```toml", "[advisory]", *(f"{key} = {json.dumps(value)}" for key, value in fields.items() if value), "[versions]"]
    text += [f"{key} = {json.dumps([one.strip() for one in value.split(';') if one.strip()])}" for key, value in versions.items()]
    folder = pathlib.Path(database, "crates", package)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{id}.md").write_text("\n".join([*text, "```", "", f"# {id}", "", f"https://rustsec.org/advisories/{id}", ""]))
PY
git -C "$database" init --quiet
git -C "$database" add .
git -C "$database" -c user.name=check -c user.email=check -c commit.gpgsign=false commit --quiet -m advisories
cargo deny --offline --locked --log-level error check --hide-inclusion-graph
