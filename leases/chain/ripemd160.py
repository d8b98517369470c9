"""RIPEMD-160, which addresses are made with and OpenSSL 3 usually no longer offers.

It runs a handful of times in a process (once for each key), so plain Python is fast enough.
"""

from __future__ import annotations

import struct

_MASK = 0xFFFFFFFF
_START = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0)
_LEFT_CONSTANTS = (0x00000000, 0x5A827999, 0x6ED9EBA1, 0x8F1BBCDC, 0xA953FD4E)
_RIGHT_CONSTANTS = (0x50A28BE6, 0x5C4DD124, 0x6D703EF3, 0x7A6D76E9, 0x00000000)
_LEFT_WORDS = (
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
    (7, 4, 13, 1, 10, 6, 15, 3, 12, 0, 9, 5, 2, 14, 11, 8),
    (3, 10, 14, 4, 9, 15, 8, 1, 2, 7, 0, 6, 13, 11, 5, 12),
    (1, 9, 11, 10, 0, 8, 12, 4, 13, 3, 7, 15, 14, 5, 6, 2),
    (4, 0, 5, 9, 7, 12, 2, 10, 14, 1, 3, 8, 11, 6, 15, 13),
)
_RIGHT_WORDS = (
    (5, 14, 7, 0, 9, 2, 11, 4, 13, 6, 15, 8, 1, 10, 3, 12),
    (6, 11, 3, 7, 0, 13, 5, 10, 14, 15, 8, 12, 4, 9, 1, 2),
    (15, 5, 1, 3, 7, 14, 6, 9, 11, 8, 12, 2, 10, 0, 4, 13),
    (8, 6, 4, 1, 3, 11, 15, 0, 5, 12, 2, 13, 9, 7, 10, 14),
    (12, 15, 10, 4, 1, 5, 8, 7, 6, 2, 13, 14, 0, 3, 9, 11),
)
_LEFT_SHIFTS = (
    (11, 14, 15, 12, 5, 8, 7, 9, 11, 13, 14, 15, 6, 7, 9, 8),
    (7, 6, 8, 13, 11, 9, 7, 15, 7, 12, 15, 9, 11, 7, 13, 12),
    (11, 13, 6, 7, 14, 9, 13, 15, 14, 8, 13, 6, 5, 12, 7, 5),
    (11, 12, 14, 15, 14, 15, 9, 8, 9, 14, 5, 6, 8, 6, 5, 12),
    (9, 15, 5, 11, 6, 8, 13, 12, 5, 12, 13, 14, 11, 8, 5, 6),
)
_RIGHT_SHIFTS = (
    (8, 9, 9, 11, 13, 15, 15, 5, 7, 7, 8, 11, 14, 14, 12, 6),
    (9, 13, 15, 7, 12, 8, 9, 11, 7, 7, 12, 7, 6, 15, 13, 11),
    (9, 7, 15, 11, 8, 6, 6, 14, 12, 13, 5, 14, 13, 13, 7, 5),
    (15, 5, 8, 11, 14, 14, 6, 14, 6, 9, 12, 9, 12, 5, 15, 8),
    (8, 5, 12, 9, 12, 5, 14, 6, 8, 13, 6, 5, 15, 13, 11, 11),
)


def ripemd160(data: bytes) -> bytes:
    """Return the 20-byte RIPEMD-160 digest of `data`."""
    padded = data + b"\x80" + b"\x00" * (-(len(data) + 9) % 64) + struct.pack("<Q", 8 * len(data))
    state: tuple[int, ...] = _START
    for start in range(0, len(padded), 64):
        state = _compress(state, struct.unpack("<16I", padded[start : start + 64]))
    return struct.pack("<5I", *state)


def _compress(state: tuple[int, ...], block: tuple[int, ...]) -> tuple[int, ...]:
    left, right = state, state
    for number in range(5):
        left = _round(left, block, number, _LEFT_WORDS[number], _LEFT_SHIFTS[number], _LEFT_CONSTANTS[number])
        right = _round(right, block, 4 - number, _RIGHT_WORDS[number], _RIGHT_SHIFTS[number], _RIGHT_CONSTANTS[number])
    return tuple((state[(i + 1) % 5] + left[(i + 2) % 5] + right[(i + 3) % 5]) & _MASK for i in range(5))


def _round(
    line: tuple[int, ...],
    block: tuple[int, ...],
    mix: int,
    words: tuple[int, ...],
    shifts: tuple[int, ...],
    constant: int,
) -> tuple[int, ...]:
    a, b, c, d, e = line
    for word, shift in zip(words, shifts, strict=True):
        turned = _rotate((a + _mix(mix, b, c, d) + block[word] + constant) & _MASK, shift)
        a, b, c, d, e = e, (turned + e) & _MASK, b, _rotate(c, 10), d
    return a, b, c, d, e


def _mix(number: int, x: int, y: int, z: int) -> int:
    if number == 0:
        return x ^ y ^ z
    if number == 1:
        return (x & y) | (~x & _MASK & z)
    if number == 2:
        return (x | (~y & _MASK)) ^ z
    if number == 3:
        return (x & z) | (y & ~z & _MASK)
    return x ^ (y | (~z & _MASK))


def _rotate(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & _MASK
