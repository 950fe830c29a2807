"""Bytes in folders and buckets, behind one small seam. Knows no documents.

In:  locations: a local path, or ``s3://bucket/key``.
Out: listings in a stable order, readable streams, verified copies.

A `Store` can list the files below a folder, stat one, open one for reading, and receive one. Folder semantics are
exact: ``s3://bucket/data`` is the object ``data`` or what lies below ``data/``, never ``data2``.

Invariants: a received file is whole or absent (temporary name and rename, or one S3 object); its bytes were compared by
sha256 on the far side; a name never leaves its folder (no ``..``, no absolute name, no NUL). Credentials come from each
SDK's own chain and are written nowhere.

Price: listings hold one small object per file; transfers stream in pieces of 8 MiB.
"""

from pipeline.storage.listing import list_sources, natural_order
from pipeline.storage.locations import StoredFile, safe_relative_name
from pipeline.storage.stores import Store, is_local, open_location, open_store
from pipeline.storage.verified import open_verified

__all__ = [
    "Store",
    "StoredFile",
    "is_local",
    "list_sources",
    "natural_order",
    "open_location",
    "open_store",
    "open_verified",
    "safe_relative_name",
]
