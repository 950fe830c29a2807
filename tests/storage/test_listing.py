"""Which files are sources, in which order, under which names; from folders, buckets and hubs."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.builds.overlap import require_no_overlap
from corpusmill.storage import StoredFile, list_sources, open_location, open_store, safe_relative_name
from corpusmill.storage.listing import OtherFiles, list_all
from corpusmill.storage.local import glob_matches, may_match_below, walk_files
from corpusmill.storage.locations import is_open_to_others, natural_order, without_credentials, without_queries
from tests.hub import Hub
from tests.raising import raises
from tests.servers import many_objects

ENDINGS = (".jsonl", ".jsonl.gz")


def fill(folder, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}\n")


def names(*paths: object) -> list[str]:
    return [file.name for file in list_sources([str(path) for path in paths], ENDINGS)]


def test_listing_folder_is_recursive_and_in_natural_order_without_hidden_files(tmp_path) -> None:
    fill(tmp_path, "b/part10.jsonl", "b/part2.jsonl", "a.jsonl.gz", "readme.md", ".hidden/x.jsonl", "b/.h.jsonl")
    assert names(tmp_path) == names(tmp_path / "**/*.jsonl*") == ["a.jsonl.gz", "b/part2.jsonl", "b/part10.jsonl"]
    assert names(tmp_path / "b/part2.jsonl") == ["part2.jsonl"]
    (tmp_path / "empty").mkdir()
    for path, got in (("b/.h.jsonl", "no files at all"), ("empty", "no files at all"), ("readme.md", "readme.md")):
        with raises("source.no_known_files", got):
            names(tmp_path / path)


def test_listing_glob_names_are_relative_to_its_fixed_part(tmp_path) -> None:
    fill(tmp_path, "en/a.jsonl", "en/deep/b.jsonl", "fr/c.jsonl")
    assert names(tmp_path / "e*/*.jsonl") == ["en/a.jsonl"]
    assert names(tmp_path / "en/**/*.jsonl") == ["a.jsonl", "deep/b.jsonl"]


def test_listing_order_does_not_depend_on_the_order_of_paths(tmp_path) -> None:
    fill(tmp_path, "one/b.jsonl", "two/a.jsonl")
    assert (
        names(tmp_path / "one", tmp_path / "two") == names(tmp_path / "two", tmp_path / "one") == ["a.jsonl", "b.jsonl"]
    )


def test_listing_same_name_in_two_sources_is_refused(tmp_path) -> None:
    fill(tmp_path, "one/a.jsonl", "two/a.jsonl")
    with raises("source.name_twice", "one/a.jsonl", "two/a.jsonl"):
        names(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize(
    "name", [b"a\nb.jsonl", b"latin-1 \xfc.jsonl", b"deep\xff/x.jsonl", b"x" * 231 + b".jsonl"], ids=ascii
)
def test_listing_name_that_no_delivered_file_could_have_is_refused(tmp_path, name: bytes) -> None:
    path = tmp_path / os.fsdecode(name)
    fill(path.parent, path.name)
    with raises("source.name_not_deliverable") as caught:
        names(tmp_path)
    str(caught.value).encode()  # can be printed
    assert "236 bytes" in str(caught.value)
    assert "rename it" in str(caught.value)


def test_listing_object_that_is_another_ones_folder_is_refused(moto, moto_client) -> None:
    """A bucket can hold both; the folder that they are copied and delivered to cannot."""
    for key in ("data/a.jsonl", "data/a.jsonl/deep/b.jsonl", "data/a.jsonl.jsonl"):
        moto_client.put_object(Bucket="corpus", Key=key, Body=b"{}\n")
    with raises("source.name_of_folder", "s3://corpus/data/a.jsonl/deep/b.jsonl"):
        list_sources(["s3://corpus/data"], ENDINGS, moto)
    apart = list_sources(["s3://corpus/data/a.jsonl", "s3://corpus/data/a.jsonl/"], ENDINGS, moto)
    assert [file.name for file in apart] == ["a.jsonl", "deep/b.jsonl"]


def test_listing_missing_source_says_where_it_looked(tmp_path) -> None:
    with raises("source.missing", tmp_path / "nowhere"):
        names(tmp_path / "nowhere")


def test_listing_counts_and_names_files_of_other_kinds(tmp_path) -> None:
    """Hidden files and markers such as _SUCCESS are none: programs put them there, and nobody means them as text."""
    fill(tmp_path, "a.jsonl", "b.json", "c/d.jsonl.xz", "c/e.txt", "f.ndjson", "_SUCCESS", "_log/0.txt", ".git/config")
    fill(tmp_path, ".b.jsonl.crc", os.fsdecode(b"\xff\n.txt"))
    listing = list_all([str(tmp_path)], ENDINGS)
    assert [file.name for file in listing.files] == ["a.jsonl"]
    assert listing.others == OtherFiles(5, ("b.json", "c/d.jsonl.xz", "c/e.txt"))
    others = list_all([str(tmp_path / "[!b-f]*")], ENDINGS).others
    assert others == OtherFiles(1, (r"'\udcff\n.txt'",))
    assert list_all([str(tmp_path / "*.jsonl")], ENDINGS).others is None
    both = list_all([str(tmp_path), str(tmp_path / "*.json")], ENDINGS, named=(".json",))
    assert (len(both.files), both.others and both.others.count) == (2, 4)  # b.json is a source of the second path


@pytest.mark.parametrize(
    ("pattern", "expected", "other"),
    [
        ("*.jsonl*", ["a.jsonl", "b.jsonl.gz"], ["a.jsonl.1"]),
        ("wiki*", ["wiki.jsonl"], ["wikiLICENSE", "wiki_00"]),
        ("*.json", ["c.json"], []),
        ("wiki_*", ["wiki_00"], []),
        ("*.1", ["a.jsonl.1"], []),
    ],
)
def test_listing_pattern_takes_names_without_a_known_ending_only_by_themselves(
    tmp_path, pattern: str, expected: list[str], other: list[str]
) -> None:
    fill(tmp_path, "a.jsonl", "a.jsonl.1", "b.jsonl.gz", "c.json", "wiki.jsonl", "wikiLICENSE", "wiki_00")
    if pattern == "*.jsonl*":
        (tmp_path / "wiki.jsonl").unlink()
    listing = list_all([str(tmp_path / pattern)], ENDINGS, named=(".json", ".gz"))
    assert [file.name for file in listing.files] == expected
    assert listing.others == (OtherFiles(len(other), tuple(other)) if other else None)


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a//b", "./a", "", "a\x00b", "a/.."])
def test_name_that_would_leave_its_folder_is_refused(name: str) -> None:
    with raises("source.name_leaves_folder"):
        safe_relative_name(name, where="s3://bucket")


@given(st.lists(st.integers(0, 10**6), unique=True))
def test_natural_order_numbers_sort_as_numbers(numbers: list[int]) -> None:
    assert sorted((f"part-{number}.jsonl" for number in numbers), key=natural_order) == [
        f"part-{number}.jsonl" for number in sorted(numbers)
    ]


@given(st.lists(st.text(max_size=8), unique=True))
def test_natural_order_is_total_and_independent_of_input_order(texts: list[str]) -> None:
    backwards = texts[::-1]
    assert sorted(texts, key=natural_order) == sorted(backwards, key=natural_order)


def test_store_of_unknown_kind_is_refused() -> None:
    with raises("store.unknown_kind"):
        open_store("ftp://host/data")


@pytest.mark.parametrize("path", ["src", "src/**/*.jsonl", "src/*/*.jsonl", "s*/**/*.jsonl"])
def test_listing_follows_links_to_folders_in_folders_and_in_globs(tmp_path, path: str) -> None:
    fill(tmp_path, "real/a.jsonl", "real/c/d.jsonl", "src/b.jsonl")
    (tmp_path / "src" / "link").symlink_to(tmp_path / "real")
    (tmp_path / "src" / "loop").symlink_to(tmp_path / "src")
    (tmp_path / "real" / "c" / "back").symlink_to("..")
    everything = ["b.jsonl", "link/a.jsonl", "link/c/d.jsonl"]
    expected = {"src/*/*.jsonl": ["link/a.jsonl"], "s*/**/*.jsonl": [f"src/{name}" for name in everything]}
    assert names(tmp_path / path) == expected.get(path, everything)


def test_listing_links_that_form_a_loop_are_bounded(tmp_path) -> None:
    """Twelve folders, each with a link to every other one: 12! ways through them."""
    fill(tmp_path, *(f"f{number}/{number}.jsonl" for number in range(12)))
    for number in range(12):
        for other in range(12):
            (tmp_path / f"f{number}" / f"to{other}").symlink_to(tmp_path / f"f{other}")
    with raises("source.reached_twice"):
        names(tmp_path)


@pytest.mark.parametrize(
    "paths",
    [
        ["src", "src/A"],
        ["src", "src/A/x.jsonl"],
        ["src", "src/B/../A"],
        ["src/*.jsonl", "src/t*.jsonl"],
        ["src/A", "link"],
        ["link/x.jsonl", "src/*/x.jsonl"],
        ["src/A", "same.jsonl"],
        ["linked"],
        ["linked/**/*.jsonl"],
        ["twice"],
        ["twice/*.jsonl"],
    ],
    ids=" ".join,
)
def test_listing_file_that_is_reached_in_two_ways_is_refused(tmp_path, paths: list[str]) -> None:
    """`paths: [src, src/A]` made 15 documents of 10."""
    fill(tmp_path, "src/top.jsonl", "src/A/x.jsonl", "src/B/y.jsonl", "linked/one/z.jsonl", "twice/z.jsonl")
    (tmp_path / "link").symlink_to("src/A")
    (tmp_path / "same.jsonl").symlink_to("src/A/x.jsonl")
    (tmp_path / "linked/two").symlink_to("one")
    (tmp_path / "twice/again.jsonl").symlink_to("z.jsonl")
    with raises("source.reached_twice") as caught:
        names(*(tmp_path / path for path in paths))
    assert str(caught.value).count(str(tmp_path)) == 2


def test_listing_object_that_two_paths_name_is_refused(moto, moto_client) -> None:
    for key in ("data/a.jsonl", "data/deep/b.jsonl"):
        moto_client.put_object(Bucket="corpus", Key=key, Body=b"{}\n")
    with raises("source.reached_twice"):
        list_sources(["s3://corpus/data", "s3://corpus/data/deep"], ENDINGS, moto)


def test_listing_foreign_key_that_no_file_can_have_refuses_only_what_would_be_a_source(moto, moto_client) -> None:
    for key in ("odd/", "odd/a.jsonl", "odd//notes.txt", "odd/../b.txt", "odd/x/./_SUCCESS"):
        moto_client.put_object(Bucket="corpus", Key=key, Body=b"{}\n")
    for path in ("s3://corpus/odd", "s3://corpus/odd/**/*.jsonl"):
        assert [file.name for file in list_sources([path], ENDINGS, moto)] == ["a.jsonl"]
    moto_client.put_object(Bucket="corpus", Key="odd//c.jsonl", Body=b"{}\n")
    with raises("source.name_leaves_folder"):
        list_sources(["s3://corpus/odd"], ENDINGS, moto)


@pytest.mark.parametrize("target", ["gone.jsonl", "link.jsonl"], ids=["gone", "itself"])
@pytest.mark.parametrize("path", ["src", "src/*.jsonl", "src/**/*.jsonl", "s*/*.jsonl"])
def test_listing_link_that_leads_nowhere_is_refused(tmp_path, path: str, target: str) -> None:
    fill(tmp_path, "src/a.jsonl")
    (tmp_path / "src/link.jsonl").symlink_to(target)
    with raises("source.dangling_link", "src/link.jsonl"):
        names(tmp_path / path)


def test_listing_link_to_a_folder_that_is_gone_is_refused_where_it_could_hold_sources(tmp_path) -> None:
    fill(tmp_path, "src/a.jsonl")
    (tmp_path / "src/.#notes").symlink_to("user@host.1234")  # an editor's lock
    (tmp_path / "src/deep").symlink_to(tmp_path / "gone")
    assert names(tmp_path / "src/*.jsonl") == ["a.jsonl"]
    for path in ("src", "src/**/*.jsonl", "src/d*/*.jsonl"):
        with raises("source.dangling_link"):
            names(tmp_path / path)


@pytest.mark.parametrize("path", ["s3://bu*/data.jsonl", "gs://*/x", "hf://datasets/owner/*/data.jsonl", "s3://b//*"])
def test_listing_wildcard_in_a_buckets_name_or_an_empty_part_is_refused_in_words(path: str) -> None:
    with raises("source.name_leaves_folder source.wildcard_in_bucket"):
        names(path)


def test_listing_other_endings_are_sources_only_where_the_path_says_so(tmp_path) -> None:
    fill(tmp_path, "a.json.gz", "b.json", "c.jsonl", "d.json/e.json", "d.json/f.jsonl", "g.json.bz2", ".h.json")

    def named(pattern: str) -> list[str]:
        actual = list_sources([str(tmp_path / pattern)], ENDINGS, named=(".json", ".json.gz"))
        return [file.name for file in actual]

    assert named("") == ["c.jsonl", "d.json/f.jsonl"]
    assert named("*") == ["c.jsonl"]
    assert named("*.json") == ["b.json"]
    assert named("**/*.json") == ["b.json", "d.json/e.json"]
    assert named("*.json.gz") == named("a.json.gz") == ["a.json.gz"]
    assert named("d.json") == ["f.jsonl"]  # a folder, whatever it is called
    assert named("*.json.bz2") == named("g.json.bz2") == ["g.json.bz2"]
    with raises("source.no_known_files"):
        named(".h.json")
    with raises("source.no_known_files"):
        names(tmp_path / "*.json")


PART = st.sampled_from(["a", "b", "ab", "a.jsonl", "b.jsonl", "ab.jsonl", "[a]"])
PATTERN_PART = st.sampled_from(["*", "**", "a*", "?", "?b", "[ab]", "[!a]*", "*.jsonl", "a", "a.jsonl", "*b*"])


NAME = st.lists(PART, min_size=1, max_size=4)
PATTERN = st.lists(PATTERN_PART, min_size=1, max_size=4)


@given(NAME, PATTERN)
def test_glob_matches_what_pathlib_matches_in_a_folder_and_by_name(name: list[str], pattern: list[str]) -> None:
    with TemporaryDirectory() as folder:
        fill(Path(folder), "/".join(name))
        everything_below = ["*"] if pattern[-1] == "**" else []  # as in a shell, and in Python from 3.13 on
        expected = [path for path in Path(folder).glob("/".join(pattern + everything_below)) if path.is_file()]
        assert glob_matches(name, pattern) is bool(expected)
        assert list(walk_files(Path(folder), pattern)) == ["/".join(name)] * len(expected)


@given(NAME, PATTERN, st.integers(0, 3))
def test_glob_that_matches_a_file_may_match_below_each_of_its_folders(name, pattern, depth: int) -> None:
    assert may_match_below(name[:depth], pattern) or depth >= len(name) or not glob_matches(name, pattern)


def test_hard_links_are_one_file_and_refused(tmp_path) -> None:
    """The documents of both were delivered."""
    fill(tmp_path, "a.jsonl")
    (tmp_path / "b.jsonl").hardlink_to(tmp_path / "a.jsonl")
    with raises("source.reached_twice", tmp_path / "b.jsonl"):
        names(tmp_path)
    assert names(tmp_path / "b.jsonl") == ["b.jsonl"]  # one of several names alone is a file as others


def test_fifo_named_as_a_source_is_refused_and_one_of_another_name_counted(tmp_path) -> None:
    """It was skipped, and named nowhere."""
    fill(tmp_path, "a.jsonl")
    os.mkfifo(tmp_path / "control")
    assert list_all([str(tmp_path)], ENDINGS).others == OtherFiles(1, ("control",))
    os.mkfifo(tmp_path / "b.jsonl")
    for path in (tmp_path, tmp_path / "*.jsonl", tmp_path / "b.jsonl"):
        with raises("source.not_a_regular_file") as caught:
            names(path)
        assert dict(caught.value.details)["got"] == "a FIFO (named pipe)"
        assert dict(caught.value.details)["where"] == str(tmp_path / "b.jsonl")


@pytest.mark.parametrize(
    "key", ["data/../x.jsonl", "data//etc/x.jsonl", "data/./x.jsonl", "data/a/../../../x.jsonl", "/etc/x.jsonl"]
)
def test_listing_remote_name_that_would_leave_the_folder_is_refused(moto, moto_client, monkeypatch, key: str) -> None:
    moto_client.put_object(Bucket="corpus", Key=key, Body=b"{}")
    with raises("source.name_leaves_folder"):
        list_sources(["s3://corpus"], (".jsonl",), moto)
    with Hub({key: b"{}\n"}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        with raises("source.name_leaves_folder"):
            list_sources(["hf://datasets/owner/name"], (".jsonl",))


@pytest.mark.parametrize("location", ["s3://corpus//x.jsonl", "s3://corpus/../x.jsonl", "gs://corpus/a//x.jsonl"])
def test_location_with_odd_parts_is_refused_before_anything_is_asked(location: str) -> None:
    with raises("source.name_leaves_folder"):
        list_sources([location], (".jsonl",))


@pytest.mark.parametrize("key", ["a b.jsonl", "ü/中文 №1.jsonl", "a+b%20c.jsonl", "a'\"&<>.jsonl", "deep/er/x.jsonl"])
def test_s3_odd_key_is_a_source_like_any_other(rclone, rclone_client, key: str) -> None:
    rclone_client.put_object(Bucket="corpus", Key=f"data/{key}", Body=b"{}\n")
    (file,) = list_sources(["s3://corpus/data"], (".jsonl",), rclone.endpoint)
    assert file.name == key
    assert open_store("s3://corpus/data", endpoint_url=rclone.endpoint).open(key).read() == b"{}\n"


def test_source_whose_name_holds_brackets_is_listed(tmp_path: Path, rclone, rclone_client) -> None:
    folder = tmp_path / "data [1]"
    folder.mkdir()
    (folder / "x[1].jsonl").write_bytes(b"{}\n")
    rclone_client.put_object(Bucket="corpus", Key="data/x[1].jsonl", Body=b"{}\n")
    for path, name in (
        (str(folder), "x[1].jsonl"),
        (str(folder / "x[1].jsonl"), "x[1].jsonl"),
        ("s3://corpus/data/x[1].jsonl", "x[1].jsonl"),
    ):
        assert [file.name for file in list_sources([path], (".jsonl",), rclone.endpoint)] == [name]
    (folder / "x1.jsonl").write_bytes(b"{}\n")
    (folder / "x[1].jsonl").unlink()
    pattern = str(tmp_path / "data [[]1]" / "x[1].jsonl")
    assert [file.name for file in list_sources([pattern], (".jsonl",))] == ["data [1]/x1.jsonl"]


def test_destination_below_a_source_whose_name_holds_brackets_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data[1]").mkdir()
    with raises("source.contains_output"):
        require_no_overlap([str(tmp_path / "data[1]")], [("destinations", str(tmp_path / "data[1]" / "out"))])


def test_listing_of_many_objects_holds_one_page_and_what_it_accepts(aws) -> None:

    def peak_bytes_of(work: Callable[[], object]) -> int:
        tracemalloc.start()
        try:
            work()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    objects, actual = 3_000, list[StoredFile]()
    with many_objects(objects) as endpoint:
        list_sources(["s3://corpus/data"], (".jsonl",), endpoint)  # what importing takes is not the listing's
        one_page_bytes = peak_bytes_of(lambda: next(open_store("s3://corpus/data", endpoint_url=endpoint).iter_files()))
        peak_bytes = peak_bytes_of(lambda: actual.extend(list_sources(["s3://corpus/data"], (".jsonl",), endpoint)))
    assert len(actual) == objects // 10
    assert [file.size_bytes for file in actual[:3]] == [0, 10, 20]
    # Two clients (is it a file? what is in the folder?) of about 13 MB each, a page, and 300 accepted files.
    assert peak_bytes < 2 * one_page_bytes + (4 << 20)


WITH_CREDENTIALS = [
    "https://name:hush@host/bucket",
    "https://name:hu/sh@host",
    "HTTP://hush@host",
    "https://host/?token=hush",
    "https://host/path#hush",
    "s3://key:hush@bucket/prefix",
    "s3://key:hu/sh@bucket/prefix",
    "gs://hush@bucket",
]


@pytest.mark.parametrize("address", WITH_CREDENTIALS)
def test_address_with_credentials_is_refused_wherever_it_is_given_and_not_repeated(address: str) -> None:
    with pytest.raises(ValueError, match="may not hold credentials"):
        without_credentials(address)
    for call in (open_store, open_location, lambda given: list_sources([given], (".jsonl",))):
        with raises("config.credentials") as caught:
            call(address)
        assert "sh@" not in str(caught.value) + repr(caught.value.__cause__)
    if address.lower().startswith("http"):
        with raises("config.credentials"):
            open_store("s3://bucket", endpoint_url=address)


@pytest.mark.parametrize(
    "address",
    ["hf://datasets/owner/name@main", "s3://b/a@b:c.jsonl", "s3://b/part-?.jsonl", "http://minio:9000", "data@home?"],
)
def test_address_without_credentials_is_taken_as_it_is(address: str) -> None:
    assert without_credentials(address) == address


def test_queries_of_urls_leave_a_text_and_nothing_else_does() -> None:
    text = "403 for 'https://host/a?X-Amz-Signature=hush&x=1' and (http://h:1/b#hush) why?"
    text += " (Caused by ... with url: /upload?upload_id=hush)"
    assert without_queries(text) == "403 for 'https://host/a' and (http://h:1/b why? (Caused by ... with url: /upload"


@pytest.mark.parametrize(
    ("endpoint_url", "warned"),
    [
        ("https://example.com", False),
        ("http://example.com:9000", True),
        ("http://8.8.8.8", True),
        ("http://127.0.0.1:9000", False),
        ("http://[::1]:9000", False),
        ("http://10.1.2.3", False),
        ("http://minio:9000", False),
        ("http://minio.storage.svc", False),
        ("http://store.cluster.local", False),
    ],
)
def test_plain_http_is_warned_of_beyond_private_hosts(caplog, aws, endpoint_url: str, warned: bool) -> None:
    assert is_open_to_others(endpoint_url) == warned
    open_store("s3://bucket", endpoint_url=endpoint_url)
    assert ("not encrypted" in caplog.text) == warned
