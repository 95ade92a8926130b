"""How much a tree uses right now.

Asked of its control group where the kernel counts there; otherwise added up over /proc.
"""

from __future__ import annotations

from holdfast.proc import cgroup, procfs
from holdfast.proc.limits import Sample

_MEMORY = "memory.current"


class Gauge:
    def __init__(self, reaper: int, group: str | None) -> None:
        """`reaper` is the process that all orphans of the tree come to."""
        self._reaper, self._group = reaper, group
        self.seen: list[procfs.Process] = []
        """The members at the last look; empty if the kernel did all the counting."""

    @property
    def kernel_limits_memory(self) -> bool:
        return self._group is not None and cgroup.number(self._group, _MEMORY) is not None

    def read(self) -> Sample:
        if self._group is None:
            return self._walk(procfs.descendants(self._reaper), None)
        cpu = cgroup.cpu_seconds(self._group)
        memory = cgroup.number(self._group, _MEMORY)
        tasks = cgroup.number(self._group, "pids.current")
        if cpu is not None and memory is not None and tasks is not None:
            return Sample(cpu, memory, tasks)
        found = map(procfs.stat, cgroup.members(self._group))
        sample = self._walk([one for one in found if one is not None], cpu)
        return sample if memory is None else sample._replace(memory=memory)

    def _walk(self, found: list[procfs.Stat], cpu: float | None) -> Sample:
        self.seen = [one.process for one in found]
        if cpu is None:
            # What has ended was reaped by somebody, up to the reaper, and is counted there.
            cpu = sum(one.cpu + one.reaped_cpu for one in found)
            if (reaper := procfs.stat(self._reaper)) is not None:
                cpu += reaper.reaped_cpu
        return Sample(cpu, sum(one.rss for one in found), sum(one.tasks for one in found))

    def memory_counted_once(self) -> int:
        """Memory without counting twice what several processes share; slow."""
        total = 0
        for pid, start in self.seen:
            once = procfs.shared_memory_counted_once(pid)
            if once is None:
                found = procfs.stat(pid)
                once = found.rss if found is not None and found.start == start else 0
            total += once
        return total

    def final(self) -> Sample:
        """What the control group counted until the end; zeros where it did not."""
        if self._group is None:
            return Sample()
        peak = cgroup.number(self._group, "memory.peak")
        return Sample(cgroup.cpu_seconds(self._group) or 0.0, peak or 0)
