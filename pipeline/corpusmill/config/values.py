"""What every section of a configuration is, and types of single values: what they may be, how their text is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, WrapValidator

from corpusmill.config.epochs import parse_amount
from corpusmill.errors import InvalidValueError
from corpusmill.storage.locations import without_credentials, without_file_scheme


class Section(BaseModel):
    """Base of every section: unknown keys are errors, and values do not change after checking."""

    # Sections are checked as parts of a whole configuration, so none needs a validator of its own at import.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


# A scheduler stores the GiB of memory of a task in 31 bits, and one stage takes ten times a shard's bytes.
LARGEST_SIZE = 1 << 50
LARGEST_COUNT = 1 << 40


def _size(value: object, read: Callable[[object], ByteSize]) -> ByteSize:
    """ValueError for values on which pydantic's size parser raises another error: infinity, a list."""
    try:
        return read(value)
    except (OverflowError, TypeError) as error:
        raise InvalidValueError("config.size: a size is a number with a unit, such as 256MiB or 10GB") from error


Bytes = Annotated[ByteSize, Field(gt=0, le=LARGEST_SIZE), WrapValidator(_size)]
Count = Annotated[int, Field(gt=0, le=LARGEST_COUNT, strict=True)]
THRESHOLD = r"^(default|strict|0?\.\d*[1-9]\d*|1(\.0*)?)$"
USED = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
SPLIT_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$"


def _number_as_text(value: object) -> object:
    return str(value) if isinstance(value, float) or (isinstance(value, int) and value == 1) else value


Threshold = Annotated[str, Field(pattern=THRESHOLD), BeforeValidator(_number_as_text)]

# A configuration is copied into plans, receipts, logs and forms.
Location = Annotated[str, Field(min_length=1), AfterValidator(without_credentials), AfterValidator(without_file_scheme)]


def _amount(text: str) -> str:
    parse_amount(text)
    return text


# Of a source's tokens: see corpusmill.config.epochs.
Amount = Annotated[str, AfterValidator(_amount)]


def _not_json(value: object, place: str) -> str:
    """The place in a value that JSON would change, such as `with.most`; "" if it would keep all of it."""
    if isinstance(value, dict):
        inner = [(key, f"{place}.{key}") for key in value]
        if wrong := next((where for key, where in inner if type(key) is not str), ""):
            return f"the key {wrong}"
        return next(filter(None, (_not_json(value[key], where) for key, where in inner)), "")
    if isinstance(value, list):
        return next(filter(None, (_not_json(item, f"{place}[{at}]") for at, item in enumerate(value))), "")
    plain = value is None or type(value) in {str, bool, int} or (type(value) is float and math.isfinite(value))
    return "" if plain else place


def _json_alone(arguments: dict[str, Any]) -> dict[str, Any]:
    """They are handed on as JSON, which would make text of a number that is a key, and null of infinity."""
    if place := _not_json(arguments, "with"):
        raise InvalidValueError(
            f"config.with_not_json: {place} does not keep its type in JSON: use text, finite numbers, true, false,"
            " null, lists, and mappings whose keys are text"
        )
    return arguments


# A function or class of the user's, and its arguments: the keys `use` and `with`.
Used = Annotated[str, Field(pattern=USED)]
Arguments = Annotated[dict[str, Any], Field(alias="with"), AfterValidator(_json_alone)]
