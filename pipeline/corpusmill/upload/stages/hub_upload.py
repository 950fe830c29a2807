"""Delivers a version of the dataset to a Hub repository: one commit, checked against the sent files, then a tag.

Existing files are not sent again. Only files of this dataset are replaced or removed: those that SHA256SUMS beside its
dataset.json lists, and the card. Every attempt starts from the repository's current state, so a repetition after a lost
answer finds nothing to do.
"""

from __future__ import annotations

import json

from corpusmill.errors import PermanentError, VerificationError
from corpusmill.report.card import CROISSANT, README
from corpusmill.storage import StoredFile, matches_file
from corpusmill.storage.hub import HubRepository, HubStore, LocalFile, content_of
from corpusmill.upload.stages.description import DATASET, SUMS


def commit_version(
    repository: HubRepository, files: list[LocalFile], *, name: str, version: str, branch: str
) -> tuple[int, int]:
    """Make `files` the only content of `branch`, tagged `version`; returns (files sent, files linked again).

    A branch named like the version starts from the repository's default branch. PermanentError for files of other
    origin, VerificationError if the Hub holds other content than was sent, or has other content under this version.
    """
    revisions = repository.revisions()
    if branch not in revisions:
        repository.add_branch(branch, revisions[repository.branch])
        revisions = repository.revisions()
    head = revisions[branch]
    held = repository.files(head)
    wrong = differences(repository.at(head), held, files)
    new = [file for file in files if file.name in wrong]
    if wrong:
        if branch != version:
            _require_own(repository.at(head), held, name)
        removed = wrong.keys() - {file.name for file in files}
        head = repository.commit(new, removed, branch=branch, parent=head, title=f"{name} {version}")
        _require_same(repository, head, files)
    if version not in revisions:
        repository.add_tag(version, head)
    if branch != version and (named := repository.revisions()[version]) != head:
        _require_same(repository, named, files)
    once = len({file.sha256 for file in new})
    return once, len(new) - once


def differences(store: HubStore, held: dict[str, StoredFile], files: list[LocalFile]) -> dict[str, str]:
    """Name -> missing, extra or different: a commit compared with the expected files."""
    wanted = {file.name: file for file in files}
    wrong = dict.fromkeys(wanted.keys() - held.keys(), "missing")
    wrong |= dict.fromkeys(held.keys() - wanted.keys(), "extra")
    both = sorted(wanted.keys() & held.keys())
    return wrong | {name: "different" for name in both if not _is_same(store, held[name], wanted[name])}


def _is_same(store: HubStore, there: StoredFile, file: LocalFile) -> bool:
    """By the Hub's own hash; a file that was reclaimed, and of which the Hub has no sha256, is read."""
    if there.size_bytes != file.size_bytes:
        return False
    content = content_of(there)
    if content.kind == "sha256":
        return content.value == file.sha256
    return matches_file(file.path, (content,)) if file.path.exists() else store.digest(file.name) == file.sha256


def _require_same(repository: HubRepository, commit: str, files: list[LocalFile]) -> None:
    store = repository.at(commit)
    if wrong := differences(store, repository.files(commit), files):
        raise VerificationError(
            "hub.delivery_differs: a hub does not hold exactly what was sent",
            where=store.folder,
            expected=f"{len(files)} files",
            got=f"{len(wrong)} of them missing, extra or different",
            details=tuple((what, name) for name, what in sorted(wrong.items())[:20]),
            next_step="check who else writes there; remove a tag or branch of this version with other content",
        )


def _require_own(store: HubStore, held: dict[str, StoredFile], name: str) -> None:
    """PermanentError for files that no earlier delivery of this dataset wrote."""
    if others := sorted(held.keys() - _own_names(store, held, name)):
        raise PermanentError(
            "hub.files_of_others: a hub's repository holds files that are not this dataset's",
            where=store.folder,
            expected=f"none, or an earlier version of {name}",
            got=f"{len(others)} other files",
            details=tuple(("file", other) for other in others[:20]),
            next_step="deliver to a separate repository or another branch, or remove these files first",
        )


def _own_names(store: HubStore, held: dict[str, StoredFile], name: str) -> set[str]:
    if not {DATASET, SUMS} <= held.keys():
        return set()
    with store.open(DATASET) as described, store.open(SUMS) as sums:
        try:
            if json.loads(described.read())["name"] != name:
                return set()
            listed = {line.partition("  ")[2] for line in sums.read().decode().splitlines()}
        except (ValueError, LookupError, TypeError, RecursionError):
            return set()
    return {SUMS, README, CROISSANT, *listed}
