"""The one tar format that Corpusmill writes: GNU format, regular files, mode 0644, owner, group and time zero.

    512 B header | body | zeros to the next 512 | ... | zeros: two blocks at least, to the next 10,240

    header   0 name, 100 | 100 mode "0000644\\0" | 108 uid "0000000\\0" | 116 gid | 124 size, 11 octal digits, \\0
           136 mtime "00000000000\\0" | 148 checksum, 6 octal digits, \\0, space | 156 "0" | 157 link name, 100
           257 "ustar  \\0" | 265 owner, group, device, prefix: 247 zero bytes

Source: GNU tar, "Basic Tar Format"; equal to Python's tarfile.GNU_FORMAT byte for byte (tests), 2 microseconds a header
instead of 27.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from corpusmill.errors import PermanentError
from corpusmill.export.files import BUFFER_BYTES, fault, file_bytes

BLOCK_BYTES = 512
RECORD_BYTES = 20 * BLOCK_BYTES  # GNU tar's unit of writing: an archive is a multiple of it
LONGEST_NAME_BYTES = 100
LARGEST_BODY_BYTES = 8**11 - 1

_BEFORE_SIZE = b"0000644\0" + b"0000000\0" * 2
_TIME = b"00000000000\0"
_AFTER_CHECKSUM = b"0" + bytes(100) + b"ustar  \0" + bytes(247)
# The checksum is the sum of the header's bytes with its own eight counted as spaces; all but name and size is fixed.
_FIXED_SUM = sum(_BEFORE_SIZE) + sum(_TIME) + 8 * ord(" ") + sum(_AFTER_CHECKSUM)


def member_header(name: bytes, body_bytes: int) -> bytes:
    """The 512-byte header of a member. PermanentError for a name or a body GNU tar needs an extra header for."""
    if not 0 < len(name) <= LONGEST_NAME_BYTES or b"\0" in name or body_bytes > LARGEST_BODY_BYTES:
        raise PermanentError(
            "tar.member_does_not_fit: a tar member does not fit into a plain header",
            where=name,
            expected=f"a name of 1 to {LONGEST_NAME_BYTES} bytes, a body of at most {LARGEST_BODY_BYTES}",
            got=f"{len(name)} and {body_bytes} bytes",
        )
    size = b"%011o\0" % body_bytes
    checksum = b"%06o\0 " % (_FIXED_SUM + sum(name) + sum(size))
    return b"".join((name.ljust(100, b"\0"), _BEFORE_SIZE, size, _TIME, checksum, _AFTER_CHECKSUM))


def padding(body_bytes: int) -> bytes:
    """Zeros from the end of a body to the next block."""
    return bytes(-body_bytes % BLOCK_BYTES)


def end_of_archive(members_bytes: int) -> bytes:
    """Two blocks of zeros behind `members_bytes` of members, and more up to a whole record."""
    return bytes(2 * BLOCK_BYTES + -(members_bytes + 2 * BLOCK_BYTES) % RECORD_BYTES)


def read_members(path: Path) -> Iterator[tuple[str, int, bytes]]:
    """Name, byte offset of the body, and body of every member, in order; memory is one member.

    As strict as this file's writer: VerificationError, naming the first wrong byte, for a header that differs in any
    byte from `member_header`, a truncated archive, and anything but zeros in paddings and behind the last member.
    """
    archive_bytes = file_bytes(path)
    at = 0
    with path.open("rb", buffering=BUFFER_BYTES) as file:
        while any(header := file.read(BLOCK_BYTES)):
            name, body_bytes = _parse_header(path, at, header)
            body = file.read(body_bytes)
            filling = file.read(-body_bytes % BLOCK_BYTES)
            if len(body) + len(filling) < body_bytes + -body_bytes % BLOCK_BYTES:
                raise fault(
                    f"tar.member_truncated: the archive is truncated within {name}",
                    path,
                    archive_bytes,
                    expected=f"{body_bytes} bytes of body from byte {at + BLOCK_BYTES} on",
                    got=len(body),
                )
            _verify_zeros(path, at + BLOCK_BYTES + body_bytes, filling)
            yield name, at + BLOCK_BYTES, body
            at += BLOCK_BYTES + body_bytes + len(filling)
        expected_bytes = at + len(end_of_archive(at))
        if archive_bytes != expected_bytes:
            what = "is truncated" if archive_bytes < expected_bytes else "has bytes after its end"
            raise fault(
                f"tar.archive_size: the archive {what}",
                path,
                min(archive_bytes, expected_bytes),
                expected=f"{expected_bytes} bytes",
                got=f"{archive_bytes} bytes",
            )
        _verify_zeros(path, at, header + file.read())


def _parse_header(path: Path, at: int, header: bytes) -> tuple[str, int]:
    """Name and body size of the header at byte `at`, which must equal their `member_header`."""
    if len(header) < BLOCK_BYTES:
        raise fault(
            "tar.header_truncated: the archive is truncated within a header",
            path,
            at + len(header),
            expected=512,
            got=len(header),
        )
    name, size = header[:100].partition(b"\0")[0], header[124:135]
    octal = size.isdigit() and not set(size) & set(b"89")
    expected = member_header(name, int(size, 8)) if octal and name else b""
    if header != expected:
        wrong = next((byte for byte in range(len(expected)) if header[byte] != expected[byte]), 124 if name else 0)
        raise fault(
            "tar.header_differs: a tar header is not as written",
            path,
            at + wrong,
            expected=expected[wrong : wrong + 16] or "a name and an octal size",
            got=header[wrong : wrong + 16],
        )
    return name.decode("ascii", "backslashreplace"), int(size, 8)


def _verify_zeros(path: Path, at: int, filling: bytes) -> None:
    if any(filling):
        wrong = len(filling) - len(filling.lstrip(b"\0"))
        raise fault(
            "tar.padding_not_zero: padding of the archive is not zero", path, at + wrong, expected=0, got=filling[wrong]
        )
