"""The web form: the keys that people change, a field each, and one field of YAML for all others.

    fields of a form  --config_from_form-->  DatasetConfig  --form_from_config-->  fields

A scheduler's form knows no nesting, so a field has the path of its key. `settings` is a part of a configuration file.
`corpusmill.config` checks what a field's schema does not, with the same messages as on the command line.

Invariant: ``config_from_form(form_from_config(config), reserved=config) == config`` for every configuration without its
`dag` section, which changes no byte. Keys that are reserved for the operator's file are set by no form: a form's
configuration has them from the file that the form shows.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ByteSize

from corpusmill.config import LEAST_MINIMUM_BYTES, DatasetConfig, DestinationConfig, check_config
from corpusmill.config.exports import SECTIONS
from corpusmill.config.schedule import NAME_PATTERN
from corpusmill.config.values import Section
from corpusmill.config.yaml_text import read_yaml
from corpusmill.errors import ConfigError
from corpusmill.storage.locations import CREDENTIALS, ENDPOINT_MARK

FORM = "the trigger form"
SETTINGS = "settings"
# Reserved for the operator's file: keys that remove data, run custom code, decide what is published, or how much of
# each source is used.
RESERVED = frozenset({"budget", "card", "dag", "forget", "keep_versions", "reclaim", "steps"})

# A form that refuses a value shows the field's schema: the key `expected`, which the checker ignores, explains a
# pattern in words. Values are stored before a configuration checks them, so the schema must refuse credentials.
WITHOUT_CREDENTIALS = "addresses without name, password and query; workers have those in their environment"
PLACES = {
    "type": ["array", "null"],
    "items": {
        "type": "string",
        "minLength": 1,
        "pattern": f"^(?!.*{CREDENTIALS})",
        "expected": WITHOUT_CREDENTIALS,
    },
}


@dataclass(frozen=True)
class FormField:
    """One line of the form: `keys` is the path of its key, empty for YAML; `schema` the JSON schema of its value.

    Every field may be left empty (null), which means the key's default, or the value in a chosen configuration.
    """

    name: str
    keys: tuple[str, ...]
    schema: Mapping[str, Any]
    help: str

    @property
    def title(self) -> str:
        """Its name, as people write it."""
        return self.name.replace("_", " ").capitalize()


def _words(**more: Any) -> dict[str, Any]:
    return {"type": ["string", "null"], **more}


NAME = _words(pattern=NAME_PATTERN, expected="lower-case letters, digits, - and _, at most 63")
FIELD = _words(examples=["text", "content", "raw_content"])
SIZE = _words(
    pattern=r"^\s*\d+(\.\d+)?\s*([kKmMgGtTpP][iI]?)?[bB]?\s*$",
    expected="a number with a unit, such as 256MiB or 10GB",
)
MODE = _words(enum=["remove", "annotate", "none", None])
SWITCH = _words(enum=["on", "off", None])
MINIMUM = {"type": ["integer", "null"], "minimum": LEAST_MINIMUM_BYTES, "maximum": 1 << 20}
VOCABULARY = _words(
    pattern=r"^[^\s|]+$",
    expected="a name, a path or a hub id, without blanks and without |",
    examples=["cl100k_base", "o200k_base", "p50k_base", "r50k_base"],
)
SEED = _words(pattern=r"^\d{1,20}$", expected="a whole number of at most 20 digits")  # browsers round those above 2**53
YAML = _words(format="multiline", pattern=rf"^(?![\s\S]*{CREDENTIALS})", expected=WITHOUT_CREDENTIALS)
FIELDS = (
    FormField("name", ("name",), NAME, "Names folders and file prefixes."),
    FormField("source_paths", ("source", "paths"), PLACES, "One per line: folders, files, globs, s3://, gs://, hf://."),
    FormField("text_field", ("source", "text_field"), FIELD, "The JSON key of a document's text. Default: text."),
    FormField("shard_bytes", ("source", "shard_bytes"), SIZE, "Source bytes of a shard. Default: 256MiB."),
    FormField("dedup_mode", ("dedup", "mode"), MODE, "annotate keeps the text, and adds repeats as a field."),
    FormField(
        "minimum_bytes", ("dedup", "minimum_bytes"), MINIMUM, "Repeats of at least this many bytes are duplicates."
    ),
    FormField("tokenizer_name", ("tokenizer", "name"), VOCABULARY, "An encoding, a vocabulary's file, or a hub id."),
    FormField("seed", ("shuffle", "seed"), SEED, "The same seed gives the same order on every machine."),
    *(FormField(f"export_{name}", ("exports", name), SWITCH, f"For {of.readers}.") for name, of in SECTIONS.items()),
    FormField(
        "destinations", ("destinations",), PLACES, f"One per line: outputs, s3://web{ENDPOINT_MARK}http://minio:9000."
    ),
    FormField(SETTINGS, (), YAML, "All other keys, as in a configuration file: YAML such as packing: {fit: best_fit}."),
)
OWN = {field.keys: field for field in FIELDS if field.keys}


def form_from_config(config: DatasetConfig) -> dict[str, Any]:
    """The values of the fields that show `config`."""
    tree = _tree(config)
    values: dict[str, Any] = {}
    for keys, field in OWN.items():
        section = tree
        for key in keys[:-1]:
            section = section.get(key, {})
        if keys[0] == "exports":
            values[field.name] = "on" if keys[-1] in section else "off"
        else:
            value = section.pop(keys[-1], None)
            values[field.name] = str(value) if field.name == "seed" and value is not None else value
    values["destinations"] = list(map(_line, config.destinations))
    rest = {key: value for key, value in tree.items() if key not in RESERVED}
    rest["exports"] = {key: value for key, value in tree["exports"].items() if value != {}}
    rest = {key: value for key, value in rest.items() if value != {}}
    values[SETTINGS] = yaml.safe_dump(rest, sort_keys=False, allow_unicode=True, width=1000) if rest else None
    return values


def config_from_form(
    values: Mapping[str, Any], base: DatasetConfig | None = None, *, reserved: DatasetConfig | None = None
) -> DatasetConfig:
    """The configuration that field values represent.

    None and empty text, lists and objects mean the value in `base` or, without one, the key's default. `settings` is
    laid over `base`, key by key. The keys that no form sets have the values in `reserved`, by default in `base`.
    Raises ConfigError for an unknown field and for every value that `check_config` refuses.
    """
    refuse_unknown(values, [field.name for field in FIELDS], where=FORM)
    tree = _laid_over(_tree(base) if base else {}, _settings(values.get(SETTINGS)))
    tree = {key: value for key, value in tree.items() if key not in RESERVED}
    if file := reserved or base:
        tree |= file.model_dump(mode="json", include=set(RESERVED), exclude_none=True)
    tree.setdefault("exports", {})
    for keys, field in OWN.items():
        value = values.get(field.name)
        if value is None or value in ("", [], {}):
            continue
        section = tree
        for key in keys[:-1]:
            section = section.setdefault(key, {})
        if keys[0] == "exports" and value == "off":
            section.pop(keys[-1], None)
        elif keys[0] == "exports" and value == "on":
            section.setdefault(keys[-1], {})
        else:
            section[keys[-1]] = _meant(field.name, value)
    return check_config(tree, where=FORM)


def changed_keys(config: DatasetConfig, own: DatasetConfig) -> list[str]:
    """The keys, such as `dedup.minimum_bytes`, that have other values in `config` than in `own`; `dag` changes none."""
    return [key for key in _differences(config, own) if key != "dag"]


def refuse_unknown(values: Iterable[str], known: Iterable[str], *, where: str) -> None:
    """ConfigError for a field that a form does not have: Airflow takes any key that a trigger's JSON holds."""
    known = list(known)
    unknown = sorted(set(values) - set(known))
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        raise ConfigError(
            f"form.unknown_field: the form has no field {unknown[0]}{f'; did you mean {near[0]}?' if near else ''}",
            where=where,
            expected=", ".join(known),
            got=", ".join(unknown),
        )


def size_text(size_bytes: int) -> str:
    """A size as text that reads back exactly: the largest unit that divides it, else plain bytes."""
    units = [(1 << (10 * power), f"{letter}iB") for power, letter in enumerate("KMGT", start=1)]
    units += [(1000**power, f"{letter}B") for power, letter in enumerate("KMGT", start=1)]
    fits = [(unit_bytes, name) for unit_bytes, name in units if size_bytes and size_bytes % unit_bytes == 0]
    unit_bytes, name = max(fits, default=(1, ""))
    return f"{size_bytes // unit_bytes}{name}"


def _settings(text: Any) -> dict[str, Any]:
    """What the field `settings` says; ConfigError for a key that another field sets, or that no form does."""
    if text in (None, "", {}):
        return {}
    tree, _ = read_yaml(text, where=f"{SETTINGS} of {FORM}") if isinstance(text, str) else (text, None)
    if not isinstance(tree, dict):
        raise ConfigError(
            f"form.settings_not_a_mapping: {SETTINGS} are not a mapping of keys to values",
            where=FORM,
            expected="YAML such as `packing: {fit: cut}`",
        )
    for key in RESERVED & set(tree):
        raise ConfigError(
            f"form.key_reserved: a form cannot set {key}",
            where=f"{SETTINGS} of {FORM}",
            next_step="write it into the configuration file",
        )
    for keys, field in OWN.items():
        section: Any = tree
        for key in keys[:-1]:
            section = section.get(key) if isinstance(section, dict) else None
        if keys[0] != "exports" and isinstance(section, dict) and keys[-1] in section:
            raise ConfigError(
                f"form.key_has_field: {'.'.join(keys)} has a field of its own",
                where=f"{SETTINGS} of {FORM}",
                next_step=f"write it into the field {field.name}",
            )
    return tree


def _laid_over(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return below | {key: _laid_over(below.get(key), value) for key, value in above.items()}


def _tree(value: Any) -> Any:
    """Plain values: of a section those that differ from their defaults."""
    if isinstance(value, Section):
        return {
            name: _tree(getattr(value, name))
            for name, info in type(value).model_fields.items()
            if info.is_required() or getattr(value, name) != info.get_default(call_default_factory=True)
        }
    if isinstance(value, ByteSize):
        return size_text(value)
    if isinstance(value, dict):
        return {key: _tree(item) for key, item in value.items()}
    return [_tree(item) for item in value] if isinstance(value, (list, tuple)) else value


def _differences(one: Section, other: Section, above: str = "") -> Iterator[str]:
    for name in type(one).model_fields:
        values = getattr(one, name), getattr(other, name)
        if isinstance(values[0], Section) and isinstance(values[1], Section):
            yield from _differences(*values, f"{above}{name}.")
        elif values[0] != values[1]:
            yield f"{above}{name}"


def _meant(name: str, value: Any) -> Any:
    match name, value:
        case "seed", str() if value.isascii() and value.isdecimal():
            return int(value)
        case "destinations", list():
            return [_destination(item) if isinstance(item, str) else item for item in value]
    return value


def _line(destination: DestinationConfig) -> str:
    """A destination as one line: its path, its path and endpoint, or JSON if those do not suffice."""
    values = destination.model_dump(mode="json", exclude_defaults=True)
    path, endpoint_url = values["path"], values.get("endpoint_url")
    simple = path if endpoint_url is None else f"{path}{ENDPOINT_MARK}{endpoint_url}"
    return simple if _destination(simple) == values else json.dumps(values, ensure_ascii=False)


def _destination(line: str) -> Any:
    if line.lstrip().startswith("{"):
        try:
            return json.loads(line)
        except ValueError:
            return {"path": line}
    path, mark, endpoint_url = line.partition(ENDPOINT_MARK)
    return {"path": path, "endpoint_url": endpoint_url} if mark else {"path": path}
