"""The table in `docs/benchmarks.md`, made from the stored results."""

from __future__ import annotations

from typing import Any

from bench import frame, memory_page
from bench.peers import page as peers

PAGE = frame.REPO / "docs/benchmarks.md"
BEGIN = "<!-- begin: made by `python -m bench`, do not edit -->"
END = "<!-- end -->"
_MARKS = {"passed": "met", "failed": "**missed**", "inconclusive": "inconclusive"}


def write() -> None:
    """Put the newest results between the marks."""
    text = PAGE.read_text(encoding="utf-8")
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise ValueError(f"{PAGE.name} has lost its marks")
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n{END}{after}", encoding="utf-8")


def table() -> str:
    names = (*frame.NAMES, *frame.BY_NAME_ONLY)
    return "\n".join(section(record) for name in names if (record := frame.stored(name)))


def section(record: dict[str, Any]) -> str:
    rows = [
        f"### {record['name']}",
        "",
        about(record),
        "",
        "| What | Bar | Measured | Verdict |",
        "|---|---|---|---|",
        *map(row, record["bars"]),
        "",
    ]
    pages = {"peers": peers.page, "recall": memory_page.recall, "retrieval": memory_page.retrieval}
    if record["name"] in pages and record["numbers"]:
        rows.append(pages[record["name"]](record["numbers"]))
    return "\n".join(rows)


def about(record: dict[str, Any]) -> str:
    before, after = record["load_before"][0], record["load_after"][0]
    commit = (record["commit"] or "before the first commit")[:12]
    return (
        f"{record['time']}, {record['seconds']:.0f} s; commit {commit}, store "
        f"{record['store_tree'][:12]}; Python {record['python']}, kernel {record['kernel']}, "
        f"{record['file_system']}, {record['cores']} cores, load {before} before and {after} "
        f"after, {record['others']:.0%} of the processors to others; seed {record['seed']}."
    )


def row(bar: dict[str, Any]) -> str:
    if bar["verdict"] == "absent":
        return f"| {bar['what']} | | | absent: {bar['reason']} |"
    unit = f" {bar['unit']}" if bar["unit"] else ""
    mark = _MARKS.get(bar["verdict"], bar["verdict"])
    why = f": {bar['reason']}" if bar["reason"] else ""
    sense = {"<=": "≤", ">=": "≥", "==": "="}.get(bar["sense"], bar["sense"])
    return (
        f"| {bar['what']} | {sense} {bar['limit']:,g}{unit} | {bar['value']:,g}{unit} "
        f"| {mark}{why} |"
    )
