"""Lines of each room of the package beside its budget.

    python tools/budgets.py [ROOT]

A room is a folder of `src/holdfast`; the modules beside them are `leaves`.  Python, templates,
scripts and sheets count.  Red when a room or all of them together are over budget, and when a
room has none in `tools/budgets.toml`.
"""

import sys
import tomllib
from collections import Counter
from pathlib import Path

COUNTED = {".py", ".html", ".js", ".css", ".svg", ".sql"}


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    budgets = tomllib.loads((root / "tools/budgets.toml").read_text(encoding="utf-8"))["lines"]
    lines = lines_in(root / "src/holdfast")
    print(f"{'room':<12}{'lines':>8}{'budget':>8}")
    red = 0
    for room, count in [*sorted(lines.items()), ("total", lines.total())]:
        budget = budgets.get(room)
        row = f"{room:<12}{count:>8}{budget if budget is not None else 'none':>8}"
        if budget is None:
            row += "  give it one in tools/budgets.toml"
        elif count > budget:
            row += f"  over by {count - budget}"
        red += budget is None or count > budget
        print(row)
    return 1 if red else 0


def lines_in(package: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for file in package.rglob("*"):
        if file.suffix in COUNTED:
            room, *below = file.relative_to(package).parts
            found[room if below else "leaves"] += len(file.read_bytes().splitlines())
    return found


if __name__ == "__main__":
    sys.exit(main())
