#!/usr/bin/env python3
"""What a program of ours is linked from, by `cargo metadata` and Cargo.lock; needs no network.

    scripts/bill-of-materials.py sbom PACKAGE       CycloneDX 1.6 as JSON
    scripts/bill-of-materials.py section PACKAGE    the section .dep-v0 of an executable, as `cargo auditable` writes it
    scripts/bill-of-materials.py with-bus FILE NATS a bill of materials with the nats-server that goes with the program

A crate counts where a normal dependency leads to it on Linux x86_64, with the features that any crate of ours asks for: never too few.
"""
import hashlib
import json
import re
import subprocess
import sys
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def metadata() -> dict:
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", "x86_64-unknown-linux-gnu"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)


def linkable() -> set:
    """Names and versions of what normal dependencies of any crate of ours lead to. `cargo metadata` follows weak features
    (`crate?/feature`) of dependencies that nobody switches on."""
    command = ["cargo", "tree", "--workspace", "--locked", "--offline", "-e", "normal", "--target", "x86_64-unknown-linux-gnu", "--prefix", "none", "--format", "{p}"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {tuple(line.split()[:2]) for line in listed.splitlines() if line}


def checksums() -> dict:
    """The SHA-256 of each crate's archive, by name and version."""
    entry = re.compile(r'name = "(.+)"\nversion = "(.+)"\nsource = ".+"\nchecksum = "(.+)"')
    return {(name, version): sha for name, version, sha in entry.findall((ROOT / "Cargo.lock").read_text())}


def closure(found: dict, package: str) -> tuple[dict, dict, str]:
    """Crates that a program is linked from, what each depends on, and the program's own."""
    packages = {one["id"]: one for one in found["packages"]}
    linked = {
        node["id"]: [dep["pkg"] for dep in node["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        for node in found["resolve"]["nodes"]
    }
    known = linkable()
    possible = {id for id, one in packages.items() if (one["name"], f"v{one['version']}") in known}
    linked = {id: [other for other in others if other in possible] for id, others in linked.items()}
    root = next(id for id in found["workspace_members"] if packages[id]["name"] == package)
    reached, waiting = set(), [root]
    while waiting:
        id = waiting.pop()
        if id not in reached:
            reached.add(id)
            waiting += linked[id]
    order = sorted(reached, key=lambda id: (packages[id]["name"], packages[id]["version"]))
    return {id: packages[id] for id in order}, linked, root


def sbom(crates: dict, linked: dict, root: str) -> bytes:
    hashes = checksums()

    def component(id: str) -> dict:
        one = crates[id]
        name, version = one["name"], one["version"]
        # Old manifests write `A/B` for `A OR B`.
        licence = (one["license"] or "NOASSERTION").replace("/", " OR ")
        part = {"type": "application" if id == root else "library", "bom-ref": f"{name}@{version}", "name": name, "version": version}
        part["licenses"] = [{"expression": licence}]
        part["purl"] = f"pkg:cargo/{name}@{version}"
        if sha := hashes.get((name, version)):
            part["hashes"] = [{"alg": "SHA-256", "content": sha}]
        return part

    ref = lambda id: f"{crates[id]['name']}@{crates[id]['version']}"
    bom = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": component(root)}}
    bom["components"] = [component(id) for id in crates if id != root]
    bom["dependencies"] = [{"ref": ref(id), "dependsOn": sorted({ref(to) for to in linked[id]})} for id in crates]
    return (json.dumps(bom, indent=1) + "\n").encode()


def section(crates: dict, linked: dict, root: str) -> bytes:
    number = {id: at for at, id in enumerate(crates)}
    packages = []
    for id, one in crates.items():
        source = "crates.io" if one["source"] else "local"
        part = {"name": one["name"], "version": one["version"], "source": source}
        if deps := sorted(number[to] for to in linked[id]):
            part["dependencies"] = deps
        packages.append(part | ({"root": True} if id == root else {}))
    return zlib.compress(json.dumps({"packages": packages}, separators=(",", ":")).encode(), 9)


def with_bus(file: str, server: str) -> bytes:
    """The bus server is a program of its own: what it is linked from, its makers say."""
    bom = json.loads(Path(file).read_text())
    said = subprocess.run([server, "--version"], check=True, capture_output=True, text=True).stdout
    version = re.search(r"v(\d+\.\d+\.\d+\S*)", said).group(1)
    ref = f"nats-server@{version}"
    bus = {"type": "application", "bom-ref": ref, "name": "nats-server", "version": version, "licenses": [{"expression": "Apache-2.0"}]}
    bus["purl"] = f"pkg:golang/github.com/nats-io/nats-server/v2@v{version}"
    bus["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(Path(server).read_bytes()).hexdigest()}]
    bom["components"].append(bus)
    bom["dependencies"].append({"ref": ref, "dependsOn": []})
    own = bom["metadata"]["component"]["bom-ref"]
    next(one for one in bom["dependencies"] if one["ref"] == own)["dependsOn"].append(ref)
    return (json.dumps(bom, indent=1) + "\n").encode()


form, *args = sys.argv[1:]
if form == "with-bus":
    sys.stdout.buffer.write(with_bus(*args))
    sys.exit()
[package] = args
sys.stdout.buffer.write({"sbom": sbom, "section": section}[form](*closure(metadata(), package)))
