"""Upload: delivers the finished dataset to every destination, verified, its manifest last.

At a destination a dataset is in a folder of its version, so that two contents never mix and a training run that
reads one version never sees another::

    <destination>/<name>/<version>/megatron/...  nanoset/...  numpy/...  webdataset/...  documents/...
    <destination>/<name>/<version>/dataset.json     written after all above was verified; then all is listed again
    <destination>/<name>/latest.json                {"version": ...}, written last, unless the run leaves it (runs.py)
    <destination>/<name>/latest                     in folders: a link to the version, for people

A file is skipped only if the destination holds one of the same sha256 and, where the store keeps a checksum of its own
(md5 parts of an ETag, crc32c), the local file matches it, too. Afterwards the folder is listed and compared:
missing, extra and different files fail the step before dataset.json appears. Index caches that Megatron's loader
left beside its prefixes do not count as extra: a version's content never changes, so they stay valid.

A Hub repository gets everything in one commit instead (hub_upload.py).

Content that the dataset holds twice (a `.ds` that is the `.bin` of another format) is sent once; the store duplicates
it: by a hard link in a folder, by a copy inside a bucket.
"""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.config import DatasetConfig, absolute, dataset_folder, version_folder
from corpusmill.engine.ledger import Outcome, OutputFile
from corpusmill.engine.runs import why_latest_stays
from corpusmill.engine.stage import Recount, Schedule, Shown, Stage, whole
from corpusmill.engine.work import EveryTime
from corpusmill.engine.work_folder.small import is_shared
from corpusmill.errors import CorpusmillError, VerificationError
from corpusmill.kernels import advance
from corpusmill.sources.copies import count_traffic
from corpusmill.storage import Store, Traffic, is_hub, is_local, open_store
from corpusmill.storage.hub import HubRepository, LocalFile
from corpusmill.storage.local import LocalStore, explained
from corpusmill.storage.retries import retried
from corpusmill.upload.stages.description import DATASET, LATEST
from corpusmill.upload.stages.hub_upload import commit_version
from corpusmill.upload.stages.manifest import UNIT, dataset_files, dataset_version, require_undamaged

if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.engine.running import RunnableBuild

THREADS = 4
log = logging.getLogger(__name__)

File = tuple[str, Path, str, int]
"""Name in the dataset, path, sha256, size in bytes."""


def destination_folder(build: Build, unit: str) -> str:
    """Where one destination keeps this version of the dataset."""
    folder = dataset_folder(absolute(build.config.destinations[int(unit)].path), build.config.name)
    return version_folder(folder, dataset_version(build))


def is_index_cache(name: str) -> bool:
    """Whether a file is what Megatron's loader keeps beside a prefix: `<prefix>/cache/GPTDataset_indices/...`."""
    return name.startswith("megatron/") and "/cache/" in name and "_indices/" in name


def _units(build: Build) -> list[str]:
    return [f"{number:05d}" for number in range(len(build.config.destinations))]


def _inputs(build: Build, _unit: str) -> list[tuple[str, str]]:
    return [*whole(build, "export", "writeback"), ("manifest", UNIT)]


def _settings(build: Build, unit: str) -> dict[str, Any]:
    return {"destination": build.config.destinations[int(unit)].path}


def _run(build: RunnableBuild, unit: str, folder: Path) -> Outcome:
    traffic = Traffic()
    deliver = _deliver_to_hub if is_hub(build.config.destinations[int(unit)].path) else _deliver_to_store
    sent, named = deliver(build, unit, traffic)
    files = dataset_files(build)
    listing = [{"name": name, "size_bytes": size, "sha256": sha256} for name, _, sha256, size in files]
    (folder / "uploaded.json").write_text(json.dumps(listing, indent=1, ensure_ascii=False) + "\n")
    size = sum(file[3] for file in files)
    # What was sent depends on the destination's previous state, so it is outside the receipt's digest.
    moved = {"files_sent": sent, "files_named": named}
    counts = {"files": len(files), "dataset_bytes": size, "bytes_read": size}
    return Outcome(counts=counts, traffic={**count_traffic(traffic), **moved})


def _deliver_to_store(build: RunnableBuild, unit: str, traffic: Traffic) -> tuple[int, int]:
    """(files sent, files named again) to a folder or a bucket."""
    if is_shared(build.work) or not is_local(destination_folder(build, unit)):
        require_undamaged(build)
        return _deliver(build, unit, traffic)
    try:
        return _deliver(build, unit, traffic)
    except (VerificationError, OSError):
        require_undamaged(build)  # if the local file is damaged, the step that wrote it must run again
        raise


def _deliver(build: RunnableBuild, unit: str, traffic: Traffic) -> tuple[int, int]:
    """Files that a folder receives are checked there by their sha256; all others are checked here."""
    destination = destination_folder(build, unit)
    endpoint_url = build.config.destinations[int(unit)].endpoint_url
    store = open_store(destination, endpoint_url=endpoint_url, traffic=traffic)
    _remove_unfinished(destination, endpoint_url, traffic)
    files = dataset_files(build)
    content = [file for file in files if file[0] != DATASET]
    with ThreadPoolExecutor(THREADS) as pool:
        there = _delivered_before(build, store, pool)
        once, again = _without_duplicates([file for file in content if file[0] not in there])
        handed_over = _handed_over(build)
        advance.begin(sum(file[3] for file in files))
        sent = []
        sending = pool.map(lambda file: _send(store, *file, hand_over=file[0] in handed_over), once)
        for file, was_sent in zip(once, sending, strict=True):
            sent.append(was_sent)
            advance.note(file[3])
        named = list(pool.map(lambda pair: _name_again(store, pair[0], *pair[1]), again))
    arrived = {file[0]: file[1] for file, was_sent in zip(once, sent, strict=True) if was_sent}
    linked = {file[0] for first, file in again if first in arrived and file[1].samefile(arrived[first])}
    require_undamaged(build, {file[0] for file in files} - arrived.keys() - linked)
    _require_same(store, {name: size for name, _, _, size in content})
    for file in files[-1:]:
        _send(store, *file)
    _require_same(store, {name: size for name, _, _, size in files})
    if not _latest_stays(build, destination.rpartition("/")[0]):
        _point_to_latest(destination, endpoint_url)
    return sum(sent), sum(named)


def _deliver_to_hub(build: RunnableBuild, unit: str, traffic: Traffic) -> tuple[int, int]:
    """(files sent, files named again) to a Hub repository: to its branch, or to a separate branch if latest stays."""
    repository = HubRepository(build.config.destinations[int(unit)].path, traffic=traffic)
    repository.prepare()
    version = dataset_version(build)
    branch = version if _latest_stays(build, repository.where) else repository.branch
    head = repository.revisions().get(branch)
    with ThreadPoolExecutor(THREADS) as pool:
        _delivered_before(build, repository.at(head) if head else None, pool)
    require_undamaged(build)
    files = [LocalFile(*file) for file in dataset_files(build)]
    name = build.config.name

    def once() -> tuple[int, int]:
        return commit_version(repository, files, name=name, version=version, branch=branch)

    return retried(once, where=repository.where, traffic=traffic)


def _latest_stays(build: Build, where: str) -> bool:
    """Whether this run leaves `latest` unchanged; logs the reason."""
    stays = why_latest_stays(build.plan_receipt)
    if stays:
        log.warning("latest does not move at %s: %s", where, stays)
    return bool(stays)


def _remove_unfinished(destination: str, endpoint_url: str | None, traffic: Traffic) -> None:
    """Remove the invisible remains of killed uploads of other versions, which cost storage.

    This version's own are completed by its upload, file by file. A running upload of another version restarts its
    file. Failing to remove them does not stop the delivery.
    """
    parent, _, version = destination.rpartition("/")
    try:
        removed = open_store(parent, endpoint_url=endpoint_url, traffic=traffic).remove_unfinished(keep=f"{version}/")
    except CorpusmillError as error:
        log.warning("remains of killed uploads in %s are kept: %s", parent, error)
        return
    if removed:
        log.info("removed %d unfinished uploads from %s", removed, parent)


def _delivered_before(build: RunnableBuild, store: Store | None, pool: ThreadPoolExecutor) -> set[str]:
    """The files that were reclaimed because the destination has them; if it lacks one, its step runs again."""
    names: set[str] = set()
    for unit in build.units("export"):
        receipt = build.receipt("export", unit)
        freed = [path for path in receipt.outputs if path.name in receipt.reclaimed]
        if not freed or (store and all(pool.map(partial(_is_there, store), freed))):
            names |= {path.name for path in freed}
        else:
            build.make_whole("export", unit)
    return names


def hands_over(config: DatasetConfig) -> bool:
    """Whether the destination takes over the exports' files instead of copying them; they are then reclaimed."""
    return config.reclaim == "eager" and len(config.destinations) == 1


def _handed_over(build: Build) -> set[str]:
    receipts = build.receipts("export") if hands_over(build.config) else []
    return {output.name for receipt in receipts for output in receipt.outputs}


def _is_there(store: Store, output: OutputFile) -> bool:
    there = store.stat(output.name)
    return there is not None and there.size_bytes == output.size_bytes and store.digest(output.name) == output.sha256


def _send(store: Store, name: str, path: Path, sha256: str, _size_bytes: int, *, hand_over: bool = False) -> bool:
    """Send a file unless the destination holds the same bytes, by its own checksum too; returns whether it was sent."""
    if store.holds(name, path, sha256):
        return False
    if hand_over and isinstance(store, LocalStore):
        store.take_over(path, name, sha256)
    else:
        store.receive(path, name, sha256)
    return True


def _without_duplicates(files: list[File]) -> tuple[list[File], list[tuple[str, File]]]:
    """(files of which no earlier one has the content, the others, each with the name of the first that has it)."""
    first: dict[str, str] = {}
    once, again = [], []
    for file in files:
        name, _, sha256, size_bytes = file
        if size_bytes and first.setdefault(sha256, name) != name:
            again.append((first[sha256], file))
        else:
            once.append(file)
    return once, again


def _name_again(store: Store, first_name: str, name: str, path: Path, sha256: str, size_bytes: int) -> bool:
    """Give content at the destination a second name; returns whether that was necessary."""
    if _one_file(store, first_name, name) or store.holds(name, path, sha256):
        return False
    store.copy(first_name, name)
    if _one_file(store, first_name, name) or store.holds(name, path, sha256):
        return True
    return _send(store, name, path, sha256, size_bytes)


def _one_file(store: Store, name: str, other: str) -> bool:
    """Whether two names of a folder are links to one file, so that what was compared under one holds for the other."""
    first, second = Path(store.folder, name), Path(store.folder, other)
    return is_local(store.folder) and second.is_file() and first.samefile(second)


def require_delivered(build: Build, folder: str, endpoint_url: str | None) -> None:
    """VerificationError unless a destination lists exactly the files of the dataset, with their sizes."""
    _require_same(
        open_store(folder, endpoint_url=endpoint_url), {name: size for name, _, _, size in dataset_files(build)}
    )


def _require_same(store: Store, expected: dict[str, int]) -> None:
    """List the destination and compare names and sizes. A dataset.json that is not expected yet is an earlier run's.

    Retried, because another upload of this version may be running.
    """

    def listed() -> dict[str, int]:
        files = (file for file in store.iter_files() if not is_index_cache(file.name))
        return {file.name: file.size_bytes for file in files if file.name != DATASET or DATASET in expected}

    got = retried(listed, where=store.folder, traffic=store.traffic)
    wrong = (
        *(("missing", name) for name in sorted(expected.keys() - got.keys())),
        *(("extra", name) for name in sorted(got.keys() - expected.keys())),
        *(("different", name) for name in sorted(expected) if got.get(name, expected[name]) != expected[name]),
    )
    if wrong:
        raise VerificationError(
            "destination.delivery_differs: the destination does not hold exactly what was sent",
            where=store.folder,
            details=wrong[:20],
            expected=f"{len(expected)} files",
            got=f"{len(got)} files, {len(wrong)} of them missing, extra or different",
            next_step="remove the extra files, then run again",
        )


def _point_to_latest(destination: str, endpoint_url: str | None) -> None:
    parent, _, version = destination.rpartition("/")
    pointer = json.dumps({"version": version}) + "\n"
    open_store(parent, endpoint_url=endpoint_url).receive_bytes(pointer.encode(), LATEST)
    if is_local(destination):
        link, temporary = Path(parent) / "latest", Path(parent) / ".latest"
        with explained(link):
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(version)
            temporary.replace(link)


def _recount(_build: Build, _unit: str, folder: Path) -> Recount:
    files = json.loads((folder / "uploaded.json").read_bytes())
    size = sum(file["size_bytes"] for file in files)
    return Recount({"files": len(files), "dataset_bytes": size, "bytes_read": size}, complete=True)


STAGE = Stage(
    "upload",
    version=2,
    after=("manifest",),
    units=_units,
    work=EveryTime(_inputs, _settings, _run),
    recount=_recount,
    schedule=Schedule(stores=True),
    shown=Shown(unit_word="destination"),
)
