"""Before hours of work: can the build be planned, load its tokenizer, write its destinations, and is there room?

All checks run, and those that fail become one error. A bucket is tested by writing a few bytes beside the versions and
deleting them, a folder by its permissions. The room needed on each file system comes from the last estimate of these
sources and settings, or else from what measured builds took per byte of text (room.py), times the text that the files
hold, judged by their beginnings (sources/survey.py).
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.builds.room import (
    TOKENS_OF_A_BYTE,
    Moments,
    held_of_references,
    moments,
    render_disk,
    usually_held,
)
from corpusmill.config import DatasetConfig, DestinationConfig, absolute, dataset_folder
from corpusmill.config.epochs import shown_share
from corpusmill.engine.estimates import estimate_of
from corpusmill.engine.runs import DELIVERED
from corpusmill.engine.work_folder.small import is_shared, refresh
from corpusmill.errors import (
    ConfigError,
    CorpusmillError,
    PermanentError,
    StorageFullError,
    TokenizerError,
    TransientError,
)
from corpusmill.export.formats import FORMATS
from corpusmill.lazy import lazily
from corpusmill.report.figures import bytes_text
from corpusmill.shuffle.stages.budget import amounts_of
from corpusmill.storage import is_hub, is_local, open_store
from corpusmill.storage.hub import HubRepository
from corpusmill.storage.local import not_writable, require_writable_folder
from corpusmill.tokens.stages.tokenize import configured_tokenizer
from corpusmill.upload.stages.upload import hands_over

with lazily:
    from corpusmill.sources import survey
    from corpusmill.tokens import audit


if TYPE_CHECKING:
    from corpusmill.engine.build import Build
    from corpusmill.engine.plan import Plan
    from corpusmill.sources.survey import Texts
    from corpusmill.tokens.tokenizer import Tokenizer

log = logging.getLogger(__name__)

PROBE = ".corpusmill-may-write"


class Problems:
    """Errors of several checks, kept until all were made."""

    def __init__(self) -> None:
        self.errors: list[CorpusmillError] = []

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the block's error, unless an earlier check met the same one."""
        try:
            yield
        except CorpusmillError as error:
            if str(error) not in map(str, self.errors):
                self.errors.append(error)

    def raise_all(self) -> None:
        """Raise a single error unchanged; raise several as one error that lists them, transient if all of them are."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            number = len(self.errors)
            details = tuple((str(number), error) for number, error in enumerate(self.errors, 1))
            if all(isinstance(error, TransientError) for error in self.errors):
                raise TransientError(
                    f"preflight.unavailable: the build cannot start, for {number} reasons", details=details
                )
            raise PermanentError(f"preflight.refused: the build cannot start, for {number} reasons", details=details)


def ready_tokenizer(config: DatasetConfig) -> Tokenizer:
    """The tokenizer that a configuration names; TokenizerError unless it has the tokens that the exports need,
    ConfigError if an export cannot hold its ids, VerificationError unless it gives back the tricky strings, which takes
    a tenth of a second.
    """
    tokenizer = configured_tokenizer(config)
    exports = config.exports
    bos_settings = {
        "packing.bos": config.packing.bos and bool(exports.context_tokens()),
        "framing.bos": config.framing.bos and any(FORMATS[name].framed for name in exports.formats()),
    }
    if any(bos_settings.values()) and tokenizer.bos_id is None:
        raise TokenizerError(
            f"tokenizer.no_single_bos: the tokenizer {tokenizer.name} has no BOS token, or several that could be",
            where=", ".join(key for key, is_set in bos_settings.items() if is_set),
            next_step="set tokenizer.bos to the token, or leave bos out",
        )
    for name in exports.formats():
        FORMATS[name].refuse(exports, tokenizer.vocabulary_size)
    audit.audit_tricky(tokenizer)
    return tokenizer


def require_tokenizer(build: Build) -> None:
    """Raise as `ready_tokenizer` does, unless the plan has delivered, and so been audited."""
    if not refresh(build.plan_folder / DELIVERED):
        ready_tokenizer(build.config)


def require_writable(config: DatasetConfig, destination: DestinationConfig) -> None:
    """Raise the error that upload would end with if nothing can be written at a destination."""
    place = dataset_folder(absolute(destination.path), config.name)
    if is_local(place):
        _require_folder(Path(place))
        return
    if is_hub(place):
        _require_no_endpoint(destination)
        HubRepository(place).prepare()
        return
    store = open_store(place, endpoint_url=destination.endpoint_url)
    store.receive_bytes(b"may write\n", PROBE)
    with suppress(CorpusmillError):  # an account that may only add files can deliver, too
        store.delete(PROBE)


def _require_no_endpoint(destination: DestinationConfig) -> None:
    if destination.endpoint_url is not None:
        raise ConfigError(
            "config.hub_address: the address of a hub is not part of a configuration",
            where=destination.path,
            expected="no endpoint_url",
            next_step="set HF_ENDPOINT where the build runs",
        )


def _require_folder(folder: Path) -> None:
    require_writable_folder(folder)
    latest = folder / "latest"
    if latest.exists() and not latest.is_symlink():
        raise not_writable(latest, "something other than a link of this program")


def text_of_references(config: DatasetConfig, plan: Plan) -> int:
    """About how many bytes of text the planned references hold; see texts_of."""
    references = zip(config.dedup.against or (), plan.references or (), strict=plan.references is not None)
    return sum(
        text.size_bytes
        for reference, planned in references
        for text in survey.texts_of(
            planned.files(), reference.text_field or config.source.text_field, reference.endpoint
        )
    )


def needed_room(config: DatasetConfig, plan: Plan, work: Path) -> tuple[dict[str, Moments], str]:
    """(what a build will hold, see room.py; where these figures come from)."""
    references = text_of_references(config, plan)
    estimate = estimate_of(config, plan.files(), work)
    if estimate:
        sampled = [*estimate.held, *held_of_references(config, references)]
        return moments(sampled, handed_over=hands_over(config)), "the last estimate"
    text, shown = _text_of_sources(config, plan)
    held = usually_held(config, plan.source_bytes(), text.size_bytes, shown, references)
    return moments(
        held, handed_over=hands_over(config)
    ), f"about {bytes_text(text.size_bytes)} of text, as the files begin; corpusmill estimate gives more exact figures"


def warn_of_splits(config: DatasetConfig, plan: Plan, work: Path) -> None:
    """Log what of the exports will not be as asked, by the last estimate or the beginnings of the files."""
    if config.exports.numpy is None and config.exports.parquet_text is None:
        return
    estimate = estimate_of(config, plan.files(), work)
    if estimate:
        documents, tokens = estimate.documents, estimate.shown_tokens or estimate.tokens
    else:
        text, shown = _text_of_sources(config, plan)
        documents, tokens = round(text.documents * shown), round(text.size_bytes * TOKENS_OF_A_BYTE * shown)
    for name in config.exports.formats():
        if doubt := FORMATS[name].doubt(config.exports, documents, tokens):
            log.warning(doubt)


def stated_room(build: Build) -> str:
    """For people: the room that a planned build needs."""
    needed, stated_by = needed_room(build.config, build.plan, build.work)
    return render_disk(needed, reclaim=build.config.reclaim, stated_by=stated_by)


def _text_of_sources(config: DatasetConfig, plan: Plan) -> tuple[Texts, float]:
    """About how much text the sources hold, as far as the beginnings of files tell, and how many tokens the budget
    shows for each token there is.
    """
    texts = survey.texts_of(plan.files(), config.source.text_field, config.source.endpoint)
    tokens = [0.0] * len(config.source.paths)
    paths = [path for of_shard in plan.paths or () for path in of_shard]
    for path, text in zip(paths, texts, strict=plan.paths is not None):
        tokens[path] += text.size_bytes * TOKENS_OF_A_BYTE
    shown = shown_share(amounts_of(config), list(map(int, tokens)))
    return survey.Texts(*(sum(text[part] for text in texts) for part in (0, 1))), shown


def require_room(config: DatasetConfig, work: Path, needed: Moments, *, stated_by: str) -> None:
    """StorageFullError if a file system has less room than the build needs on it; `stated_by` is where sizes come from.

    What the work folder already holds counts as room: its steps are reused, or superseded and can be collected.
    """
    local = [Path(absolute(destination.path)) for destination in config.destinations if is_local(destination.path)]
    own = [] if is_shared(work) else [work]  # a bucket has room
    existing = [next(path for path in (folder, *folder.parents) if path.exists()) for folder in (*own, *local)]
    devices = [path.stat().st_dev for path in existing]
    folders = dict(
        zip(reversed(devices), reversed(existing), strict=True)
    )  # the work folder comes first on its own disk
    for device, folder in folders.items():
        size_bytes = max(
            sum((delivered if place >= len(own) else held) for place, number in enumerate(devices) if number == device)
            for held, delivered in needed
        )
        free_bytes = shutil.disk_usage(folder).free
        if size_bytes <= free_bytes:
            continue
        if folder == work:
            free_bytes += sum(path.lstat().st_size for path in work.rglob("*") if path.is_file())
        if size_bytes > free_bytes:
            raise StorageFullError(
                "work_folder.disk_too_small: the build would fill a disk",
                where=folder,
                expected=f"about {size_bytes:,} bytes free: {stated_by}",
                got=f"{free_bytes:,}, with what the build may reuse",
                next_step="free space, name a larger disk as work_folder or destination, or run corpusmill estimate, "
                "whose figures are then used instead",
            )
