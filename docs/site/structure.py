"""Draw a checkout's rooms: how long each is, and who imports whom; the drawings of decision 5 of the engine.

    python docs/site/structure.py .                     the picture (SVG)
    python docs/site/structure.py BEFORE . --lines      a table: lines of code by room, of each checkout

A room is a package below corpusmill/, or a file there; the other folders are one room each. Rooms stand in the
order of their imports, what is imported first; a square is a row's room that imports a column's. What lies right of
the diagonal is imported against the order: the two rooms need each other. Imports inside of functions count, those for
the type checker alone do not. A line of code is one that holds more than blanks, comments or docstrings.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("corpusmill", "corpusmill_airflow", "dags", "plugins", "deploy", "demo")
STEP, LEFT, TOP, BAR = 13, 240, 110, 70  # pixels
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def files(root: Path) -> Iterator[tuple[Path, str]]:
    """Every file with its room."""
    for folder in FOLDERS:
        at = root / "pipeline" / folder
        if not at.exists():
            at = root / (
                "pipeline" if folder == "corpusmill" else folder
            )  # as the packages stood once, and other folders
        for path in sorted(at.rglob("*.py")):
            inside = path.relative_to(at).with_suffix("").parts
            if folder != "corpusmill":
                yield path, f"{folder}/"
            elif inside != ("__init__",):
                yield path, inside[0] + "/" * (len(inside) > 1)


def lines_of_code(source: str) -> int:
    tree = ast.parse(source)
    owners = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    first = [node.body[0] for node in owners if node.body]
    texts = [node for node in first if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    docstrings = {line for node in texts for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type not in NO_CODE]
    return len({line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - docstrings)


def imported(tree: ast.AST) -> Iterator[str]:
    """Names of modules that a file imports when it runs."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield from imported(node)


def measure(root: Path) -> tuple[Counter[str], dict[str, set[str]]]:
    """(lines of code by room, which rooms each imports)."""
    lines: Counter[str] = Counter()
    needs: dict[str, set[str]] = defaultdict(set)
    rooms = {room.rstrip("/"): room for _, room in files(root)}
    for path, room in files(root):
        source = path.read_text()
        lines[room] += lines_of_code(source)
        for name in imported(ast.parse(source)):
            package, _, rest = name.partition(".")
            wanted = rooms.get(rest.partition(".")[0] if package == "corpusmill" else package)
            needs[room] |= {wanted} - {room, None}  # type: ignore[arg-type]
    return lines, needs


def ordered(rooms: list[str], needs: dict[str, set[str]]) -> list[str]:
    """Who needs nothing that is left comes first; where rooms need each other, the one that needs the fewest."""
    order: list[str] = []
    while left := [room for room in rooms if room not in order]:
        used = {room: sum(room in needs[other] for other in left) for room in left}
        order.append(min(left, key=lambda room: (len(needs[room] & set(left)), -used[room], room)))
    return order


def draw(root: Path) -> str:
    lines, needs = measure(root)
    order = ordered(sorted(lines), needs)
    most = max(lines.values())
    size = LEFT + STEP * len(order) + 60, TOP + STEP * len(order) + 10
    parts = []
    for row, room in enumerate(order):
        y = TOP + row * STEP
        parts += [
            box(LEFT - BAR - 8, y + 2, BAR * lines[room] / most, STEP - 4, "#9db8d9"),
            f'<text x="{LEFT - BAR - 12}" y="{y + 10}" text-anchor="end">{room} {lines[room]:,}</text>',
            f'<text transform="translate({LEFT + row * STEP + 10} {TOP - 5}) rotate(-60)">{room}</text>',
            box(LEFT + row * STEP, y, STEP, STEP, "#777"),
            f'<path d="M{LEFT} {y + STEP}h{STEP * len(order)}" stroke="#eee"/>',
        ]
        for column, other in enumerate(order):
            if other in needs[room]:
                colour = "#c0392b" if column > row else "#2c5d8f"
                parts.append(box(LEFT + column * STEP + 2, y + 2, STEP - 4, STEP - 4, colour))
    shape = f'viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" height="{size[1]}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {shape} font-family="sans-serif" font-size="10">'
    return "\n".join([head, box(0, 0, *size, "#fff"), *parts, "</svg>"])


def box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width:.4g}" height="{height}" fill="{colour}"/>'


def table(roots: list[Path]) -> str:
    measured = [measure(root)[0] for root in roots]
    single = [Counter({room: count for room, count in lines.items() if room[-1] != "/"}) for lines in measured]
    rows = [("files of corpusmill/ itself", [sum(lines.values()) for lines in single])]
    rooms = {room for lines in measured for room in lines if room[-1] == "/"}
    rows += [(f"`{room}`", [lines[room] for lines in measured]) for room in sorted(rooms)]
    rows += [("**all**", [sum(lines.values()) for lines in measured])]
    return "\n".join(
        f"| {' | '.join([name, *(f'{count:,}' if count else '' for count in counts)])} |" for name, counts in rows
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("roots", nargs="+", type=Path)
    parser.add_argument("--lines", action="store_true")
    asked = parser.parse_args()
    print(table(asked.roots) if asked.lines else draw(asked.roots[0]))
