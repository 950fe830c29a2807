"""The sample corpus: chosen by rule, the same bytes each time, nothing of this machine in it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

import orjson
import pytest
import zstandard

from deploy.sample_corpus import collect_documents, module_docstrings, write_sample_corpus

LICENCE = "Permission is hereby granted to everybody. " * 5


def install(site: Path, name: str, files: dict[str, bytes], *, version: str = "1.0", readme: str = "") -> None:
    """Lay out one distribution as an installer does: its files, METADATA and RECORD."""
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n{readme}"
    everything = files | {f"{folder}/METADATA": metadata.encode()}
    for path, content in everything.items():
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    (site / folder / "RECORD").write_text("".join(f"{path},,\n" for path in (*everything, f"{folder}/RECORD")))


def found_in(site: Path) -> list[Distribution]:
    return list(distributions(path=[str(site)]))


def read_lines(path: Path) -> list[dict[str, str]]:
    text = zstandard.ZstdDecompressor().decompress(path.read_bytes())
    return [orjson.loads(line) for line in text.splitlines()]


def test_collect_documents_small_site_takes_what_the_rule_says(tmp_path: Path) -> None:
    install(
        tmp_path,
        "Alpha_Tools",
        {
            "alpha/big.py": b"x = 1\n" * 200_000,
            "alpha/latin.py": "# caf\xe9\n".encode("latin-1"),
            "alpha/main.py": "grüße = 1\n".encode(),
            "alpha/data.json": b"{}",
            "Alpha_Tools-1.0.dist-info/licenses/LICENSE.txt": LICENCE.encode(),
        },
        readme="Alpha reads tea leaves.",
    )
    install(tmp_path, "beta", {"__init__.py": b"", "beta.py": b"b = 2\n", "NOTICE": b"mind the gap"})
    (tmp_path / "unlisted.py").write_text("never = 'taken'")

    documents = collect_documents(found_in(tmp_path), 10**9)

    assert [(document.id, document.source, document.text) for document in documents] == [
        ("alpha-tools/1.0/Alpha_Tools-1.0.dist-info/licenses/LICENSE.txt", "licence", LICENCE),
        ("alpha-tools/1.0/alpha/main.py", "source", "grüße = 1\n"),
        ("alpha-tools/1.0/readme", "readme", "Alpha reads tea leaves."),
        ("beta/1.0/NOTICE", "licence", "mind the gap"),
        ("beta/1.0/beta.py", "source", "b = 2\n"),
    ]


def test_collect_documents_fourth_module_by_hash_gives_docstrings(tmp_path: Path) -> None:
    modules = {f"pkg/m{number}.py": f'"""Module {number}."""\n'.encode() for number in range(12)}
    install(tmp_path, "pkg", modules)
    documents = collect_documents(found_in(tmp_path), 10**9)
    docstrings = [document for document in documents if document.source == "docstrings"]
    sources = [document for document in documents if document.source == "source"]
    assert len(docstrings) == 3
    assert len(sources) == 9
    covered = {d.id.removeprefix("pkg/1.0/docstrings/") for d in docstrings} | {
        d.id.removeprefix("pkg/1.0/") for d in sources
    }
    assert covered == set(modules)
    assert all(document.text.startswith("Module ") for document in docstrings)


def test_collect_documents_small_target_keeps_licences_of_all_and_takes_turns(tmp_path: Path) -> None:
    large = {f"large/m{number}.py": b"x = 1\n" * 100 for number in range(50)}
    install(tmp_path, "large", large | {"large/LICENSE": LICENCE.encode()})
    install(tmp_path, "small", {"small.py": b"y = 2\n" * 100, "small-LICENSE/COPYING": LICENCE.encode()})
    target_bytes = 2 * len(LICENCE) + 1200
    documents = collect_documents(found_in(tmp_path), target_bytes)
    assert [document.id.split("/")[0] for document in documents] == ["large", "large", "small", "small"]
    assert sum(document.source == "licence" for document in documents) == 2
    assert sum(document.text_bytes for document in documents) == target_bytes


def test_collect_documents_own_editable_and_outside_files_are_left_out(tmp_path: Path) -> None:
    install(tmp_path, "Corpusmill", {"pipeline.py": b"own = 1\n"})
    install(
        tmp_path,
        "edited",
        {"edited.py": b"e = 1\n", "edited-1.0.dist-info/direct_url.json": b'{"dir_info": {"editable": true}}'},
    )
    site = tmp_path / "site"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tool.py").write_text("#!" + sys.executable)
    install(site, "kept", {"kept.py": b"k = 1\n"})
    with (site / "kept-1.0.dist-info" / "RECORD").open("a") as record:
        record.write(f"../bin/tool.py,,\n{tmp_path}/bin/tool.py,,\n")
    documents = collect_documents([*found_in(tmp_path), *found_in(site)], 10**9)
    assert [document.id for document in documents] == ["kept/1.0/kept.py"]


def test_collect_documents_name_found_twice_counts_once(tmp_path: Path) -> None:
    install(tmp_path / "a", "twin", {"twin.py": b"first = 1\n"})
    install(tmp_path / "b", "Twin", {"twin.py": b"second = 1\n"})
    documents = collect_documents([*found_in(tmp_path / "a"), *found_in(tmp_path / "b")], 10**9)
    assert [document.text for document in documents] == ["first = 1\n"]


def test_collect_documents_lone_surrogate_in_docstring_is_skipped(tmp_path: Path) -> None:
    modules = {f"pkg/m{number}.py": b'"""\\ud800"""\n' for number in range(4)}
    install(tmp_path, "pkg", modules)
    documents = collect_documents(found_in(tmp_path), 10**9)
    assert len(documents) == 3


def test_module_docstrings_nested_definitions_come_dedented_in_order() -> None:
    source = b'''"""Module.

    Indented."""
class A:
    """Class."""
    def f(self):
        """Method."""
        async def g():
            """Inner."""
def bare(): pass
'''
    assert module_docstrings(source) == "Module.\n\nIndented.\n\nClass.\n\nMethod.\n\nInner."


@pytest.mark.slow
def test_write_sample_corpus_twice_gives_same_bytes_and_even_files(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        write_sample_corpus(tmp_path / folder, target_bytes=300_000, files=3)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["sample_000.jsonl.zst", "sample_001.jsonl.zst", "sample_002.jsonl.zst"]
    lines = []
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
        file_lines = read_lines(tmp_path / "one" / name)
        assert file_lines
        lines += file_lines
    identities = [line["id"] for line in lines]
    assert identities == sorted(set(identities))
    assert all(set(line) == {"id", "source", "text"} for line in lines)
    assert sum(len(line["text"].encode()) for line in lines) >= 300_000
    assert not any(line["id"].startswith(("/", "corpusmill")) or sys.prefix in line["text"] for line in lines)


def test_write_sample_corpus_hash_seed_and_folder_change_nothing(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from deploy.sample_corpus import write_sample_corpus;"
        "write_sample_corpus(Path(sys.argv[1]), target_bytes=100_000, files=2)"
    )
    contents = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        root = str(Path(__file__).resolve().parents[2])
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": root}
        subprocess.run([sys.executable, "-c", program, str(folder)], check=True, cwd=tmp_path, env=environment)
        contents.append([path.read_bytes() for path in sorted(folder.iterdir())])
    assert contents[0] == contents[1]
