"""What `dedup.against` names: the files of each reference, and the shards that index them.

A finished dataset is named by `<destination>/<name>/<version>`, `.../latest` or `<destination>/<name>`; its files are
the documents that dataset.json lists. Anything else is a source, as in `source.paths`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from corpusmill.builds.overlap import require_no_overlap, require_none_written, written_places
from corpusmill.config import DatasetConfig, ReferenceConfig, absolute, named_version, version_folder
from corpusmill.dedup.stages.writeback import FOLDER as DOCUMENTS
from corpusmill.documents.compression import NAMED_ENDINGS, SOURCE_ENDINGS
from corpusmill.engine.plan import Reference, plan_files
from corpusmill.errors import ConfigError, CorruptDataError, SourceError
from corpusmill.fingerprint import fingerprint
from corpusmill.storage import StoredFile, is_hub, is_local, list_sources, open_store
from corpusmill.storage.listing import is_glob
from corpusmill.storage.locations import file_keys
from corpusmill.upload.stages.description import DATASET, LATEST, VERSION, VERSION_DIGITS, described, latest_version

KEY_DIGITS = 12


def plan_references(config: DatasetConfig, sources: list[StoredFile]) -> list[Reference] | None:
    """The references of a configuration with the source files `sources`; None if it has none.

    ConfigError for text that is in two of them, or in the dataset, or that the build writes; SourceError for a dataset
    without documents.
    """
    references = []
    read = dict.fromkeys(file_keys(file.location for file in sources), "source.paths")
    for reference in config.dedup.against or ():
        folder, version = _dataset_folder(reference), ""
        if folder:
            files, version = _documents(folder, reference)
        else:
            files = _sources(reference)
        _require_not_written(config, absolute(reference.path), folder, files)
        for file, real in zip(files, file_keys(file.location for file in files), strict=True):
            if real in read:
                raise _read_twice(file, reference, read[real])
            read[real] = f"dedup.against: {reference.path}"
        plan = plan_files(files, reference.shard_bytes, reference.endpoint)
        key = fingerprint({"path": absolute(reference.path), "text_field": reference.text_field})[:KEY_DIGITS]
        references.append(Reference(path=reference.path, key=key, shards=plan.shards, version=version))
    return references or None


def _dataset_folder(reference: ReferenceConfig) -> str:
    """The version folder of the finished dataset that a reference names; "" if it names something else."""
    path = absolute(reference.path).rstrip("/")
    if is_glob(path) or (is_local(path) and not Path(path).is_dir()):
        return ""
    folder = str(Path(path).resolve()) if is_local(path) else path
    if not is_hub(folder) and not is_local(folder) and folder.endswith("/latest"):
        folder = folder.removesuffix("/latest")  # a link in a local folder; in a bucket, latest.json names the version
    store = open_store(folder, endpoint_url=reference.endpoint)
    if not VERSION.fullmatch(named_version(folder)) and (is_hub(folder) or store.stat(DATASET) is None):
        if store.stat(DATASET if is_hub(folder) else LATEST) is None:
            return ""
        latest = latest_version(folder, endpoint_url=reference.endpoint)
        folder = version_folder(folder, latest) if latest else folder
        store = open_store(folder, endpoint_url=reference.endpoint)
    return "" if store.stat(DATASET) is None else folder


def _documents(folder: str, reference: ReferenceConfig) -> tuple[list[StoredFile], str]:
    """(the delivered documents of a finished dataset, as dataset.json lists them; its version)."""
    with open_store(folder, endpoint_url=reference.endpoint).open(DATASET) as stream:
        text = stream.read()
    listed = {str(file["name"]): int(file["size_bytes"]) for file in described(text, folder)["files"]}
    documents = {name: size for name, size in listed.items() if name.startswith(f"{DOCUMENTS}/")}
    if not documents:
        raise SourceError(
            "reference.no_documents: a finished dataset has no documents to compare with",
            where=f"dedup.against: {reference.path}",
            expected=f"{DOCUMENTS}/ in {folder}: a build with dedup.mode remove or annotate, and dedup.writeback: true",
            got=", ".join(sorted({name.partition("/")[0] for name in listed if "/" in name})) or "no files",
            next_step="build it with dedup.mode remove or annotate, and dedup.writeback: true; or name its sources",
        )
    below = open_store(f"{folder}/{DOCUMENTS}", endpoint_url=reference.endpoint).iter_files()
    files = {f"{DOCUMENTS}/{file.name}": file for file in below}
    stored = {name: file.size_bytes for name, file in files.items()}
    if stored != documents:
        wrong = sorted(name for name in stored.keys() | documents.keys() if stored.get(name) != documents.get(name))
        raise CorruptDataError(
            "reference.documents_changed: the documents of a finished dataset are not those that were delivered",
            where=f"{folder}/{wrong[0]}",
            expected=f"{documents[wrong[0]]:,} bytes" if wrong[0] in documents else "no such file",
            got=f"{stored[wrong[0]]:,} bytes" if wrong[0] in stored else "nothing",
            next_step="corpusmill repair restores it from another copy; or name another version",
        )
    return [files[name] for name in documents], hashlib.sha256(text).hexdigest()[:VERSION_DIGITS]


def _sources(reference: ReferenceConfig) -> list[StoredFile]:
    return list_sources([absolute(reference.path)], SOURCE_ENDINGS, reference.endpoint, named=tuple(NAMED_ENDINGS))


def _require_not_written(config: DatasetConfig, path: str, dataset: str, files: Iterable[StoredFile]) -> None:
    """ConfigError if the build writes into a reference, unless it names a version of the dataset."""
    if dataset and VERSION.fullmatch(named_version(path)):
        return
    places = written_places(config)
    require_no_overlap([path], places)
    require_none_written(files, places)


def _read_twice(file: StoredFile, reference: ReferenceConfig, other: str) -> ConfigError:
    return ConfigError(
        "reference.file_in_dataset: a file counts twice: all of its text would precede itself"
        if other == "source.paths"
        else "reference.file_twice: a file is in two references",
        where=f"dedup.against: {reference.path}",
        expected="a file that is in no other reference and not in the dataset",
        got=f"{file.location}, which is in {other}, too",
        next_step="leave it out of one of them",
    )
