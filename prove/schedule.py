"""Several simulated processes in one real one, interleaved as a seed decides.

Every task is a thread, but only the one that has the baton runs; it may be passed on at each
call of the simulated file system.  The same seed gives the same interleaving.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

_LONG = 60


class Killed(BaseException):
    """Raised in a task whose process was killed; not an error that anyone may handle."""


class Stuck(Exception):
    """No task can go on."""


class Task:
    """One thread of a simulated process."""

    def __init__(self, body: Callable[[], None], name: str, gone: Callable[[], bool]) -> None:
        self.body, self.name, self.gone = body, name, gone
        self.baton = threading.Lock()
        self.baton.acquire()
        self.alive = True
        self.blocked: Callable[[], bool] | None = None
        """Whether it still has to wait, if it waits for something."""
        self.failure: BaseException | None = None
        self.stalled = 0
        """For how many turns of the others it was put to sleep by the machine."""

    def can_run(self) -> bool:
        return self.alive and (self.blocked is None or not self.blocked())


class Scheduler:
    """Runs tasks one at a time; `eagerness` is the chance to switch at each call.

    `stalling` is the chance that a task is put to sleep there for a long time, as a busy
    machine does: rare races need one that stands still while another goes all the way.
    """

    def __init__(self, rng: Random, eagerness: float, stalling: float = 0.0) -> None:
        self._rng, self._eagerness, self._stalling = rng, eagerness, stalling
        self._tasks: list[Task] = []
        self._current: Task | None = None
        self._over = threading.Lock()
        self._stuck = False

    def run(self, *bodies: tuple[str, Callable[[], None], Callable[[], bool]]) -> None:
        """Run all bodies to their end; the first failure of one is raised.

        Each comes with a name and a question whether its process was killed.
        """
        self._tasks = [Task(body, name, gone) for name, body, gone in bodies]
        self._over.acquire()
        threads = [
            threading.Thread(target=self._carry, args=(task,), daemon=True) for task in self._tasks
        ]
        for thread in threads:
            thread.start()
        self._pass_on(self._rng.choice(self._tasks))
        self._over.acquire()
        for thread in threads:
            thread.join()
        for task in self._tasks:
            if task.failure is not None:
                raise task.failure
        if self._stuck:
            raise Stuck("every task waits for another one")

    def _carry(self, task: Task) -> None:
        task.baton.acquire()
        try:
            if not self._stuck:
                task.body()
        except Killed:
            pass
        except BaseException as error:
            task.failure = error
        task.alive = False
        self._leave()

    def _leave(self) -> None:
        ready = [task for task in self._tasks if task.can_run()]
        if ready:
            self._pass_on(self._rng.choice(ready))
        elif waiting := [task for task in self._tasks if task.alive]:
            # Let each of them end by an exception at the place where it waits.
            self._stuck = True
            self._pass_on(waiting[0])
        else:
            self._over.release()

    def _pass_on(self, task: Task) -> None:
        self._current = task
        task.baton.release()

    def turn(self) -> None:
        """Perhaps let somebody else go on."""
        roll = self._rng.random()
        if roll < self._stalling and self._current is not None:
            self._current.stalled = _LONG
            self.switch(must=True)
        elif roll < self._eagerness:
            self.switch(must=False)

    def switch(self, *, must: bool) -> None:
        """Let somebody go on; with `must`, somebody else if anybody can."""
        me = self._current
        if me is None or self._stuck:
            return
        ready = [task for task in self._tasks if task.can_run()]
        others = [task for task in ready if task is not me]
        if must and others:
            ready = others
        if awake := [task for task in ready if not task.stalled]:
            ready = awake
        for task in others:
            task.stalled = max(0, task.stalled - 1)
        if not ready:
            self._stuck = True
            raise Killed
        following = self._rng.choice(ready)
        if following is me:
            return
        self._pass_on(following)
        me.baton.acquire()
        if self._stuck:
            raise Killed

    def wait_until(self, free: Callable[[], bool]) -> None:
        """Go on when `free()`."""
        me = self._current
        while not free():
            if me is None:
                raise Stuck("waiting outside of any task")
            me.blocked = lambda: not free() and not me.gone()
            try:
                self.switch(must=True)
            finally:
                me.blocked = None
            if me.gone():
                raise Killed


class SimThreading:
    """Stands in for the module `threading` in code whose threads are tasks."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def Lock(self) -> SimMutex:
        return SimMutex(self._scheduler)

    def get_ident(self) -> int:
        return threading.get_ident()  # each task has a thread of its own


class SimMutex:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._held = scheduler, False

    def acquire(self) -> bool:
        self._scheduler.wait_until(lambda: not self._held)
        self._held = True
        return True

    def release(self) -> None:
        self._held = False

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


class SimClock:
    """A clock shared by all processes of a simulated machine; sleeping lets others run."""

    def __init__(self, now: float, scheduler: Scheduler | None = None, *, boots: int = 1) -> None:
        self._now, self._boot, self._scheduler = now, 1_000.0, scheduler
        # A machine that crashed comes up with another one.
        self._which = f"boot {boots}"

    def now(self) -> float:
        return self._now

    def boottime(self) -> float:
        return self._boot

    def boot(self) -> str:
        return self._which

    def sleep(self, seconds: float) -> None:
        self._boot += seconds
        self._now += seconds
        if self._scheduler is not None:
            self._scheduler.switch(must=True)

    def advance(self, seconds: float) -> None:
        self._now += seconds
        self._boot += seconds

    def step(self, seconds: float) -> None:
        """Move the wall clock only: nobody's patience ends because a day does."""
        self._now += seconds
