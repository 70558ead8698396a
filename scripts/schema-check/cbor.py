"""CBOR, as much of it as JSON values and bytes need."""

import struct


def head(kind, number):
    for code, size, form in ((24, 1 << 8, ">B"), (25, 1 << 16, ">H"), (26, 1 << 32, ">I"), (27, 1 << 64, ">Q")):
        if number < 24:
            return bytes([kind << 5 | number])
        if number < size:
            return bytes([kind << 5 | code]) + struct.pack(form, number)
    raise ValueError(number)


def encoded(value):
    if value is None or isinstance(value, bool):
        return bytes([{None: 0xF6, True: 0xF5, False: 0xF4}[value]])
    if isinstance(value, int) and -(1 << 64) <= value < 1 << 64:
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, (int, float)):
        return b"\xfb" + struct.pack(">d", value)
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        return head(3, len(text)) + text
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(encoded(item) for item in value)
    if isinstance(value, dict):
        return head(5, len(value)) + b"".join(encoded(key) + encoded(item) for key, item in value.items())
    return head(2, len(value)) + bytes(value)
