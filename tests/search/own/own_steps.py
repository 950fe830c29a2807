"""Steps of the search's datasets; tests/oracles/chain.py says what each does, without them."""

from corpusmill.steps import Drop, Keep


def without(document, word, most):
    return Drop("too often") if document.text.count(word) > most else None


def cut(document, first, last):
    return Keep(cut=[(first, last)]) if len(document.text) >= last else True


def replaced(document, word, by):
    return document.text.replace(word, by)
