"""Any program as a model: it is run, given the prompt, and what it prints is the answer.

`command:COMMAND LINE` is split into words by the rules of a shell, and no shell ever sees it.
The prompt goes to standard input; or into the words that have `{prompt}` in them; or into a file
that only we can read, whose path stands for `{prompt_file}`.  The answer is what it prints, or a
field of it: before the program, `field=PATH` (names with dots between them; a mere dot is all of
it) says where in the JSON, `event=TYPE` in which of the JSON lines; the last one counts.  Programs
in `recipes` need none of this.

A call is a tree of processes of its own: nothing of it is left when the call ends, however it ends.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from secrets import token_hex
from tempfile import gettempdir

from holdfast.clock import Clock, SystemClock
from holdfast.errors import ModelError, TooLong, typed
from holdfast.models.output import Pieces, checked, too_late, unusable
from holdfast.models.programs import Failing, as_model_errors, limits_for, words_of
from holdfast.models.prompt import as_one_text
from holdfast.models.protocol import MOST_OUTPUT, OnText, PerCall, Reply, Request
from holdfast.models.recipes import PLAIN, RECIPES, Recipe, value_of
from holdfast.models.report import At, Form, Report, objects, read, usd
from holdfast.proc.command import program_of
from holdfast.proc.limits import Ended
from holdfast.proc.output import Keep, Stream
from holdfast.proc.tree import Tree
from holdfast.workspace.command import our_environment, program
from holdfast.workspace.sandbox import Sandbox

PROMPT, PROMPT_FILE = "{prompt}", "{prompt_file}"
_LONGEST_ARGUMENT = 128 << 10
"""Of one word, in Linux, with the zero byte at its end."""
_RM = shutil.which("rm")
_PREFIX = "holdfast-prompt-"


class Command(PerCall):
    """A program that is run once for each question; used by one thread at a time."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        recipe: Recipe | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        memory: int | None = None,
        output: int = MOST_OUTPUT,
        ref: str | None = None,
        clock: Clock | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:
        """Of a program and its arguments; NotFound if it is not there.

        The recipe is that of the program's name unless one is given.  `env` replaces our own
        environment.  `memory` and `output` are limits in bytes.
        """
        self._env, self._cwd = our_environment() if env is None else dict(env), cwd
        program_of(words, self._env, cwd)
        name = os.path.basename(words[0])
        self._recipe = recipe = RECIPES.get(name, PLAIN) if recipe is None else recipe
        self.ref, self._name = ref or f"command:{shlex.join(words)}", name
        placed = any(PROMPT in word or PROMPT_FILE in word for word in words)
        self._words = [words[0], *recipe.arguments(words[1:], has_prompt=placed)]
        self._form = recipe.form_for(self._words)
        self._memory, self._most_output = memory, output
        self._failing = Failing(name, recipe.exits)
        self._clock, self._sandbox = clock or SystemClock(), sandbox
        form = self._form
        self.tells_cost = bool(form and form.cost) or recipe.cost_line is not None
        """Whether the program says what its answers cost."""
        self.session: str | None = None
        """What the program calls the conversation that it had last, if it tells."""

    def ask(self, request: Request, on_text: OnText | None = None) -> Reply:
        if request.timeout <= 0:
            raise too_late(self._name, request.timeout)
        pieces = _Plain(on_text if self._form is None else None, self._clock)
        with ExitStack() as stack:
            with as_model_errors(self._name):
                tree = self._started(request, pieces, stack)
            ended = tree.wait()
        pieces.end()
        report = self._report(ended, pieces.text)
        self.session = report.session
        model, text = report.model or self.ref, report.text or ""
        reply = pieces.reply(text, model, report.usage, report.cost_usd, report.finish)
        if (error := self._failing.of(ended, request.timeout, report.failed)) is not None:
            error.reply = reply if reply.text or reply.cost_usd is not None else None
            raise error
        if report.text is None or (self._form is None and not report.text):
            raise unusable(
                reply._replace(text=pieces.text),
                "not in the form that was expected" if pieces.text else "with nothing",
                "check its arguments; `field=PATH` before the program says where the answer is",
            )
        if on_text is not None and self._form is not None:
            on_text(reply.text)
        return checked(request, reply, fenced=True)

    def most_usd(self, request: Request) -> float | None:
        option = self._recipe.most_usd
        given = None if option is None else value_of(self._words, [option])
        try:
            return None if given is None else usd(float(given))
        except ValueError:
            return None

    # --- running ----------------------------------------------------------------------------

    def _started(self, request: Request, pieces: _Plain, stack: ExitStack) -> Tree:
        prompt = as_one_text(request)
        folder, words = None, self._words
        if any(PROMPT_FILE in word for word in words):
            folder = os.path.join(gettempdir(), f"{_PREFIX}{token_hex(8)}")
            stack.callback(shutil.rmtree, folder, ignore_errors=True)  # noqa: TID251  # direct write: a folder not of a home
            words = [word.replace(PROMPT_FILE, f"{folder}/prompt") for word in words]
        by_argument = any(PROMPT in word for word in self._words)
        words = [_filled(word, prompt) for word in words] if by_argument else words
        tree = program(
            words,
            limits=limits_for(request, memory=self._memory, output=self._most_output),
            env=self._env,
            cwd=self._cwd,
            sandbox=self._sandbox,
            stdin=None if by_argument or folder else prompt,
            # When the keeper is there: before, nobody would remove the file if we were killed.
            on_start=(lambda _: _put(prompt, folder)) if folder else None,
            on_output=pieces.take,
            keep=Keep(self._most_output, 0),
            orphaned=[_RM, "-rf", folder] if folder and _RM else None,
            clock=self._clock,
        )
        return stack.enter_context(tree)

    def _report(self, ended: Ended, text: str) -> Report:
        if self._form is not None:
            return read(self._form, list(objects(ended.stdout.head.decode("utf-8", "replace"))))
        costs = re.findall(self._recipe.cost_line, text) if self._recipe.cost_line else []
        return Report(text, cost_usd=usd(float(costs[-1])) if costs else None)


class _Plain(Pieces):
    """Plain text as it comes, without the white space around it."""

    def __init__(self, on_text: OnText | None, clock: Clock) -> None:
        super().__init__(on_text, clock)
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def take(self, stream: Stream, data: bytes) -> None:
        if stream == "out":
            self._take(self._decoder.decode(data))

    def end(self) -> None:
        """Nothing more will come, not even the rest of a character."""
        self._take(self._decoder.decode(b"", final=True))

    def _take(self, new: str) -> None:
        text = self._held + new if self._parts else new.lstrip()
        shown = text.rstrip()
        self._held = text[len(shown) :]
        if shown:
            self.add(shown)


# --- giving the prompt ----------------------------------------------------------------------


def _put(prompt: str, folder: str) -> None:
    with typed("writing the prompt"):
        os.mkdir(folder, 0o700)  # noqa: TID251  # direct write: a folder not of a home
        private = partial(os.open, mode=0o600)  # noqa: TID251  # direct write: not of a home
        with open(f"{folder}/prompt", "xb", opener=private) as file:  # direct write: the same
            file.write(prompt.encode())


def _filled(word: str, prompt: str) -> str:
    """A word with the prompt in it, which can never become an option."""
    if PROMPT not in word:
        return word
    if "\0" in prompt:
        raise ModelError(
            "a zero byte in a prompt that is given as an argument",
            hint=f"give it by standard input or {PROMPT_FILE}",
        )
    if word.startswith(PROMPT) and prompt.startswith("-"):
        prompt = f"\n{prompt}"
    filled = word.replace(PROMPT, prompt)
    if len(filled.encode()) >= _LONGEST_ARGUMENT:
        too_long = TooLong(
            f"a prompt of {len(prompt)} characters is too long for an argument",
            hint=f"give it by standard input or {PROMPT_FILE}",
        )
        too_long.free = True
        raise too_long
    return filled


# --- by name --------------------------------------------------------------------------------


def open_command(
    name: str,
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    clock: Clock | None = None,
    sandbox: Sandbox | None = None,
) -> Command:
    """A command line, after `field=PATH` and `event=TYPE` if need be."""
    words = words_of(name)
    field, event = None, None
    while words and (found := _SETTING.fullmatch(words[0])):
        field, event = (found[2], event) if found[1] == "field" else (field, found[2])
        del words[0]
    recipe = None
    if field is not None or event is not None:
        path = "" if field in (None, ".") else field
        recipe = PLAIN._replace(form=Form(text=At(path, event)))
    ref = f"command:{name}"
    return Command(words, recipe=recipe, env=env, cwd=cwd, ref=ref, clock=clock, sandbox=sandbox)


_SETTING = re.compile(r"(field|event)=(.+)")
