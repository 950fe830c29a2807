"""What forms may name: everything that a configuration reads or writes, beside the roots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corpusmill.bounds import named_places, require_bounded, require_folder, require_listed
from corpusmill.config import DatasetConfig, check_config
from corpusmill.errors import ConfigError, TokenizerError
from corpusmill.form import FIELDS, config_from_form
from corpusmill.tokens.references import HuggingFaceReference

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
    with pytest.raises(ConfigError, match="outside the configured roots") as caught:
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
        ({"work_folder": "/var/lib"}, "work_folder"),
        ({"tokenizer_file": "/proc/self/environ"}, "tokenizer.file"),
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
        {"minimum_tokens": 3},
        {"source_paths": ["/mnt/web"]},
        {"source_paths": ["corpus/**/*.jsonl", "more/../other"]},
        {"destinations": ["elsewhere", f"s3://team/web | {MINIO}"]},
        {"work_folder": "scratch", "tokenizer_file": "vocabulary/web.tiktoken"},
    ],
)
def test_form_may_name_the_data_folder_and_what_the_operators_file_says(root: Path, form: dict[str, Any]) -> None:
    form = {f"selection_{key}" if key == "minimum_tokens" else key: value for key, value in form.items()}
    require_bounded(config_from_form(form, config()), config())


def test_every_place_of_a_form_is_named_at_once(root: Path) -> None:
    printed = refusal({"source_paths": ["/a"], "work_folder": "/b", "destinations": ["/c"], "tokenizer_file": "/d"})
    assert [line.split()[-1] for line in printed.splitlines()[1:5]] == ["/a", "/c", "/b", "/d"]


def test_configured_roots_stand_in_for_the_data_folder_each_with_its_endpoint(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUSMILL_FORM_ROOTS", f"inside, s3://team | {MINIO},hf://datasets/owner")
    own = config()
    places = {"destinations": [f"s3://team/a | {MINIO}"], "source_paths": ["inside/x", "hf://datasets/owner/web@v1"]}
    require_bounded(config_from_form({**places, "work_folder": "inside"}, own), own)
    assert "s3://team/a" in refusal({"destinations": ["s3://team/a"]})  # the provider's bucket of that name
    assert "s3://teams/a" in refusal({"destinations": [f"s3://teams/a | {MINIO}"]})
    assert "insides" in refusal({"work_folder": "insides"})


def test_without_any_root_a_form_names_nothing_of_its_own(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORPUSMILL_ROOT")
    require_bounded(config(), config())
    assert "nothing" in refusal({"work_folder": "work2"})


def test_link_in_a_source_that_leads_beyond_the_roots_is_refused_once_it_is_listed(root: Path) -> None:
    (root / "new").mkdir()
    (root / "new" / "x[1].jsonl").symlink_to(root.parent / "auth" / "passwords.jsonl")
    (root / "new" / "y.jsonl").touch()
    formed = config_from_form({"source_paths": ["new"]}, config())
    require_bounded(formed, config())
    require_listed(formed, config(), [str(root / "new" / "y.jsonl")])
    with pytest.raises(ConfigError, match="outside the configured roots"):
        require_listed(formed, config(), [str(root / "new" / "x[1].jsonl")])
    require_listed(config(), config(), [str(root / "new" / "x[1].jsonl")])  # the operator's own paths


def test_reference_of_a_form_lies_below_the_roots_and_so_do_its_files(root: Path) -> None:
    own = {**OWN, "dedup": {"mode": "remove", "minimum_bytes": 500, "against": ["/mnt/last-year"]}}
    assert ("dedup.against", ("/mnt/last-year", None)) in named_places(config(own))
    formed = config_from_form({"dedup_against": ["new", {"path": "/mnt/last-year"}]}, config(own))
    require_bounded(formed, config(own))
    for path in ("/auth", "out/*.jsonl", "s3://team/web", "*/../../auth"):
        with pytest.raises(ConfigError, match=r"dedup\.against"):
            require_bounded(config_from_form({"dedup_against": [path]}, config(own)), config(own))
    (root / "new").mkdir()
    (root / "new" / "x[1].jsonl").symlink_to(root.parent / "auth" / "passwords.jsonl")
    with pytest.raises(ConfigError, match="file of a reference"):
        require_listed(formed, config(own), [], [[str(root / "new" / "x[1].jsonl")], []])
    require_listed(formed, config(own), [], [[str(root / "new" / "y.jsonl")], ["/mnt/last-year/a.jsonl"]])


def test_folder_of_a_form_is_a_configurations_or_below_the_roots(root: Path) -> None:
    require_folder("work_folder", "work", [])
    require_folder("work_folder", "/scratch/work", ["work", "/scratch/work"])
    with pytest.raises(ConfigError, match="outside the configured roots"):
        require_folder("work_folder", "/scratch/work", ["work"])


def test_every_field_of_words_is_either_bounded_or_known_to_be_no_place() -> None:
    """A key that is added has to be decided on: a place that no bound knows would be open to every form."""
    no_place = {
        *("name", "text_field", "id_field", "annotate_key", "tokenizer_sha256", "tokenizer_revision"),
        *("tokenizer_pattern", "tokenizer_eot", "tokenizer_bos", "tokenizer_pad"),
        *("lock_tokenizer_sha256", "lock_tokenizer_revision", "lock_tokenizer_eot"),
        *("numpy_test_name", "numpy_train_name", "numpy_file_name"),
        *("decontamination_threshold", "decontamination_annotate_key"),
    }
    words = [field for field in FIELDS if field.kind in {"text", "lines", "places"} and "enum" not in field.schema]
    bounded = {field.name for field in words} - no_place
    assert bounded == {
        *("source_paths", "source_endpoint_url", "tokenizer_name", "tokenizer_file", "destinations", "work_folder")
    }
    places = {"tokenizer": {"name": "x", "file": "/f"}, "work_folder": "/w", "source": {"paths": ["s3://b"]}}
    named = dict(named_places(config(OWN | places | {"source": {"paths": ["s3://b"], "endpoint_url": MINIO}})))
    assert named["tokenizer.file"] == ("/f", None)
    assert named["source.paths"] == ("s3://b", MINIO)
    assert set(named) == {"source.paths", "destinations", "work_folder", "tokenizer.file"}


def test_error_about_a_tokenizer_file_quotes_nothing_of_it(tmp_path: Path) -> None:
    secret = b'{"version": "1.0", "model": {"type": "hunter2"}, "added_tokens": "hunter2"}'
    for content in (secret, b"hunter2", b'{"hunter2": '):
        with pytest.raises(TokenizerError) as caught:
            HuggingFaceReference(tmp_path / "passwords.json", content, parse_special=False)
        assert "hunter2" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
