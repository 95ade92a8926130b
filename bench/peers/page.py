"""The peers' part of `docs/benchmarks.md`, made from the stored numbers."""

from __future__ import annotations

from typing import Any

HEAD = (
    "Kept by",
    "Steps/s",
    "of the last turn",
    "Holdfast is",
    "CPU per step",
    "Bytes per step",
    "Syncs per step",
    "Synced before the next",
    "Resume",
    "with its process",
    "Lost of acknowledged",
)


def page(numbers: dict[str, Any]) -> str:
    peers: dict[str, dict[str, Any]] = numbers["peers"]
    versions = ", ".join(f"{name} {version}" for name, version in numbers["versions"].items())
    rows = [row(name, peer, numbers["steps"]) for name, peer in peers.items()]
    return "\n".join(
        [
            f"The same {numbers['steps']:,} steps, kept by each; {versions}.",
            "",
            f"| {' | '.join(HEAD)} |",
            f"|{'---|' * len(HEAD)}",
            *rows,
            "",
            *(f"- **{name}**: {peer['configuration']}." for name, peer in peers.items()),
            "",
            f"The control of the kills lost {numbers['control_lost']} steps, as it had to.",
            "",
        ]
    )


def row(name: str, peer: dict[str, Any], steps: int) -> str:
    stopped = f" (stopped at step {peer['steps']:,})" if peer["steps"] < steps else ""
    syncs = peer["syncs"]
    counted = (
        (syncs, syncs)
        if isinstance(syncs, str)
        else (
            f"{syncs['each']:g}",
            f"{syncs['before_next']:.0%} of steps",
        )
    )
    kills = peer["kills"]
    lost = f"{kills['lost']} of {kills['acknowledged']:,} in {kills['kills']} kills"
    wrong = f", state wrong {kills['wrong']} times" if kills["wrong"] else ""
    cells = (
        name + stopped,
        f"{peer['rate']:,.0f}",
        f"{peer['rate_of_last_turn']:,.0f}",
        f"{peer['ours_to_it']:.3g} × as fast",
        f"{peer['cpu_us']:,.0f} µs",
        f"{peer['bytes_per_step']:,.0f}",
        *counted,
        f"{peer['resume_ms']:,.1f} ms",
        f"{peer['process_ms']:,.0f} ms",
        lost + wrong,
    )
    return f"| {' | '.join(cells)} |"
