"""The models of a job by name, each in the job's workspace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.contracts.job_spec import JobSpec
from holdfast.errors import ConfigError, HoldfastError
from holdfast.models.registry import open_model
from holdfast.workspace.command import our_environment

if TYPE_CHECKING:
    from holdfast.clock import Clock
    from holdfast.models.protocol import Model
    from holdfast.workspace.sandbox import Sandbox

_SERVICES = {"openai", "anthropic", "google", "ollama", "vllm", "llamacpp", "openai-compatible"}
_ONLY_ANSWER = _SERVICES | {"scripted", "embedded", "replay"}


def acts(ref: str) -> bool:
    """Whether asking a model can have an effect beside its answer; of an unknown one, yes."""
    return ref.partition(":")[0] not in _ONLY_ANSWER


def any_acts(spec: JobSpec) -> bool:
    """Whether a model of a job may change its files."""
    return any(acts(spec.model_of(phase) or "") for phase in spec.phases)


class Models:
    """Opened when they are first asked, and closed together."""

    def __init__(
        self,
        folder: str,
        *,
        clock: Clock,
        sandbox: Sandbox | None = None,
        given: Mapping[str, Model] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`folder` is where programs work, `given` are models that are open already, `environment`
        is for programs."""
        self._folder, self._clock, self._sandbox = folder, clock, sandbox
        self._open: dict[str, Model] = dict(given or {})
        self._environment = dict(environment or {})

    def model(self, ref: str) -> Model:
        if ref not in self._open:
            self._open[ref] = self._opened(ref)
        return self._open[ref]

    def reports_cost(self, ref: str) -> bool:
        """Whether the cost of a model can be known: many programs report none."""
        return bool(getattr(self.model(ref), "tells_cost", True))

    def _opened(self, ref: str) -> Model:
        provider, _, name = ref.partition(":")
        if provider == "command":
            from holdfast.models.command import open_command  # noqa: PLC0415 - most jobs need one kind

            env, sandbox = {**our_environment(), **self._environment}, self._sandbox
            return open_command(name, env=env, cwd=self._folder, clock=self._clock, sandbox=sandbox)
        if provider == "acp":
            from holdfast.models.acp import open_acp  # noqa: PLC0415 - an extra

            if self._sandbox is not None:
                hint = "use a command, or isolation worktree"
                raise ConfigError(f"{ref} cannot be asked in a sandbox", hint=hint)
            return open_acp(name, cwd=self._folder)
        return open_model(ref)

    def check(self, spec: JobSpec) -> None:
        """Open the model of each phase; ConfigError if one is not available."""
        for phase in spec.phases:
            ref = spec.model_of(phase)
            if ref is None:
                raise ConfigError(
                    f"nobody is named for phase {phase.name} ({phase.role})",
                    hint=f"--{phase.role.lower()} MODEL, or `model:` in the spec",
                )
            try:
                self.model(ref)
            except HoldfastError as error:
                raise ConfigError(
                    f"{ref} cannot be asked in phase {phase.name}: {error.message}",
                    hint=error.hint or "`holdfast model list` shows who can be asked",
                    path=error.path,
                ) from error

    def close(self) -> None:
        for model in self._open.values():
            model.close()
        self._open.clear()
