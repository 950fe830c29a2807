"""The flow picture: documents, text and tokens as bands through the stages, losses branching off below.

    documents  ███│█████████│█████████████      one band per quantity; thickness is the share of its largest value
               ███│▔╲
                     ▼ -1,203 empty             losses turn down out of their stage; gains rise into it
    text       ███│█████████│
                            │                   the stage that makes tokens of text joins the two bands
    tokens                  │█████████████

Each band has its own scale. Its top is flat, so a loss shows as a lower bottom edge; a loss too thin to see is drawn
two units thick. Stages beside the trunk are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from corpusmill.report import svg
from corpusmill.report.facts import Flow, step_rows
from corpusmill.report.figures import bytes_text, count_text, documents_text, grouped, largest_first, share_text
from corpusmill.report.summary import BuildSummary

MINUS = "\N{MINUS SIGN}"
WIDTH = 1080.0
LEFT, RIGHT = 118.0, 116.0
HEADER = 34.0
ABOVE_BAND = 24.0
BAND = 66.0
NODE = 7.0
THINNEST = 2.0
DROP = 20.0
BEND = 7.0
LABEL_LINE = 15.0
MOST_LABELS = 4
LETTER_WIDTH = 6.1


GRADIENTS = Markup(
    '<defs><linearGradient id="falls" x2="0" y2="1"><stop class="lost-stop"/>'
    '<stop class="lost-stop" offset="1" stop-opacity="0.25"/></linearGradient>'
    '<linearGradient id="rises" x2="0" y2="1"><stop class="gained-stop"/>'
    '<stop class="gained-stop" offset="1" stop-opacity="0.25"/></linearGradient>'
    '<linearGradient id="becomes" x2="0" y2="1"><stop class="text-bytes-stop"/>'
    '<stop class="tokens-stop" offset="1"/></linearGradient></defs>'
)


@dataclass(frozen=True)
class Lane:
    """One quantity: the x of its stages, and what flows through each.

    `top` is the upper edge of its band; `goes_on` is False when the band ends in its last stage.
    """

    name: str
    css_class: str
    as_text: Callable[[float], str]
    stages: tuple[tuple[float, str, Flow], ...]
    top: float
    goes_on: bool

    @property
    def scale(self) -> float:
        """SVG units per document, byte or token."""
        highest = max(max(flow.into + flow.gained_total, flow.out + flow.lost_total) for _, _, flow in self.stages)
        return BAND / highest if highest else 0.0

    @property
    def bottom(self) -> float:
        """Where the next lane may begin: below the labels of the band's losses."""
        reasons = (len(largest_first(flow.lost)) + len(largest_first(flow.gained)) for _, _, flow in self.stages)
        lines = min(MOST_LABELS, max(reasons))
        return self.top + BAND + (DROP + 8 + LABEL_LINE * lines if lines else 10)

    def thickness(self, count: int) -> float:
        """SVG units; at least 0.8, so that it is visible."""
        return max(0.8, count * self.scale)


def flow_picture(summary: BuildSummary) -> Markup:
    """The picture of the trunk stages of `summary`; a sentence if no stage counts anything."""
    trunk = [s for s, _ in step_rows(summary.stages) if s.on_trunk and (s.documents or s.text_bytes or s.tokens)]
    if not trunk:
        return Markup('<p class="empty">no stage has finished yet</p>')
    step = (WIDTH - LEFT - RIGHT) / (len(trunk) + 0.2)
    places = [LEFT + step * (place + 0.4) for place in range(len(trunk))]
    documents = [(x, s.stage, s.documents) for x, s in zip(places, trunk, strict=True) if s.documents]
    text_bytes = [(x, s.stage, s.text_bytes) for x, s in zip(places, trunk, strict=True) if s.text_bytes]
    tokens = [(x, s.stage, s.tokens) for x, s in zip(places, trunk, strict=True) if s.tokens]
    becomes_tokens = bool(text_bytes and tokens and text_bytes[-1][0] == tokens[0][0])

    lanes: list[Lane] = []
    y = HEADER
    for name, css_class, as_text, stages in (
        ("Documents", "documents", documents_text, documents),
        ("Text", "text-bytes", bytes_text, text_bytes),
        ("Tokens", "tokens", count_text, tokens),
    ):
        if stages:
            goes_on = not (becomes_tokens and stages is text_bytes)
            lanes.append(Lane(name, css_class, as_text, tuple(stages), y + ABOVE_BAND, goes_on))
            y = lanes[-1].bottom
    marks = [GRADIENTS, *(svg.line("guide", (x + NODE / 2, 26), (x + NODE / 2, y - 4)) for x in places)]
    marks += [svg.text("stage middle", (x + NODE / 2, 16), s.stage) for x, s in zip(places, trunk, strict=True)]
    if becomes_tokens:
        marks += _conversion(lanes[-2], lanes[-1])
    for lane in lanes:
        marks += _draw_lane(lane, starts_left=lane.stages[0][0] == places[0])
    return svg.drawing(marks, (WIDTH, y), "documents, text and tokens through the stages")


def _draw_lane(lane: Lane, *, starts_left: bool) -> list[Markup]:
    middle = lane.top + BAND / 2
    (first_x, _, first), (last_x, _, last) = lane.stages[0], lane.stages[-1]
    last_share = f"{share_text(last.out, first.into)} of in" if last.out != first.into else ""
    end_class, end = ("end", WIDTH) if lane.goes_on else ("", last_x + NODE + 12)
    marks = [
        svg.text(f"lane {lane.css_class}-ink", (0, middle - 3), lane.name),
        svg.text("lane-count", (0, middle + 15), f"{lane.as_text(first.into)} in", tooltip=grouped(first.into)),
        svg.text(
            f"lane-count strong {end_class}", (end, middle - 3), lane.as_text(last.out), tooltip=grouped(last.out)
        ),
        svg.text(f"lane-count {end_class}", (end, middle + 15), last_share),
    ]
    if starts_left:
        marks.append(_band(lane, (LEFT, first_x), (first.into, first.into)))
    for (x, _, flow), (next_x, _, next_flow) in pairwise(lane.stages):
        marks.append(_band(lane, (x + NODE, next_x), (flow.out, next_flow.into)))
        if flow.out != flow.into:
            marks.append(svg.text("count middle", ((x + NODE + next_x) / 2, lane.top - 7), lane.as_text(flow.out)))
    if lane.goes_on:
        marks.append(_band(lane, (last_x + NODE, WIDTH - RIGHT + 18), (last.out, last.out)))
    # A label may extend to the next stage that has one, or to the bar where the band ends.
    taken = [x for x, _, flow in lane.stages if flow.lost_total + flow.gained_total]
    taken += [] if lane.goes_on else [last_x]
    for x, stage, flow in lane.stages:
        marks += _draw_stage(lane, x, stage, flow)
        room = min([other for other in taken if other > x], default=WIDTH) - x - 2 * NODE
        marks += _draw_labels(lane, x, stage, flow, longest=int(room / LETTER_WIDTH))
    return marks


def _band(lane: Lane, xs: tuple[float, float], counts: tuple[int, int]) -> Markup:
    """The band between two stages. Its ends are equally thick unless counts do not balance."""
    low = [lane.top + lane.thickness(count) for count in counts]
    corners = ((xs[0], lane.top), (xs[1], lane.top), (xs[1], low[1]), (xs[0], low[0]))
    points = " ".join(f"{svg.number(x)},{svg.number(y)}" for x, y in corners)
    band = Markup('<polygon class="band {}" points="{}"/>').format(lane.css_class, points)
    return svg.group(f"{grouped(counts[1])} {_unit(lane)}", band)


def _draw_stage(lane: Lane, x: float, stage: str, flow: Flow) -> list[Markup]:
    height = max(lane.thickness(flow.into + flow.gained_total), lane.thickness(flow.out + flow.lost_total))
    marks = []
    for css_class, amounts, side in (("lost", flow.lost, 1), ("gained", flow.gained, -1)):
        edge = x + NODE if side == 1 else x
        y, reach = lane.top + height, 0.0
        for reason, count in largest_first(amounts):  # the largest is lowest and turns first, so no two cross
            thickness = max(THINNEST, count * lane.scale)
            y = max(lane.top, y - thickness)
            path = _turn((edge, y), thickness, reach, side=side, bottom=lane.top + BAND + DROP)
            tooltip = _amount(lane, stage, flow, reason, count)
            marks.append(svg.group(tooltip, Markup('<path class="{}" d="{}"/>').format(css_class, path)))
            reach += thickness + 3
    tooltip = f"{stage}: {grouped(flow.into)} {_unit(lane)} in, {grouped(flow.out)} out"
    node = svg.rectangle(f"node {lane.css_class}", (x, lane.top - 2), (NODE, height + 4), radius=2)
    return [*marks, svg.group(tooltip, node)]


def _draw_labels(lane: Lane, x: float, stage: str, flow: Flow, *, longest: int) -> list[Markup]:
    labels = [
        (css_class, f"{sign}{lane.as_text(count)} {reason}", _amount(lane, stage, flow, reason, count))
        for css_class, sign, amounts in (("lost-ink", MINUS, flow.lost), ("gained-ink", "+", flow.gained))
        for reason, count in largest_first(amounts)
    ]
    if len(labels) > MOST_LABELS:
        rest = labels[MOST_LABELS - 1 :]
        labels[MOST_LABELS - 1 :] = [("muted", f"and {len(rest)} more reasons", "\n".join(full for _, _, full in rest))]
    marks = []
    for place, (css_class, content, tooltip) in enumerate(labels):
        shown = content if len(content) <= longest else content[: longest - 1] + "…"
        y = lane.top + BAND + DROP + LABEL_LINE * (place + 1)
        marks.append(svg.text(f"flow-label {css_class}", (x + NODE, y), shown, tooltip=tooltip))
    return marks


def _amount(lane: Lane, stage: str, flow: Flow, reason: str, count: int) -> str:
    return f"{stage}: {reason}, {grouped(count)} {_unit(lane)} ({share_text(count, flow.into)} of the input)"


def _unit(lane: Lane) -> str:
    return "bytes" if lane.as_text is bytes_text else lane.name.lower()


def _turn(corner: tuple[float, float], thickness: float, reach: float, *, side: int, bottom: float) -> str:
    """The outline of a band that leaves a stage at `corner` and turns down (side 1), or comes up into it (side -1)."""
    x, y = corner
    outer = BEND + thickness
    bend_x, turned_y = x + side * reach, y + outer
    sweep = (1, 0) if side == 1 else (0, 1)
    n = svg.number
    return (
        f"M{n(x)} {n(y)}H{n(bend_x)}A{n(outer)} {n(outer)} 0 0 {sweep[0]} {n(bend_x + side * outer)} {n(turned_y)}"
        f"V{n(max(bottom, turned_y))}H{n(bend_x + side * BEND)}V{n(turned_y)}"
        f"A{n(BEND)} {n(BEND)} 0 0 {sweep[1]} {n(bend_x)} {n(y + thickness)}H{n(x)}Z"
    )


def _conversion(text_bytes: Lane, tokens: Lane) -> list[Markup]:
    """The stage where the text band ends and the token band begins, as one bar; and the bytes per token."""
    x, _, first = tokens.stages[0]
    height = tokens.top + tokens.thickness(first.into) - text_bytes.top
    bar = svg.rectangle("becomes-tokens", (x, text_bytes.top), (NODE, height))
    if not first.into:
        return [bar]
    ratio = f"{text_bytes.stages[-1][2].out / first.into:.2f} bytes per token"
    return [bar, svg.text("note end", (x - 10, tokens.top + BAND / 2 + 4), ratio)]
