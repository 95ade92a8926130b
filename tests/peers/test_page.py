"""What the docs say about the peers."""

from typing import Any

from bench.peers.page import HEAD, page


def numbers(**changed: Any) -> dict[str, Any]:
    peer = {
        "configuration": "as it comes",
        "steps": 5_000,
        "syncs": {"each": 2.0, "before_next": 1.0},
        "kills": {"kills": 12, "acknowledged": 1_234, "lost": 0, "times": 0, "wrong": 0},
        "bytes_per_step": 512.0,
        "cpu_us": 80.0,
        "rate": 900.0,
        "rate_of_last_turn": 870.0,
        "ours_to_it": 1.25,
        "resume_ms": 12.5,
        "process_ms": 140.0,
    }
    return {
        "steps": 5_000,
        "versions": {"rival": "1.2"},
        "control_lost": 77,
        "peers": {"Rival": peer | changed},
    }


def cells(text: str) -> dict[str, str]:
    row = next(line for line in text.splitlines() if line.startswith("| Rival"))
    return dict(zip(HEAD, (cell.strip() for cell in row.strip("|").split("|")), strict=True))


def test_a_peer_that_went_through_has_a_row_a_version_and_its_configuration() -> None:
    text = page(numbers())
    assert cells(text)["Kept by"] == "Rival"
    assert cells(text)["Lost of acknowledged"] == "0 of 1,234 in 12 kills"
    assert "rival 1.2" in text
    assert "- **Rival**: as it comes." in text
    assert "lost 77 steps" in text


def test_a_peer_that_was_stopped_says_at_which_step() -> None:
    assert cells(page(numbers(steps=3_200)))["Kept by"] == "Rival (stopped at step 3,200)"


def test_syncs_that_could_not_be_counted_say_why() -> None:
    row = cells(page(numbers(syncs="needs strace")))
    assert row["Syncs per step"] == row["Synced before the next"] == "needs strace"


def test_a_wrong_state_after_a_kill_is_told() -> None:
    kills = {"kills": 3, "acknowledged": 9, "lost": 4, "times": 1, "wrong": 1}
    row = cells(page(numbers(kills=kills)))
    assert row["Lost of acknowledged"] == "4 of 9 in 3 kills, state wrong 1 times"
