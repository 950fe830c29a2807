"""Paths of a dataset's versions at a destination.

    folder, s3://, gs://               <destination>/<name>/<version>/...
    hf://datasets/owner/name@branch    hf://datasets/owner/name@<version>/...

A Hub repository holds one dataset, whose versions are revisions, so its path does not contain the dataset's name.
"""

from __future__ import annotations

from corpusmill.storage.locations import is_hub


def dataset_folder(destination: str, name: str) -> str:
    """Where a destination keeps all versions of a dataset."""
    place = destination.rstrip("/")
    return place if is_hub(place) else f"{place}/{name}"


def version_folder(folder: str, version: str) -> str:
    """The folder of one version, below the folder of all."""
    return f"{folder.partition('@')[0]}@{version}" if is_hub(folder) else f"{folder}/{version}"


def named_version(folder: str) -> str:
    """The part of a version's folder that is its version, or would be if `folder` is none."""
    return folder.rstrip("/").rpartition("@" if is_hub(folder) else "/")[2]
