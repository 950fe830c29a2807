"""What forms may name: everything that a configuration reads or writes, beside the roots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from corpusmill.config import DatasetConfig, check_config
from corpusmill.config.bounds import named_places, require_bounded, require_folder, require_listed
from corpusmill.config.form import RESERVED, config_from_form
from corpusmill.config.values import Section
from corpusmill.tokens.references import HuggingFaceReference
from tests.raising import raises

MINIO = "http://minio:9000"
OWN = {
    "name": "web",
    "source": {"paths": ["corpus", "/mnt/web"]},
    "dedup": {"mode": "none"},
    "tokenizer": {"name": "cl100k_base"},
    "shuffle": {"seed": 1},
    "exports": {"megatron": {}},
    "destinations": [{"path": "outputs"}, {"path": "s3://team/web", "endpoint_url": MINIO}],
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder, with a secret beside it and links that lead there."""
    (tmp_path / "auth").mkdir()
    (tmp_path / "auth" / "passwords.jsonl").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "out").symlink_to(tmp_path / "auth")
    (tmp_path / "data" / "out*").symlink_to(tmp_path / "auth")
    monkeypatch.setenv("CORPUSMILL_ROOT", str(tmp_path / "data"))
    monkeypatch.delenv("CORPUSMILL_FORM_ROOTS", raising=False)
    return tmp_path / "data"


def config(values: dict[str, Any] = OWN) -> DatasetConfig:
    return check_config(values, where="test")


def refusal(form: dict[str, Any]) -> str:
    with raises("form.place_outside_roots") as caught:
        require_bounded(config_from_form(form, config()), config())
    return str(caught.value)


@pytest.mark.parametrize(
    ("form", "key"),
    [
        ({"source_paths": ["/auth"]}, "source.paths"),
        ({"source_paths": ["corpus", "../auth/*.jsonl"]}, "source.paths"),
        ({"source_paths": ["*/../../auth/*.jsonl"]}, "source.paths"),
        ({"source_paths": ["out/*.jsonl"]}, "source.paths"),
        ({"source_paths": ["~root"]}, "source.paths"),
        ({"source_paths": ["s3://team/web"]}, "source.paths"),
        ({"source_paths": ["gs://team/web"]}, "source.paths"),
        ({"source_paths": ["hf://datasets/owner/private"]}, "source.paths"),
        ({"destinations": ["/tmp/mine"]}, "destinations"),  # noqa: S108
        ({"destinations": ["out"]}, "destinations"),
        ({"destinations": ["out*"]}, "destinations"),
        ({"destinations": ["s3://team/web"]}, "destinations"),
        ({"destinations": ["s3://team/web | http://elsewhere:9000"]}, "destinations"),
        ({"destinations": [f"s3://team/other | {MINIO}"]}, "destinations"),
        ({"settings": "work_folder: /var/lib"}, "work_folder"),
        ({"settings": "tokenizer: {file: /proc/self/environ}"}, "tokenizer.file"),
        ({"settings": "decisions: [{name: a, path: /auth/a.csv, keep: b}]"}, "decisions"),
        (
            {"settings": "decontamination: {action: report, benchmarks: [{name: a, path: /auth/a}]}"},
            "decontamination.benchmarks",
        ),
        ({"tokenizer_name": "/auth/passwords.json"}, "tokenizer.name"),
    ],
)
def test_form_that_names_a_place_beyond_the_data_folder_is_refused_with_its_key(
    root: Path, form: dict[str, Any], key: str
) -> None:
    printed = refusal(form)
    assert key in printed
    assert str(root) in printed  # what may be named


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"settings": "selection: {minimum_tokens: 3}"},
        {"source_paths": ["/mnt/web"]},
        {"source_paths": ["corpus/**/*.jsonl", "more/../other"]},
        {"destinations": ["elsewhere", f"s3://team/web | {MINIO}"]},
        {"settings": "work_folder: scratch\ntokenizer: {file: vocabulary/web.tiktoken}"},
    ],
)
def test_form_may_name_the_data_folder_and_what_the_operators_file_says(root: Path, form: dict[str, Any]) -> None:
    require_bounded(config_from_form(form, config()), config())


def test_every_place_of_a_form_is_named_at_once(root: Path) -> None:
    printed = refusal(
        {"source_paths": ["/a"], "destinations": ["/c"], "settings": "work_folder: /b\ntokenizer: {file: /d}"}
    )
    assert [line.split()[-1] for line in printed.splitlines()[1:5]] == ["/a", "/c", "/b", "/d"]


def test_configured_roots_stand_in_for_the_data_folder_each_with_its_endpoint(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUSMILL_FORM_ROOTS", f"inside, s3://team | {MINIO},hf://datasets/owner")
    own = config()
    places = {"destinations": [f"s3://team/a | {MINIO}"], "source_paths": ["inside/x", "hf://datasets/owner/web@v1"]}
    require_bounded(config_from_form({**places, "settings": "work_folder: inside"}, own), own)
    assert "s3://team/a" in refusal({"destinations": ["s3://team/a"]})  # the provider's bucket of that name
    assert "s3://teams/a" in refusal({"destinations": [f"s3://teams/a | {MINIO}"]})
    assert "insides" in refusal({"settings": "work_folder: insides"})


def test_without_any_root_a_form_names_nothing_of_its_own(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORPUSMILL_ROOT")
    require_bounded(config(), config())
    assert "nothing" in refusal({"settings": "work_folder: work2"})


def test_link_in_a_source_that_leads_beyond_the_roots_is_refused_once_it_is_listed(root: Path) -> None:
    (root / "new").mkdir()
    (root / "new" / "x[1].jsonl").symlink_to(root.parent / "auth" / "passwords.jsonl")
    (root / "new" / "y.jsonl").touch()
    formed = config_from_form({"source_paths": ["new"]}, config())
    require_bounded(formed, config())
    require_listed(formed, config(), [str(root / "new" / "y.jsonl")])
    with raises("form.place_outside_roots"):
        require_listed(formed, config(), [str(root / "new" / "x[1].jsonl")])
    require_listed(config(), config(), [str(root / "new" / "x[1].jsonl")])  # the operator's own paths


def test_reference_of_a_form_lies_below_the_roots_and_so_do_its_files(root: Path) -> None:
    own = {**OWN, "dedup": {"mode": "remove", "minimum_bytes": 500, "against": ["/mnt/last-year"]}}
    assert ("dedup.against", ("/mnt/last-year", None)) in named_places(config(own))
    formed = config_from_form({"settings": "dedup: {against: [new, {path: /mnt/last-year}]}"}, config(own))
    require_bounded(formed, config(own))
    for path in ("/auth", "out/*.jsonl", "s3://team/web", "*/../../auth"):
        with raises("form.place_outside_roots", "dedup.against"):
            require_bounded(config_from_form({"settings": f"dedup: {{against: ['{path}']}}"}, config(own)), config(own))
    (root / "new").mkdir()
    (root / "new" / "x[1].jsonl").symlink_to(root.parent / "auth" / "passwords.jsonl")
    with raises("form.place_outside_roots", "file of a reference"):
        require_listed(formed, config(own), [], [[str(root / "new" / "x[1].jsonl")], []])
    require_listed(formed, config(own), [], [[str(root / "new" / "y.jsonl")], ["/mnt/last-year/a.jsonl"]])


def test_folder_of_a_form_is_a_configurations_or_below_the_roots(root: Path) -> None:
    require_folder("work_folder", "work", [])
    require_folder("work_folder", "/scratch/work", ["work", "/scratch/work"])
    with raises("form.place_outside_roots"):
        require_folder("work_folder", "/scratch/work", ["work"])


def test_every_text_of_a_configuration_is_either_bounded_or_known_to_be_no_place() -> None:
    """A key that is added has to be decided on: a place that no bound knows would be open to every form."""
    no_place = {
        *("name", "text_field", "id_field", "annotate_key", "sha256", "revision", "pattern", "eot", "bos", "pad"),
        *(
            "tokenizer_sha256",
            "tokenizer_revision",
            "tokenizer_eot",
            "tokenizer_library",
            "test_name",
            "train_name",
            "file_name",
        ),
        *("threshold", "keep", "question", "answer", "passage", "id", "key"),
    }
    texts = {key for section in sections_of(DatasetConfig) for key in texts_of(section)}
    assert texts - no_place == {"paths", "path", "endpoint_url", "file", "work_folder"}
    places = {"tokenizer": {"name": "x", "file": "/f"}, "work_folder": "/w"}
    named = dict(named_places(config(OWN | places | {"source": {"paths": ["s3://b"], "endpoint_url": MINIO}})))
    assert named["tokenizer.file"] == ("/f", None)
    assert named["source.paths"] == ("s3://b", MINIO)
    assert set(named) == {"source.paths", "destinations", "work_folder", "tokenizer.file"}


def sections_of(annotation: Any) -> Iterator[type[Section]]:
    """Every section in an annotation, and those in it, that a form may set."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
        for name, info in annotation.model_fields.items():
            if name not in RESERVED:
                yield from sections_of(info.annotation)
    for inner in get_args(annotation):
        yield from sections_of(inner)


def texts_of(section: type[Section]) -> set[str]:
    """The keys of a section whose values are texts that anybody chooses, alone or in a list."""
    schema = section.model_json_schema()["properties"]
    texts = {key for key, value in schema.items() if any(is_free(item) for item in value.get("anyOf", [value]))}
    return {key for key in texts if "ByteSize" not in str(section.model_fields[key].annotation)}


def is_free(schema: dict[str, Any]) -> bool:
    items = [item for item in (schema, schema.get("items", {})) if item.get("type") == "string"]
    return any(not {"enum", "const"} & set(item) for item in items)


def test_error_about_a_tokenizer_file_quotes_nothing_of_it(tmp_path: Path) -> None:
    secret = b'{"version": "1.0", "model": {"type": "hunter2"}, "added_tokens": "hunter2"}'
    for content in (secret, b"hunter2", b'{"hunter2": '):
        with raises("tokenizer.not_a_tokenizer_json") as caught:
            HuggingFaceReference(tmp_path / "passwords.json", content, parse_special=False)
        assert "hunter2" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
