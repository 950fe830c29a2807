"""Small corpora of near-duplicates and of texts that are hard to split, in many scripts."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable

ALPHABETS = {
    "latin": "abcdefghij",
    "german": "aäöüßsSẞtÄ",
    "turkish": "ıIiİğĞşçkK",
    "greek": "αάσςΣΑΰοΰ",
    "cyrillic": "абвгдйЙёЁж",
    "arabic": "ابتثجحخدذرَُّ",
    "hebrew": "אבגדהוּשׁ",
    "devanagari": "कखगघङािीुू्ं",
    "hangul": "가각간힣ᄀ까ᅢᆨ",
    "han": "中文测试数据語㐀𠀀々",
    "kana": "ひらがなカタカナーﾃﾞｶﾞがガ",
    "thai": "ภาษไทยกำลัง้ี",
    "lao": "ພາສາລາວກຳ້",
    "khmer": "ភាសាខ្មែរ",
    "myanmar": "မြန်မာဘာသာ",
    "digits": "0123٣٤५६๑๒Ⅷ²½",
    "mixed": "aZ9中가क\u0301\u0323\u20dd\ufe0f\u200d\u200bαẞ",
}
SEPARATORS = (
    " ",
    " ",
    " ",
    "\n",
    ", ",
    "-",
    "_",
    "'",
    "\u2019",
    "\u00a0",
    "\u3000",
    "。",
    "\u200b",
    "\U0001f600",
    "²",
    "Ⅷ",
)
ODD = (
    "",
    " ",
    "\n\n",
    "!?.",
    "\U0001f600\U0001f680",
    "a",
    "A",
    "ß",
    "ss",
    "İ",
    "i\u0307",
    "ı",
    "\u0301",
    "\u0301a",
    "\u0e31",
    "\u0e31a",
    "\u0301中",
    "中",
    "中\u0301",
    "中文",
    "a b c",
    "A, b; C!",
    "a b c d",
    "a b c d e",
    "a b c d e f",
    "\u212b",  # ångström sign, whose composition is another character
    "\u0344",  # decomposes though composed
    "\u01f0",  # folds to two characters
    "\U0001d15e",  # its composition is never made
    "\ufdfa",  # eighteen characters when compatible
    "\x00",
    "\ufffd",
    "\U0010ffff",
    "한국어 문장",
    "ﾃﾞｰﾀ",
)


def _word(chance: random.Random, alphabet: str) -> str:
    return "".join(chance.choice(alphabet) for _ in range(chance.randint(1, 6)))


def _text(chance: random.Random) -> list[str]:
    """Words and separators in turn, of one script, with words of another here and there."""
    own = chance.choice(list(ALPHABETS))
    pieces = []
    for _ in range(chance.choice([0, 1, 3, 4, 5, 6, 20, 20, 60, 60])):
        pieces += [_word(chance, ALPHABETS[own if chance.random() < 0.95 else chance.choice(list(ALPHABETS))])]
        pieces += [chance.choice(SEPARATORS)]
    return pieces


def _edited(pieces: list[str], chance: random.Random) -> list[str]:
    """Some words replaced, left out or doubled, or an end cut."""
    pieces = list(pieces)
    for _ in range(chance.choice([0, 0, 1, 1, 1, 2, 3, 6])):
        at = 2 * chance.randrange(len(pieces) // 2 + 1)
        change = chance.choice(["replace", "omit", "double", "cut"])
        if change == "replace":
            pieces[at : at + 1] = [_word(chance, "vwxyz")] if at < len(pieces) else []
        elif change == "omit":
            pieces[at : at + 2] = []
        elif change == "double":
            pieces[at:at] = pieces[at : at + 2]
        elif chance.random() < 0.3:
            pieces = pieces[: max(at, len(pieces) * 3 // 4)]
    return pieces


SPELLINGS: tuple[Callable[[str], str], ...] = (
    *(lambda text: text,) * 6,
    str.upper,
    str.lower,
    str.casefold,
    lambda text: unicodedata.normalize("NFC", text),
    lambda text: unicodedata.normalize("NFD", text),
    lambda text: unicodedata.normalize("NFKC", text),
    lambda text: text.replace(" ", " \u2014 "),
    lambda text: text + "!",
)


def corpus(seed: int, documents: int = 200) -> list[str]:
    """Families of similar texts in random order, and odd ones, some more than once. A function of `seed` alone."""
    chance = random.Random(seed)
    texts: list[str] = []
    while len(texts) < documents:
        if chance.random() < 0.15:
            texts.append(chance.choice(ODD))
            continue
        pieces = _text(chance)
        for _ in range(chance.choice([1, 1, 2, 3, 8])):
            pieces = _edited(pieces, chance)
            texts.append(chance.choice(SPELLINGS)("".join(pieces)))
    chance.shuffle(texts)
    return texts[:documents]
