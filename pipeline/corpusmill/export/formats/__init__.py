"""The training formats, a class each: what the program plans, writes, reads again and checks of it.

A format's options are a section of the configuration (config/exports.py), the bytes of its files are described and
written by the module of its name beside this folder. A new one is those three, and its class here.
"""

from __future__ import annotations

from corpusmill.export.formats.base import Format
from corpusmill.export.formats.documents import Megatron, Nanoset
from corpusmill.export.formats.numpy_shards import NumpyShards
from corpusmill.export.formats.olmo import Olmo
from corpusmill.export.formats.parquet import ParquetContexts, ParquetDocuments, ParquetText
from corpusmill.export.formats.webdataset import WebDataset

FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        WebDataset(),
        NumpyShards(),
        Megatron(),
        Nanoset(),
        Olmo(),
        ParquetDocuments(),
        ParquetContexts(),
        ParquetText(),
    )
}
