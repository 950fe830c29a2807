"""docs/tokenizers.md: its configuration is one, and its table is the result file's."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from benchmarks.vocabularies import PAGE, RESULT, page
from corpusmill.config import check_config


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-V3"])
def test_tokenizers_page_configuration_is_valid_and_names_no_engine(name: str) -> None:
    text = PAGE.read_text()
    assert f"name: {name}" in text
    values = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0])
    values["tokenizer"]["name"] = name
    assert check_config(values, where="docs/tokenizers.md").tokenizer.engine == "auto"
    assert "engine" not in values["tokenizer"]


def test_tokenizers_page_table_is_that_of_the_result_file() -> None:
    text = PAGE.read_text()
    result = json.loads(RESULT.read_text())
    assert page(result, text) == text
    rows = result["figures"]["tokenizers"].values()
    assert rows
    assert sum(row["documents_unequal"] + row["tricky_unequal"] for row in rows) == 0
