"""How many of the repository's tests pass."""

import json
import sys
import unittest
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TOP), str(TOP / "tests")]
suite = unittest.defaultTestLoader.discover(str(TOP / "tests"))
result = unittest.TextTestRunner(stream=sys.stderr).run(suite)
passed = result.testsRun - len(result.failures) - len(result.errors)
print(json.dumps({"primary": passed, "sub_scores": {"tests": result.testsRun}}))
