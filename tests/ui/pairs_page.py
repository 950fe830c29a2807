"""Reports with ten pairs of near-duplicates, for the browser: `python pairs_page.py FOLDER` writes FOLDER/*.html.

`pages.html` has pages of a site and their copies, `hard.html` texts that are hard to lay out.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from corpusmill.builds.graph import open_build  # noqa: E402
from corpusmill.builds.local import build_dataset  # noqa: E402
from corpusmill.config import check_config  # noqa: E402
from corpusmill.report.html import render_html  # noqa: E402
from corpusmill.upload.stages.summarize import summarize  # noqa: E402
from tests.system.corpus import configuration  # noqa: E402

PLACES = ("Hallstatt", "Bergen", "Kotor", "Ronda", "Sintra", "Gjirokastra", "Piran", "Visby", "Bled", "Tallinn")
THINGS = ("harbour", "market", "old bridge", "salt mine", "lighthouse", "mill", "castle", "ferry", "brewery", "tower")
SENTENCES = (
    "The {0} of {1} opens at nine and closes {2} minutes after the last visitor has left.",
    "From the station it is {2} minutes on foot, past the {0} and along the water.",
    "Most people who come to {1} for a day see only the {0}, and miss the hills behind it.",
    "A ticket costs {2} euros; children, and everybody who lives in {1}, pay nothing.",
    "Bring a coat, because the wind at the {0} is cold even in July.",
    "The guide in {1} told us that the {0} burned down twice and was rebuilt within {2} years.",
)


def site() -> list[str]:
    """Three hundred pages, of which a third are copies that differ in some words, a header or their end."""
    chance, pages = random.Random(5), []
    for number in range(200):
        place, numbers = PLACES[number % 10], chance.choices(range(5, 95), k=7)
        text = [chance.choice(SENTENCES).format(chance.choice(THINGS), place, numbers[0]) for numbers[0] in numbers]
        pages.append(f"{place}, guide {number}\n\n" + " ".join(text))
        if number % 2 == 0:
            words = pages[-1].split(" ")
            for at in chance.sample(range(4, len(words)), chance.randrange(1, 4)):
                words[at] = chance.choice(("nearby", "2026", "usually", "small", "famous"))
            pages.append("Updated in spring. " * (number % 4 == 0) + " ".join(words))
    return pages


def hard() -> list[str]:
    """Texts with long words, from right to left, without spaces, of a megabyte, and of markup; each with a copy."""
    long, arabic, chinese = "x" * 3000, "كان الميناء القديم مفتوحا في الصباح ", "港口早上开门晚上关门游客很多天气寒冷"
    texts = [
        f"a word without an end {long} and some words behind it that are the same in both of the texts",
        arabic * 6 + "English words in between " + arabic * 3,
        "הנמל הישן נפתח בבוקר ונסגר בערב " * 8,
        chinese * 20,
        "<script>alert(document.title)</script> <b>bold</b> &amp; </div></section> " * 6 + "the end of the page it is",
        " ".join(f"word{number}" for number in range(120_000)),
        "line\n" * 400 + "one two three four five six",
        "https://example.org/" + "a-very-long-path/" * 60 + "?q=1 read this page to its end, please, all of it",
        "\u202eoverride\u202c and \u200b\u200d zero width " * 10,
        "ภาษาไทยไม่มีช่องว่างระหว่างคำ" * 12,
    ]
    return [text for whole in texts for text in (whole, whole + " 结束 changed")]


def write_page(folder: Path, name: str, texts: list[str], similarity: float) -> None:
    """Build a dataset of the texts in `folder/name`, and write its report."""
    root = folder / name
    root.mkdir(parents=True)
    lines = [json.dumps({"id": f"{name}-{number}", "text": text}) + "\n" for number, text in enumerate(texts)]
    (root / f"{name}.jsonl").write_text("".join(lines))
    near = {"action": "remove", "similarity": similarity, "most_removed": 1}
    values = {"source": {"paths": [str(root / f"{name}.jsonl")]}, "near_duplicates": near, "exports": {"megatron": {}}}
    build = open_build(build_dataset(check_config(configuration(root, **values), where="test"), workers=1))
    (folder / f"{name}.html").write_text(render_html(summarize(build)))


if __name__ == "__main__":
    write_page(Path(sys.argv[1]), "pages", site(), 0.6)
    write_page(Path(sys.argv[1]), "hard", hard(), 0.3)
