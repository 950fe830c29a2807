"""A dataset's description: `dataset.json`, `SHA256SUMS` and `exp_data.json`, from receipts and from each other; and the
latest version at a destination.

The manifest writes them (manifest.py); verify recreates them from the delivered files. In a folder or a bucket
latest.json names the latest version; on the Hub it is the content of the branch's last commit.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from corpusmill.config import dataset_folder, named_version, version_folder
from corpusmill.engine.ledger import Receipt
from corpusmill.errors import CorruptDataError, SourceError
from corpusmill.export.formats import FORMATS
from corpusmill.kernels.content import NOTHING, ContentSum
from corpusmill.lazy import lazily
from corpusmill.storage import is_hub, open_store

with lazily:
    from corpusmill.export import companions


DATASET = "dataset.json"
SUMS = "SHA256SUMS"
VERSION_DIGITS = 12
VERSION = re.compile(rf"[0-9a-f]{{{VERSION_DIGITS}}}")
HELD = ("records", "slots", "content")  # what dataset.json states of an export's file


def version_of(receipt: Receipt) -> str:
    """The dataset's version from a manifest's receipt: the first digits of dataset.json's sha256."""
    digests = [output.sha256 for output in receipt.outputs if output.name == DATASET]
    if len(digests) != 1:
        raise CorruptDataError(
            "dataset.version_unnamed: a manifest's receipt does not name the dataset's version",
            where=f"{receipt.stage} {receipt.unit}",
            expected=f"{DATASET} once among its outputs",
            got=f"{len(digests)} times",
            next_step="remove the manifest's folder and build again",
        )
    return digests[0][:VERSION_DIGITS]


def described(text: bytes, folder: str) -> dict[str, Any]:
    """The content of the dataset.json of a finished dataset, in the folder or at the address of a version.

    CorruptDataError if it is damaged, or of another version than the folder's name says.
    """
    version = hashlib.sha256(text).hexdigest()[:VERSION_DIGITS]
    named = named_version(folder)
    if not _is_description(text) or (VERSION.fullmatch(named) and named != version):
        raise CorruptDataError(
            "dataset.description_changed: a finished dataset's description is not the one that was delivered",
            where=f"{folder}/{DATASET}",
            expected="the JSON whose sha256 begins with the version",
            got=f"sha256 {version}..." if text else "nothing",
            next_step="corpusmill repair restores it from another copy; or name another version",
        )
    content: dict[str, Any] = json.loads(text)
    return content


def _is_description(text: bytes) -> bool:
    try:
        content = json.loads(text)
        files = [file["name"] + file["sha256"] for file in content["files"] if file["size_bytes"] >= 0]
        named = content["name"] + "".join(files) + content["vocabulary"]["dtype"]
        return bool(named and content["vocabulary"].keys() | content["formats"].keys())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False


def listing(receipt: Receipt) -> list[dict[str, str | int]]:
    """Name, size and sha256 of every file that a step delivers, as `dataset.json` lists them."""
    return [
        {"name": output.name, "size_bytes": output.size_bytes, "sha256": output.sha256} for output in receipt.outputs
    ]


def held_by_file(exported: Iterable[Receipt]) -> dict[str, dict[str, Any]]:
    """Name of each exported file of tokens -> what dataset.json states of it, from the export units' receipts."""
    return {
        _token_file(detail["name"]): {key: detail[key] for key in HELD if key in detail}
        for receipt in exported
        for detail in receipt.details["files"]
    }


def _token_file(output: str) -> str:
    """The file that holds the tokens of an output of several files, `<format>/<name>`."""
    return output + FORMATS[output.partition("/")[0]].data_suffix


def format_totals(exported: list[Receipt], name: str) -> dict[str, int]:
    """The number of outputs of one format and their totals, from the receipts of the export units."""
    files = [
        detail for receipt in exported for detail in receipt.details["files"] if detail["name"].startswith(f"{name}/")
    ]
    totals = Counter({"outputs": len(files)})
    for file in files:
        totals.update({key: count for key, count in file.items() if isinstance(count, int)})
    return dict(totals)


def content_by_cell(exported: Iterable[Receipt], name: str) -> dict[int, ContentSum]:
    """The content of each cell in the files of one format, from the receipts of the export units."""
    totals: dict[int, ContentSum] = {}
    for receipt in exported:
        for file in receipt.details["files"]:
            if file["name"].startswith(f"{name}/"):
                for cell, content in file["cells"]:
                    totals[cell] = totals.get(cell, NOTHING) + ContentSum.parse(content)
    return totals


def reference_text(description: dict[str, Any], reference: dict[str, Any], version: str) -> str:
    """One `exp_data` file, derived from dataset.json's content; paths are as configured, not absolute."""
    folder = dataset_folder(reference["destination"], description["name"])
    url = f"{version_folder(folder, version)}/webdataset/"
    manifest = f"webdataset/{companions.MANIFEST}"
    sizes = {str(file["name"]): int(file["size_bytes"]) for file in description["files"]}
    tars = [size for name, size in sizes.items() if name.startswith("webdataset/") and name.endswith(".tar")]
    content = companions.exp_data(
        name=description["name"],
        sources=reference["sources"],
        num_tokens=description["formats"]["webdataset"]["slots"],
        size_bytes=sizes[manifest] + sum(tars),
        dataset_url=url,
        manifest_url=f"{url}{companions.MANIFEST}",
        tokenizer=description["vocabulary"]["name"],
    )
    return json.dumps(content, indent=4, ensure_ascii=False) + "\n"


def sums_text(digests: dict[str, str]) -> str:
    """`SHA256SUMS` of the dataset: of all other files name -> sha256, in order of name."""
    return "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(digests.items()))


LATEST = "latest.json"


def latest_version(folder: str, *, endpoint_url: str | None = None) -> str | None:
    """The latest version in a folder of all; None if nothing was delivered there. SourceError for a malformed
    latest.json.
    """
    store = open_store(folder, endpoint_url=endpoint_url)
    name = DATASET if is_hub(folder) else LATEST
    if store.stat(name) is None:
        return None
    with store.open(name) as file:
        text = file.read()
    if is_hub(folder):
        return hashlib.sha256(text).hexdigest()[:VERSION_DIGITS]
    try:
        if VERSION.fullmatch(version := json.loads(text)["version"]):
            return str(version)
        got = "something else"
    except (ValueError, LookupError, TypeError) as error:
        got = type(error).__name__
    raise SourceError(
        "destination.latest_unknown: the latest version is unknown",
        where=f"{store.folder}/{LATEST}",
        expected=f'{{"version": ...}}, {VERSION_DIGITS} hex digits',
        got=got,
        next_step="upload the dataset again, which writes it; to read one version, name its folder",
    )
