"""A supervisor without a model: looks at the file itself, not at what the worker says of it."""

import json
import sys
from pathlib import Path

json.load(sys.stdin)
mended = "int(count) * int(price)" in Path("tally.py").read_text(encoding="utf-8")
answer = {
    "action": "COMPLETED" if mended else "RETRY",
    "evidence_files": [],
    "summary_for_supervisor": "tally.py multiplies now; nothing else was changed."
    if mended
    else "tally.py does not multiply count and price.",
}
print(json.dumps(answer))
