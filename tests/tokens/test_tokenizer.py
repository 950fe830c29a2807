from __future__ import annotations

import base64
import dataclasses
import hashlib
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.tokens.ranks import pattern_of, published_source
from corpusmill.tokens.tokenizer import load_tokenizer
from tests.quick import examples
from tests.raising import raises
from tests.tokens.vocabularies import GPT2, described, p50k, sentencepiece, shared, with_model, written

CL100K_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
VOCABULARIES = (
    Path(os.environ.get("CORPUSMILL_TEST_DATA", Path(__file__).parents[3] / "shared" / "data")) / "tokenizers"
)

TRICKY = [
    "",
    " ",
    "\n",
    " " * 300,
    "\t\t\n\r\n  \u00a0\u3000x",
    "<|endoftext|> and <|fim_prefix|>",
    "naïve café e\u0301 中文 日本語 한국어 العربية हिन्दी 🧑‍🚀👩🏽‍🔬",
    "\x00\x01\x7f",
    "a" * 5000,
    "0123456789" * 50,
    "don't I'll we've HE'S",
    "def f(x):\n    return  x  \n",
    "\U0010ffff\ue000\ufeff",
]


@pytest.fixture(scope="module")
def engines():
    return {engine: load_tokenizer("cl100k_base", engine=engine) for engine in ("gigatoken", "tiktoken")}


def test_tokenizer_cl100k_facts_are_those_of_its_authors(engines) -> None:
    tokenizer = engines["gigatoken"]
    assert (tokenizer.vocabulary_size, tokenizer.eot_id, tokenizer.sha256) == (100277, 100257, CL100K_SHA256)
    assert tokenizer.dtype == np.dtype("<u4")


@examples(300)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=60), max_size=4))
def test_tokenizer_engines_give_the_same_ids_for_any_text(engines, texts: list[str]) -> None:
    encoded = [text.encode() for text in texts]
    fast, fast_ends = engines["gigatoken"].encode(encoded)
    slow, slow_ends = engines["tiktoken"].encode(encoded)
    assert fast.tolist() == slow.tolist()
    assert fast_ends.tolist() == slow_ends.tolist()
    assert engines["gigatoken"].decode(fast) == b"".join(encoded)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "gpt5"}, ["tokenizer.unknown", "cl100k_base, o200k_base, p50k_base, r50k_base"]),
        ({"name": "cl100k_base", "engine": "abacus"}, ["tokenizer.unknown_engine", "gigatoken, tiktoken"]),
        (
            {"name": "cl100k_base", "sha256": "0" * 64},
            ["tokenizer.file_differs", "tokenizer.sha256", "0" * 64, CL100K_SHA256],
        ),
        ({"name": "cl100k_base", "file": "/no/such/file"}, ["tokenizer.file_missing", "/no/such/file"]),
    ],
)
def test_tokenizer_that_cannot_be_used_says_why(arguments: dict, message: list[str]) -> None:
    with raises(*message):
        load_tokenizer(**{"engine": "gigatoken", **arguments})


@pytest.mark.parametrize("setting", [{"pattern": "nonsense("}, {"special_tokens": (("<|x|>", 100264),)}])
@pytest.mark.parametrize("name", ["cl100k_base", "tokenizer.json"])
def test_tokenizer_setting_that_the_vocabulary_would_override_is_refused(tmp_path, name: str, setting: dict) -> None:
    """So `tokenize`, `megatron` and `nanoset` refuse them, too."""
    named = name if name == "cl100k_base" else written(described(GPT2), tmp_path)
    with raises("tokenizer.settings_ignored"):
        load_tokenizer(named, **setting)


@pytest.mark.parametrize("name", ["cl100k_base", "tokenizer.json"])
def test_tokenizer_revision_of_what_is_not_of_the_hub_is_refused(tmp_path, name: str) -> None:
    named = name if name == "cl100k_base" else written(described(GPT2), tmp_path)
    with raises("tokenizer.settings_ignored", "tokenizer.revision"):
        load_tokenizer(named, revision="0123abcd")


def test_tokenizer_file_that_is_not_the_expected_one_is_refused(tmp_path) -> None:
    path = tmp_path / "cl100k_base.tiktoken"
    path.write_bytes(b"YQ== 0\n")
    with raises("tokenizer.file_differs", "tiktoken's cl100k_base", path):
        load_tokenizer("cl100k_base", file=str(path), engine="gigatoken")


def cut_cl100k(lines: int) -> bytes:
    """The first lines of cl100k_base.tiktoken."""
    return b"".join(shared("cl100k_base.tiktoken").read_bytes().splitlines(keepends=True)[:lines])


@pytest.mark.parametrize("engine", ["tiktoken", "gigatoken"])
def test_tokenizer_file_that_was_replaced_gives_the_new_files_ids(tmp_path, monkeypatch, engine: str) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "cache"))
    text = b"Internationalization of extraordinary neighbourhoods, deduplicated."
    path = tmp_path / "own.tiktoken"
    wanted = {"engine": engine, "pattern": "cl100k_base", "special_tokens": (("<|endoftext|>", 70_000),)}
    for lines in (60_000, 5_000):
        path.write_bytes(cut_cl100k(lines))
        tokenizer = load_tokenizer(str(path), **wanted)
        ranks = {base64.b64decode(word): int(rank) for word, rank in map(bytes.split, cut_cl100k(lines).splitlines())}
        plain = tiktoken.Encoding("plain", pat_str=pattern_of("cl100k_base"), mergeable_ranks=ranks, special_tokens={})
        assert tokenizer.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert tokenizer.encode([text])[0].tolist() == plain.encode(text.decode())
        assert tokenizer.reference.encode(text).tolist() == plain.encode(text.decode())


def swapped(content: bytes) -> bytes:
    """A .tiktoken file in which ids of two letters changed places."""
    letters = [base64.b64encode(letter) for letter in (b"a", b"b")]
    lines = dict(line.split() for line in content.splitlines())
    lines[letters[0]], lines[letters[1]] = lines[letters[1]], lines[letters[0]]
    return b"".join(b"%s %s\n" % line for line in lines.items())


def test_tokenizer_ids_are_not_chosen_by_who_can_write_to_tiktokens_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    path = shared("r50k_base.tiktoken")
    forged = swapped(path.read_bytes())
    for place in (str(path), published_source("r50k_base")[0]):
        (tmp_path / hashlib.sha1(place.encode(), usedforsecurity=False).hexdigest()).write_bytes(forged)
    tokenizer = load_tokenizer("r50k_base", file=str(path), engine="tiktoken")
    assert tokenizer.encode([b"a"])[0].tolist() == [64]
    for variable, address in {"HTTPS_PROXY": "http://127.0.0.1:1", "NO_PROXY": "", "no_proxy": ""}.items():
        monkeypatch.setenv(variable, address)  # nobody answers there
    with raises("tokenizer.not_fetched") as caught:
        load_tokenizer("r50k_base", engine="tiktoken")
    url = published_source("r50k_base")[0]
    place = tmp_path / hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
    assert f"fetch {url}; then copy it to {place}, or name it as tokenizer.file" in str(caught.value)
    place.write_bytes(path.read_bytes())
    assert load_tokenizer("r50k_base", engine="tiktoken").encode([b"a"])[0].tolist() == [64]


@pytest.mark.parametrize(("name", "dtype", "size"), [("r50k_base", "<u2", 50257), ("o200k_base", "<u4", 200019)])
def test_tokenizer_from_a_vocabulary_file_equals_tiktoken(name: str, dtype: str, size: int) -> None:
    path = VOCABULARIES / f"{name}.tiktoken"
    if not path.exists():
        pytest.skip(f"the shared vocabulary files are not here: {path}")
    fast, slow = (load_tokenizer(name, file=str(path), engine=engine) for engine in ("gigatoken", "tiktoken"))
    assert (fast.dtype, fast.vocabulary_size) == (np.dtype(dtype), size)
    for text in TRICKY:
        assert fast.encode([text.encode()])[0].tolist() == slow.encode([text.encode()])[0].tolist()


def test_tokenizer_p50k_is_tiktokens_file_and_has_its_ids_in_both_engines(tmp_path) -> None:
    path = p50k(tmp_path)  # loading checks that its sha256 is the one that tiktoken names
    tokenizer = load_tokenizer("p50k_base", file=path, engine="tiktoken")
    assert (tokenizer.vocabulary_size, tokenizer.eot_id, tokenizer.dtype) == (50281, 50256, np.dtype("<u2"))
    r50k = load_tokenizer("r50k_base", file=str(shared("r50k_base.tiktoken")), engine="tiktoken")
    for text in TRICKY:
        ids = tokenizer.encode([text.encode()])[0]
        assert tokenizer.decode(ids) == text.encode()
        if "  " not in text:
            assert ids.tolist() == r50k.encode([text.encode()])[0].tolist()
    assert tokenizer.encode([b"a" + b" " * 25 + b"b"])[0].tolist() == [64, 50279, 275]  # 24 spaces, then " b"
    fast = load_tokenizer("p50k_base", file=path, engine="gigatoken")
    for text in [*TRICKY, "a" + " " * 25 + "b"]:
        assert fast.encode([text.encode()])[0].tolist() == tokenizer.encode([text.encode()])[0].tolist()


def test_tokenizer_ids_beyond_uint16_because_of_a_hole_take_four_bytes(tmp_path) -> None:
    description = described(GPT2)
    moved = {token: number + 20_000 * (number > 50_000) for token, number in description["model"]["vocab"].items()}
    path = written({**with_model(description, vocab=moved), "added_tokens": []}, tmp_path)
    fast, slow = (load_tokenizer(path, engine=engine, eot="!") for engine in ("gigatoken", "tokenizers"))
    assert len(moved) < 1 << 16 < fast.vocabulary_size
    assert fast.dtype == np.dtype("<u4")
    assert moved["\u0120gazed"] == 70_255
    assert fast.encode([b" gazed"])[0].tolist() == slow.encode([b" gazed"])[0].tolist() == [70_255]


def test_tokenizer_engine_that_returns_an_id_outside_the_vocabulary_is_refused(engines) -> None:
    narrow = dataclasses.replace(engines["gigatoken"], vocabulary_size=60_000)  # 2 bytes would hold it, cut short
    assert narrow.dtype == np.dtype("<u2")
    with raises("tokenizer.id_outside_vocabulary", "ids below 60,000"):
        narrow.encode([engines["gigatoken"].decode(np.array([99_999]))])


HARD = {
    "1 MB of one letter": b"a" * 1_000_000,
    "1 MB of spaces": b" " * 1_000_000,
    "NUL bytes": b"\x00" * 100_000,
    "all planes": "".join(chr(plane * 0x10000 + low) for plane in range(17) for low in range(0, 0xD800, 997)).encode(),
}


def doubled(description: dict) -> dict:
    """The SentencePiece-style vocabulary with tokens of 2 and 4 letters a, so that a run of them has much to merge."""
    model = description["model"]
    vocabulary = {**model["vocab"], "aa": len(model["vocab"]), "aaaa": len(model["vocab"]) + 1}
    return with_model(description, vocab=vocabulary, merges=[*model["merges"], ["a", "a"], ["aa", "aa"]])


@pytest.mark.slow
@pytest.mark.parametrize("text", [b"a" * 1_000_000, b" " * 1_000_000], ids=["1 MB of one letter", "1 MB of spaces"])
@pytest.mark.parametrize("kind", ["byte fallback", "byte-level"])
def test_tokenizer_json_long_runs_give_the_same_ids_with_both_engines(tmp_path, kind: str, text: bytes) -> None:
    """Where no pattern cuts a text, all of it is one piece: a quadratic BPE would take minutes."""
    path = written(doubled(sentencepiece()), tmp_path) if kind == "byte fallback" else str(shared(GPT2))
    fast, slow = (load_tokenizer(path, engine=engine) for engine in ("gigatoken", "tokenizers"))
    ids, _ = slow.encode([text])
    assert np.array_equal(fast.encode([text])[0], ids)
    assert slow.decode(ids) == text


@pytest.mark.parametrize("name", HARD)
def test_tokenizer_hard_text_gives_tiktokens_ids(engines, name: str) -> None:
    fast, _ = engines["gigatoken"].encode([HARD[name]])
    slow, _ = engines["tiktoken"].encode([HARD[name]])
    assert np.array_equal(fast, slow)


@pytest.mark.parametrize(
    ("name", "eot", "pad"), [("gpt2.tokenizer.json", 50256, 50256), ("gpt-neox-20b.tokenizer.json", 0, 1)]
)
def test_special_ids_of_hugging_face_files_are_their_own(name: str, eot: int, pad: int) -> None:
    tokenizer = load_tokenizer(str(shared(name)), engine="gigatoken")
    assert (tokenizer.eot_id, tokenizer.pad_id) == (eot, pad)


def test_special_ids_of_tokshuf_are_0_and_two_above_the_vocabulary() -> None:
    tokenizer = load_tokenizer(str(shared("gpt2.tokenizer.json")), engine="gigatoken", tokshuf_ids=True)
    assert (tokenizer.eot_id, tokenizer.pad_id, tokenizer.vocabulary_size) == (0, 50259, 50260)


def test_special_ids_of_llama_3_are_its_own_and_not_0(tmp_path) -> None:
    """Llama-3's names and numbers on GPT-2's model: "!" is id 0 in both."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    named = {
        128000: "<|begin_of_text|>",
        128001: "<|end_of_text|>",
        128004: "<|finetune_right_pad_id|>",
        128009: "<|eot_id|>",
    }
    added = [{"id": number, "content": token, **plain} for number, token in named.items()]
    description = described(GPT2, added_tokens=added)
    numbers = {token: number for number, token in named.items()}  # tokenizers numbers what the model lacks by itself
    path = written(with_model(description, vocab={**description["model"]["vocab"], **numbers}), tmp_path)
    tokenizer = load_tokenizer(path, engine="gigatoken")
    assert (tokenizer.bos_id, tokenizer.eot_id, tokenizer.pad_id) == (128000, 128001, 128004)
    assert tokenizer.dtype == np.dtype("<u4")
    assert load_tokenizer(path, engine="gigatoken", pad="<|end_of_text|>").pad_id == 128001
    assert load_tokenizer(path, engine="gigatoken", tokshuf_ids=True).eot_id == tokenizer.encode([b"!"])[0].item() == 0


def test_special_ids_tokenizer_without_eot_is_refused_unless_one_is_named(tmp_path) -> None:
    path = written(sentencepiece(added_tokens=[]), tmp_path)
    with raises("tokenizer.no_eot", "tokenizer.eot"):
        load_tokenizer(path, engine="gigatoken")
    assert load_tokenizer(path, engine="gigatoken", eot="</s>").eot_id == 2
    with raises("tokenizer.no_such_token", "'<nope>'"):
        load_tokenizer(path, engine="gigatoken", eot="<nope>")


def test_special_strings_in_text_are_parsed_only_when_asked_for() -> None:
    path = str(shared("gpt2.tokenizer.json"))
    for engine in ("gigatoken", "tokenizers"):
        for arguments in ({"name": path}, {"name": "cl100k_base"}):
            if arguments["name"] == "cl100k_base" and engine == "tokenizers":
                engine = "tiktoken"  # noqa: PLW2901
            plain = load_tokenizer(**arguments, engine=engine)
            parsed = load_tokenizer(**arguments, engine=engine, parse_special=True)
            assert plain.eot_id not in plain.encode([b"a<|endoftext|>b"])[0]
            assert parsed.encode([b"a<|endoftext|>b"])[0].tolist().count(parsed.eot_id) == 1


@pytest.mark.slow
def test_tokenizer_of_the_hub_comes_from_its_server_pinned_to_the_commit(tmp_path) -> None:
    """A real HTTP server that answers as the hub does; huggingface_hub is a client of it in its own process."""
    commit, body = "a" * 40, shared("gpt2.tokenizer.json").read_bytes()
    asked = []

    class Hub(BaseHTTPRequestHandler):
        def answer(self, *, with_body: bool) -> None:
            asked.append((self.path, self.headers.get("Authorization")))
            known = self.path in {f"/org/model/resolve/{revision}/tokenizer.json" for revision in ("main", commit)}
            self.send_response(200 if known else 404)
            if known:
                self.send_header("ETag", '"' + hashlib.sha256(body).hexdigest() + '"')
                self.send_header("X-Repo-Commit", commit)
            else:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", str(len(body) if known else 0))
            self.end_headers()
            if known and with_body:
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.answer(with_body=False)

        def do_GET(self) -> None:
            self.answer(with_body=True)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    program = (
        "import sys\nfrom corpusmill.tokens.tokenizer import load_tokenizer\n"
        "t = load_tokenizer(sys.argv[1], engine='gigatoken', revision=sys.argv[2] or None)\n"
        "print(t.name, t.revision, t.eot_id, t.sha256)"
    )
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))},
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HOME": str(tmp_path),
        "HF_TOKEN": "hf_test",
        "HF_HUB_DISABLE_XET": "1",
    }

    def load(name: str, revision: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, name, revision]
        root = Path(__file__).parents[2]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=root)

    actual = load("org/model")
    assert actual.stdout.split() == ["org/model", commit, "50256", hashlib.sha256(body).hexdigest()], actual.stderr
    assert ("/org/model/resolve/main/tokenizer.json", "Bearer hf_test") in asked
    assert "the hub has no such tokenizer" in load("org/other").stderr
    server.shutdown()
    server.server_close()
    environment["HF_HUB_OFFLINE"] = "1"  # without it the client would try again for half a minute
    assert load("org/model", commit).stdout.split()[1] == commit  # from the cache, without the server
    assert "the hub cannot be reached" in load("org/third").stderr


def test_tokenizer_of_a_token_that_a_higher_rank_makes_is_encoded_by_gigatoken(tmp_path) -> None:
    """Llama 3 has such tokens."""
    tokens = [bytes([byte]) for byte in range(256)] + [b"the", b"th"]
    path = tmp_path / "odd.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens)))
    settings = {"pattern": "llama3", "special_tokens": (("<|endoftext|>", 263),)}
    fast, slow = (load_tokenizer(str(path), engine=engine, **settings) for engine in ("auto", "tiktoken"))
    assert fast.engine == "gigatoken"
    texts = [b"the then bathe", b"thetheth ethe"]
    assert fast.encode(texts)[0].tolist() == slow.encode(texts)[0].tolist()
