#!/usr/bin/env python3
"""Writes a container image as a tar archive of an OCI image layout: one layer for each folder, needs no daemon and no root.

    scripts/oci-image.py OUT.tar CONFIG.json LAYER...

CONFIG.json has `name`, `version`, the image's `config` (user, entrypoint, labels, …), and in `owned` the folders of the image that belong
to its user. Everything else belongs to root and is read-only for others. `docker load`, `podman load`, `skopeo copy oci-archive:OUT.tar …`
and `ctr images import` read the archive.

Reproducible: entries are sorted, and times, owners and modes do not come from the machine. The time is that of SOURCE_DATE_EPOCH. With the
same folders, Python and zlib the same bytes come out.
"""
import datetime
import gzip
import hashlib
import io
import json
import os
import stat
import sys
import tarfile
from pathlib import Path

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
ANNOTATION = "org.opencontainers.image."
MEDIA_TYPE = "application/vnd.oci.image."
TAR = {"format": tarfile.PAX_FORMAT, "mode": "w"}


def header(name: str, owner: int = 0) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mtime, entry.uid, entry.gid = EPOCH, owner, owner
    return entry


def layer(folder: Path, owned: set, user: int) -> bytes:
    """A folder as a tar archive; a path of `owned` belongs to the user."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, **TAR) as archive:
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder))
            is_owned = "/" + name in owned
            entry = header(name, user if is_owned else 0)
            if path.is_symlink():
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, os.readlink(path), 0o777
                archive.addfile(entry)
            elif path.is_dir():
                entry.type, entry.mode = tarfile.DIRTYPE, 0o750 if is_owned else 0o755
                archive.addfile(entry)
            else:
                found = path.stat()
                entry.size, entry.mode = found.st_size, 0o755 if found.st_mode & stat.S_IXUSR else 0o644
                with path.open("rb") as content:
                    archive.addfile(entry, content)
    return out.getvalue()


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


class ImageLayout:
    """The blobs of a layout, by their digests."""

    def __init__(self) -> None:
        self.blobs = {}

    def add(self, content: bytes, kind: str) -> dict:
        self.blobs[digest(content)] = content
        return {"mediaType": MEDIA_TYPE + kind, "digest": digest(content), "size": len(content)}

    def add_json(self, value: dict, kind: str) -> dict:
        return self.add(json.dumps(value, sort_keys=True, separators=(",", ":")).encode(), kind)

    def write(self, out: Path, index: dict) -> None:
        files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index, sort_keys=True).encode()}
        files |= {"blobs/" + key.replace(":", "/"): content for key, content in self.blobs.items()}
        with tarfile.open(out, **TAR) as archive:
            for name in ["blobs", "blobs/sha256"]:
                entry = header(name)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
            for name, content in sorted(files.items()):
                entry = header(name)
                entry.size, entry.mode = len(content), 0o644
                archive.addfile(entry, io.BytesIO(content))


def main(out: Path, described: dict, folders: list) -> None:
    layout, layers, diff_ids = ImageLayout(), [], []
    user = int(described["config"]["User"].split(":")[0])
    for folder in folders:
        content = layer(folder, set(described["owned"]), user)
        diff_ids.append(digest(content))
        layers.append(layout.add(gzip.compress(content, 9, mtime=EPOCH), "layer.v1.tar+gzip"))
    created = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    image = {
        "architecture": "amd64",
        "os": "linux",
        "created": created,
        "config": described["config"],
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": [{"created": created, "created_by": "scripts/build-images.sh"} for _ in layers],
    }
    name, version = described["name"], described["version"]
    manifest = {
        "schemaVersion": 2,
        "mediaType": MEDIA_TYPE + "manifest.v1+json",
        "config": layout.add_json(image, "config.v1+json"),
        "layers": layers,
    }
    of_manifest = layout.add_json(manifest, "manifest.v1+json") | {
        "annotations": {ANNOTATION + "ref.name": version, "io.containerd.image.name": f"docker.io/library/{name}:{version}"},
        "platform": {"architecture": "amd64", "os": "linux"},
    }
    layout.write(out, {"schemaVersion": 2, "mediaType": MEDIA_TYPE + "index.v1+json", "manifests": [of_manifest]})
    print(f"{out}: {name}:{version} {of_manifest['digest']}, {out.stat().st_size >> 10} KiB")


main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()), [Path(folder) for folder in sys.argv[3:]])
