"""Proof of a NATS user with an nkey (Ed25519), by the openssl program.

A seed is base32 of two bytes of prefix, the secret and a checksum; a public key of one byte of prefix, the key and a checksum.
"""

import base64
import binascii
import subprocess
import tempfile

USER = bytes([20 << 3])
PKCS8 = bytes.fromhex("302e020100300506032b657004220420")


def proof(seed, nonce):
    """What CONNECT says for the user with this seed: its public key, and its signature of the server's nonce."""
    secret = base64.b32decode(seed + "=" * (-len(seed) % 8))[2:34]
    with tempfile.NamedTemporaryFile() as key, tempfile.NamedTemporaryFile() as signed:
        key.write(PKCS8 + secret)
        key.flush()
        signed.write(nonce.encode())
        signed.flush()
        ours = ["-inkey", key.name, "-keyform", "DER"]
        signature = openssl("pkeyutl", "-sign", "-rawin", "-in", signed.name, *ours)
        public = openssl("pkey", "-in", key.name, "-inform", "DER", "-pubout", "-outform", "DER")[-32:]
    checked = USER + public + binascii.crc_hqx(USER + public, 0).to_bytes(2, "little")
    return {
        "nkey": base64.b32encode(checked).decode().rstrip("="),
        "sig": base64.urlsafe_b64encode(signature).decode().rstrip("="),
    }


def openssl(*arguments):
    return subprocess.run(["openssl", *arguments], check=True, stdout=subprocess.PIPE).stdout
