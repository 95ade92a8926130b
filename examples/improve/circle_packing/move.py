"""An executor: relaxes the packing, shakes it, and puts a few circles into the largest holes.

It follows the contract of any executor: one JSON request on the standard input, edits in the
current directory, one JSON object as the last line.

    holdfast improve init … --executor "command:python3 /path/to/move.py"
"""

import json
import math
import random
import re
import sys
from pathlib import Path

sys.path.insert(0, ".")
sys.dont_write_bytecode = True
from pack import pack  # noqa: E402


def hole(circles: list[tuple[float, float, float]], chance: random.Random) -> tuple[float, float]:
    """The middle of about the largest hole between the circles."""
    places = [(chance.random(), chance.random()) for _ in range(300)]

    def room(place: tuple[float, float]) -> float:
        x, y = place
        gaps = (math.hypot(x - a, y - b) - r for a, b, r in circles)
        return min(x, 1 - x, y, 1 - y, *gaps)

    return max(places, key=room)


request = json.load(sys.stdin)
chance = random.Random(request["seed"])
circles = pack()
shake = chance.choice((0.002, 0.01, 0.03))
out = set(chance.sample(range(len(circles)), chance.choice((0, 1, 1, 2, 3))))
kept = [circle for at, circle in enumerate(circles) if at not in out]
start: list[tuple[float, float]] = []
for at, (x, y, _) in enumerate(circles):
    if at in out:
        place = hole(kept, chance) if chance.random() < 0.7 else (chance.random(), chance.random())
    else:
        place = x + chance.gauss(0, shake), y + chance.gauss(0, shake)
    start.append(tuple(min(1.0, max(0.0, each)) for each in place))
path = Path("pack.py")
rows = "".join(f"    ({x:.9f}, {y:.9f}),\n" for x, y in start)
before = path.read_text(encoding="utf-8")
text = re.sub(r"(?ms)(START = \[[^\n]*\n).*?^\]", rf"\1{rows}]", before)
path.write_text(text, encoding="utf-8")
moved = f"{len(out)} circles moved to holes, the others by {shake:g}, seed {request['seed']}"
print(json.dumps({"hypothesis": f"A denser packing is near: {moved}"}))
