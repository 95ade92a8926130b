"""The script that makes a shell ask us what could come next.

It sets a variable and calls us; `commands.complete` answers.
"""

from __future__ import annotations

from typing import Annotated, Literal

import click
from click.shell_completion import get_completion_class

from holdfast.cli.commands import COMPLETE_VARIABLE, PROGRAM
from holdfast.errors import UsageError
from holdfast.ops.context import Context
from holdfast.ops.envelope import Show
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg


@example('eval "$(holdfast completion bash)"')
def completion(
    context: Context,
    shell: Annotated[Literal["bash", "zsh", "fish"], Arg("Which shell", positional=True)],
) -> Show:
    """For bash and zsh: put `eval "$(holdfast completion bash)"` into your profile. For fish:
    `holdfast completion fish > ~/.config/fish/completions/holdfast.fish`.
    """
    known = get_completion_class(shell)
    if known is None:
        raise UsageError(f"no completion for {shell}")
    script = known(click.Command(PROGRAM), {}, PROGRAM, COMPLETE_VARIABLE).source()
    return Show({"shell": shell, "script": script}, text=script)
