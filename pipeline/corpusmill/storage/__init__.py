"""Bytes in folders, buckets and on the Hub, behind one small interface that knows nothing of documents.

In:  locations: a local path, ``s3://bucket/key``, ``gs://bucket/key``, ``hf://datasets/owner/name@revision/path``.
Out: listings in a stable order, readable streams, verified copies.

A `Store` (stores.py) can list the files below a folder, stat one, read a range of one, receive one, copy and delete.
Folder semantics are exact: ``s3://bucket/data`` is the object ``data`` or what is below ``data/``, never ``data2``.

Invariants:
* a received file is complete or absent (temporary name and rename, or one object);
* every read has a single identity (ETag, generation, commit), and whole files match the store's own checksum;
* anything that no checksum of the store covers (a range, a page of a listing) is read twice, with the same result;
* every later pass over a local file is checked against its XXH3-128;
* a sent file has, at the destination, the md5 or crc32c of the local file and its sha256 as metadata;
* the Hub gets a whole dataset in one commit (hub.py), each file known there by its sha256 or git's sha1;
* every listing of folders here follows links by one rule, and no source file is read twice (local.py);
* a name never leaves its folder (no ``..``, no absolute name, no NUL);
* every request is retried by the one policy of retries.py, and counted.
Credentials come from each SDK's own chain and are never written.

Price: listings hold one small object per file; a transfer holds a few parts of 8 MiB, and digests once.
"""

from corpusmill.storage.checksums import Checksum, parse_checksum
from corpusmill.storage.listing import list_sources
from corpusmill.storage.locations import StoredFile, is_hub, require_identity, safe_relative_name
from corpusmill.storage.reading import Pieces, SeekableFile, matches_file, open_verified, pieces_checksum
from corpusmill.storage.retries import Traffic
from corpusmill.storage.stores import Store, is_local, open_location, open_store
from corpusmill.storage.transfers import Wanted, WindowedFile, digest_windows, fetch, open_once

__all__ = [
    "Checksum",
    "Pieces",
    "SeekableFile",
    "Store",
    "StoredFile",
    "Traffic",
    "Wanted",
    "WindowedFile",
    "digest_windows",
    "fetch",
    "is_hub",
    "is_local",
    "list_sources",
    "matches_file",
    "open_location",
    "open_once",
    "open_store",
    "open_verified",
    "parse_checksum",
    "pieces_checksum",
    "require_identity",
    "safe_relative_name",
]
