"""A worker without a model: reads the request on standard input, edits files, answers.

Its first try is careless, so that the gate has something to refuse: what the gate printed is in the
next request, and the second try takes it seriously.
"""

import json
import sys
from pathlib import Path

request = json.load(sys.stdin)
told_what_is_wrong = "not accepted" in request["task_description"]
tally = Path("tally.py")
text = tally.read_text(encoding="utf-8")
if told_what_is_wrong:
    text = text.replace("int(count) - int(price)", "int(count) * int(price)")
else:
    text = text.replace("int(count) + int(price)", "int(count) - int(price)")
tally.write_text(text, encoding="utf-8")
summary = "The price is taken as often as the line says." if told_what_is_wrong else "It is mended."
print(
    json.dumps(
        {
            "action": "COMPLETED",
            "evidence_files": ["tally.py"],
            "summary_for_supervisor": summary,
        }
    )
)
