"""JSON lines, configurations and forms, changed: read as their oracles read them, or refused in our words."""

from __future__ import annotations

import json
import random
from typing import Any

from corpusmill.config import EXAMPLE, DatasetConfig, parse_config
from corpusmill.config.form import FIELDS, config_from_form, form_from_config
from corpusmill.errors import ConfigError
from tests.config.test_config import MINIMAL
from tests.config.test_odd_configurations import ODD_SCALARS, ODD_TEXTS
from tests.documents.json_lines import BROKEN_LINES, OTHER_KEYS, OTHER_VALUES
from tests.documents.test_jsonl_oracle import changed as changed_line
from tests.documents.test_jsonl_oracle import require_as_json_reads
from tests.fuzz.target import Target, changed
from tests.system.corpus import lines_of, make_documents

LINES = 100  # of an input
LONGEST_ERROR = 20_000
EXAMPLE_TEXT = EXAMPLE.read_text(encoding="utf-8")
WORDS = [
    word.encode("utf-8", "surrogatepass") for word in (*ODD_SCALARS, *(line for line, _ in ODD_TEXTS if len(line) < 99))
]
ODD_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 1.5, 2**53 + 1, 10**400, 1e308, float("inf"), float("nan"), "", " ", "on", "off"),
    *(
        "0",
        "5GB",
        "1.5.5TiB",
        "9" * 25,
        "\0",
        "\x1b[2J",
        "\ud800",
        "../..",
        "s3://a:b@c/d",
        "{}",
        '{"path": 1}',
        "a | b",
    ),
    *([], {}, [[]], {"": {}}, [None], ["a", "a"], [{"path": "a"}], {"a": 1}, {"path": "a", "endpoint_url": 5}),
]


def _line_seeds() -> list[bytes]:
    texts = [text[:600] for text in make_documents(300)]
    written = lines_of(texts).splitlines()
    members = [
        b",".join(key + b":" + value for key, value in zip(OTHER_KEYS, OTHER_VALUES[at:], strict=False))
        for at in range(8)
    ]
    objects = [b'{"text": "a\\u00e9\\ud83d\\ude00", ' + member + b', "text": "b"}' for member in members]
    return [*written, *BROKEN_LINES, *objects]


SEEDS = _line_seeds()


def _draw_lines(rng: random.Random) -> bytes:
    lines = [changed_line(rng.choice(SEEDS), rng) for _ in range(LINES)]
    return b"\n".join(lines) + rng.choice((b"\n", b""))


def _check_lines(data: bytes) -> str:
    for longest_parsed_bytes in (-1, 1 << 20):  # by either parser
        require_as_json_reads(data, longest_parsed_bytes)
    return "read"


def _draw_configuration(rng: random.Random) -> bytes:
    text = rng.choice((EXAMPLE_TEXT, MINIMAL))
    lines = text.splitlines()
    for _ in range(rng.choice((0, 1, 1, 2))):
        at = rng.randrange(len(lines))
        key, colon, _ = lines[at].partition(":")
        odd = rng.choice(ODD_SCALARS)
        lines[at] = rng.choice((f"{key}{colon} {odd}", f"{key}: {{{odd}: 1}}", odd, rng.choice(lines)))
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    return changed(rng, data, WORDS) if rng.random() < 0.7 else data


def _check_configuration(data: bytes) -> str:
    try:
        config = parse_config(data.decode("utf-8", "surrogateescape"), where="x.yaml")
    except ConfigError as error:
        return _refused(error, "x.yaml")
    _require_same_again(config)
    return "read"


def _refused(error: ConfigError, where: str) -> str:
    assert where in str(error)
    assert len(str(error)) < LONGEST_ERROR
    return "refused"


def _require_same_again(config: DatasetConfig) -> None:
    """A plan keeps the configuration as JSON, and a form shows it."""
    kept = json.loads(json.dumps(config.model_dump(mode="json", exclude_none=True)))
    assert DatasetConfig.model_validate(kept).model_dump(mode="json", exclude_none=True) == kept
    shown = json.loads(json.dumps(form_from_config(config)))  # as it comes back from a browser
    assert config_from_form(shown, reserved=config) == config.model_copy(update={"dag": None})


def _draw_form(rng: random.Random) -> bytes:
    values = form_from_config(parse_config(rng.choice((EXAMPLE_TEXT, MINIMAL)), where="x"))
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        name = rng.choice(FIELDS).name
        odd = rng.choice(ODD_VALUES)
        if rng.random() < 0.5 and isinstance(value := values.get(name), str) and value:
            odd = changed(rng, value.encode("utf-8", "replace"), WORDS).decode("utf-8", "replace")
        values[name if rng.random() < 0.95 else name[1:]] = odd
    return json.dumps(values).encode()


def _check_form(data: bytes) -> str:
    values = json.loads(data)
    try:
        config = config_from_form(values)
    except ConfigError as error:
        return _refused(error, "the trigger form")
    assert config == config_from_form(values)
    _require_same_again(config)
    return "read"


def lines_in(data: bytes) -> int:
    """How many lines an input holds."""
    return data.count(b"\n") + 1


TARGETS = (
    Target("lines", _draw_lines, _check_lines, aim=1_000_000, cases_of=lines_in),
    Target("configurations", _draw_configuration, _check_configuration, aim=10_000),
    Target("forms", _draw_form, _check_form, aim=10_000),
)
