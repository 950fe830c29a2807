"""Paths of a dataset's versions at a destination.

    folder, s3://, gs://               <destination>/<name>/<version>/...
    hf://datasets/owner/name@branch    hf://datasets/owner/name@<version>/...

A repository of a hub holds one dataset: its versions are revisions, so no name of one stands in the path.
"""

from __future__ import annotations

from corpusmill.addresses import is_hub


def dataset_folder(destination: str, name: str) -> str:
    """Where a destination keeps all versions of a dataset."""
    place = destination.rstrip("/")
    return place if is_hub(place) else f"{place}/{name}"


def version_folder(folder: str, version: str) -> str:
    """Where one version lies, in a folder of all."""
    return f"{folder.partition('@')[0]}@{version}" if is_hub(folder) else f"{folder}/{version}"


def named_version(folder: str) -> str:
    """What stands where the version stands in a version's folder."""
    return folder.rstrip("/").rpartition("@" if is_hub(folder) else "/")[2]
