"""Scores a program by how near it comes to the least value."""

import importlib.util
import math


def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    x, y = program.run_search()
    value = math.sin(x) * math.cos(y) + math.sin(x * y) + (x * x + y * y) / 20
    return {
        "value": value,
        "distance": math.dist((x, y), (-1.704, 0.678)),
        "combined_score": -value,
    }
