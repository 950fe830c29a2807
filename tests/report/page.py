"""A page taken apart: every element with its attributes and depth, and proof that the tags nest."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "col", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Parse `text`; AssertionError where an end tag does not close the element that is open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1] == tag, f"</{tag}> inside <{self._open[-1]}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        """All text, white space folded."""
        return " ".join("".join(self.words).split())

    def all(self, tag: str, css_class: str | None = None) -> list[dict[str, str]]:
        """Attributes of every element of this tag (and class)."""
        return [
            attributes
            for name, attributes in self.elements
            if name == tag and (css_class is None or css_class in attributes.get("class", "").split())
        ]
