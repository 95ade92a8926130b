"""What `docs/benchmarks.md` says of search beside others."""

from __future__ import annotations

from typing import Any

_NAMES = {
    "holdfast": "Holdfast",
    "grep": "grep",
    "fts5": "SQLite FTS5",
    "minilm_alone": "MiniLM alone",
    "chance": "chance",
}
_SEARCHED = {
    "search": "Holdfast, words and meaning",
    "vectors_alone": "Holdfast, vectors alone",
    "faiss_alone": "FAISS IVFFlat",
    "numpy_exact": "numpy, exact",
    "sqlite_vec": "sqlite-vec",
    "mem0": "mem0's store for FAISS",
}


def recall(numbers: dict[str, Any]) -> str:
    facts, docs = numbers["facts"], numbers["docstrings"]
    corrected, sure = facts["questions"]["of_updates"], facts["never_happened_told_apart"]
    rows = [
        f"{facts['texts']:,} texts of {facts['sessions']} sessions; "
        f"{facts['in_other_words']:.0%} of the questions share no word with the text that answers "
        f"them. Stale: how often of {corrected} facts that were corrected the old one stands above "
        "the new one. Forgotten: how many of 100 facts that were forgotten are shown.",
        "",
        "| | R@5 | R@10 | nDCG@10 | stale | forgotten | µs of processor time, without embedding |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, shown in _NAMES.items():
        row = facts["judged"][name]
        rows.append(
            f"| {shown} | {row['recall_5']:.3f} | {row['recall_10']:.3f} | {row['ndcg_10']:.3f} | "
            f"{facts['stale_above_new'][name]} | {facts['forgotten_shown'][name]} | "
            f"{facts['microseconds_without_embedding'][name]:,.0f} |"
        )
    kinds = ", ".join(
        f"{kind} {row['recall_5']:.2f}" for kind, row in facts["holdfast_by_kind"].items()
    )
    low, high = docs["interval_95"]
    current = numbers["changes"]["current_first"]
    rows += [
        "",
        f"R@5 by kind of question: {kinds}. Of a question about what never happened, the best "
        f"score is below that of one with an answer in {sure:.0%} of all pairs. "
        f"{facts['bytes_a_text']:,} bytes a text, with log, index and vectors.",
        "",
        f"{docs['count']} docstrings by module and name: nDCG@10 {docs['ndcg_10_words']:.3f} by "
        f"words, {docs['ndcg_10_words_and_meaning']:.3f} with meaning; the difference is "
        f"{low:.3f} to {high:.3f} (95 %, paired bootstrap). {numbers['changes']['facts']} facts "
        f"that change, the current one first: {current['supersedes']:.0%} by `--supersedes`, "
        f"{current['decay']:.0%} by `--decay`, {current['vectors_alone']:.0%} by vectors alone.",
        "",
    ]
    return "\n".join(rows)


def retrieval(numbers: dict[str, Any]) -> str:
    rows = [
        f"{numbers['texts']:,} paragraphs of the Python library and of installed packages "
        f"({numbers['characters'] / 1e6:.0f} million characters), vectors of {numbers['vectors']}; "
        f"{numbers['questions']} held-out paragraphs as questions; times after the embedding.",
        "",
        "| | recall@10 of the nearest vectors | ms, median | ms of processor time |",
        "|---|---|---|---|",
    ]
    for name, shown in _SEARCHED.items():
        if f"ms_{name}" in numbers:
            found = numbers.get(f"recall_{name}", numbers["recall"])
            cpu = numbers.get(f"ms_{name}_cpu", "")
            found = "" if name == "search" else found
            rows.append(f"| {shown} | {found} | {numbers[f'ms_{name}']} | {cpu} |")
    return "\n".join([*rows, ""])
