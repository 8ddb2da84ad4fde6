"""What the sandbox uses: figures of the system, of a control group, and of a sandbox's own processes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from guest.agentd import stats
from tests.support.agent import Agent

MIB = 2**20
MEMINFO = b"MemTotal:        4096 kB\nMemFree:         1024 kB\nMemAvailable:    3072 kB\nHugePages_Total:       0\n"
TICKS = os.sysconf("SC_CLK_TCK")
CPUS = len(os.sched_getaffinity(0))


def write(folder: Path, files: Mapping[str, str | bytes]) -> str:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(folder)


def process(*, flags: int = 0, ticks: tuple[int, int, int, int] = (1, 2, 3, 4), name: str = "a) b (c") -> str:
    """A /proc/N/stat: number, name, state, parent, group, session, terminal, its group, flags, four counts, times."""
    return f"7 ({name}) S 1 7 7 0 -1 {flags} 0 0 0 0 {' '.join(map(str, ticks))} 20 0 1 0 100 0 0\n"


def proc(folder: Path, files: Mapping[str, str | bytes]) -> str:
    return write(folder / "proc", {"meminfo": MEMINFO, "stat": "cpu  0 0 0 0 0 0 0 0 0 0\n", **files})


def ask(api: stats.StatsApi) -> dict[str, float]:
    answer = api.routes()["/v1/stats"]["GET"](None)  # type: ignore[arg-type] # there is nothing to ask in detail
    assert answer.status == 200
    document: dict[str, float] = json.loads(b"".join(answer.blocks))
    return document


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_all_figures_of_this_machine_are_plausible(tmp_path: Path) -> None:
    document = ask(stats.StatsApi(workdir=bytes(tmp_path)))
    memory, disk = document["memory"], document["disk"]
    known = {"cpus", "cpu_percent", "load", "memory", "disk", "processes", "uptime"}
    assert known <= set(document) <= {*known, "network"}
    assert 0 < document["cpus"] <= os.cpu_count()
    assert 0 <= document["cpu_percent"] <= 100
    assert len(document["load"]) == 3
    assert 0 < memory["used"] < memory["total"]
    assert 0 < memory["available"] <= memory["total"]
    assert 0 < disk["used"] + disk["free"] <= disk["total"]
    assert document["processes"] >= 1
    assert 0 <= document["uptime"] < 60


def test_an_agent_announces_and_serves_them(shared_agent: Agent) -> None:
    assert "stats" in shared_agent.request("GET", "/healthz").json()["features"]
    document = shared_agent.request("GET", "/v1/stats").json()
    assert document["cpus"] > 0
    reply = shared_agent.post("/v1/stats", {})
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


def test_the_share_of_the_processors_is_that_since_the_last_call(tmp_path: Path) -> None:
    clock, system = Clock(), stats.System(proc=proc(tmp_path, {}), cgroups=str(tmp_path / "none"))
    api = stats.StatsApi(workdir=b"/", system=system, monotonic=clock)

    def measure(seconds: float, *, busy: float) -> float:
        clock.now += seconds
        nonlocal total
        total += busy
        ticks = int(total * TICKS)
        proc(tmp_path, {"stat": f"cpu  {ticks} 0 0 99999 0 0 0 0 0 0\ncpu0 1 1 1 1\n"})
        return ask(api)["cpu_percent"]

    total = 0.0
    assert measure(10, busy=CPUS * 5) == 50
    assert measure(10, busy=0) == 0
    assert measure(2, busy=CPUS * 2) == 100
    # What is asked again at once is not measured over nothing.
    assert measure(0.01, busy=0) == 100
    assert measure(0.99, busy=CPUS * 0.25) == 25
    # Clocks of a system that was suspended: never more than all there is.
    assert measure(1, busy=1000) == 100


def test_the_uptime_is_that_of_the_agent() -> None:
    clock = Clock()
    api = stats.StatsApi(workdir=b"/", monotonic=clock)
    clock.now += 12.3456
    assert ask(api)["uptime"] == 12.346


def test_busy_is_what_is_neither_idle_nor_waiting_nor_taken_by_others() -> None:
    assert stats.parse_busy_ticks(b"cpu  1 10 100 5000 6000 1000 10000 70000 8 9\ncpu0 9\n") == 11111


def test_memory_in_use_is_what_cannot_be_had(tmp_path: Path) -> None:
    system = stats.System(proc=proc(tmp_path, {}), cgroups=str(tmp_path / "none"))
    assert system.read_memory() == {"total": 4 * MIB, "used": 1 * MIB, "available": 3 * MIB}


def test_an_old_kernel_does_not_tell_what_is_available(tmp_path: Path) -> None:
    text = "MemTotal:        4096 kB\nMemFree:         1024 kB\n"
    system = stats.System(proc=proc(tmp_path, {"meminfo": text}), cgroups=str(tmp_path / "none"))
    assert system.read_memory() == {"total": 4 * MIB, "used": 3 * MIB, "available": 1 * MIB}


TRAFFIC = """\
Inter-|   Receive             |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo: 5944       47    0    0    0     0          0         0  5944       47    0    0    0     0       0    0
  sit0: 0           0    0    0    0     0          0         0     0        0    0    0    0     0       0    0
  eth0: 9597344062  2    0    0    0     0          0         0 18070003     7    0    0    0     0       0    0
 eth1:7 1 0 0 0 0 0 0 30 1 0 0 0 0 0 0
"""


def test_traffic_is_that_of_all_interfaces_but_the_loopback(tmp_path: Path) -> None:
    system = stats.System(proc=proc(tmp_path, {"net/dev": TRAFFIC}), cgroups=str(tmp_path / "none"))
    document = ask(stats.StatsApi(workdir=b"/", system=system))
    assert document["network"] == {"received": 9597344069, "sent": 18070033}


@pytest.mark.parametrize("text", ["".join(TRAFFIC.splitlines(keepends=True)[:4]), ""], ids=["loopback", "nothing"])
def test_without_a_network_none_is_told(tmp_path: Path, text: str) -> None:
    system = stats.System(proc=proc(tmp_path, {"net/dev": text}), cgroups=str(tmp_path / "none"))
    assert "network" not in ask(stats.StatsApi(workdir=b"/", system=system))


def test_threads_of_the_kernel_and_processes_that_are_gone_do_not_count(tmp_path: Path) -> None:
    folder = proc(
        tmp_path,
        {"1/stat": process(), "2/stat": process(flags=0x00208040), "3/comm": "gone", "4/stat": process(), "x/stat": ""},
    )
    assert stats.System(proc=folder).count_processes() == 2


def test_the_time_of_a_process_holds_that_of_its_children() -> None:
    assert stats.parse_process(process(ticks=(1, 20, 300, 4000)).encode()) == 4321


GROUPS = {
    2: {
        "cgroup.controllers": "cpu memory",
        "cgroup.procs": "1",
        "memory.max": f"{2 * MIB}\n",
        "memory.current": f"{MIB}\n",
        "memory.stat": f"anon 5\ninactive_file {MIB // 2}\nactive_file 7\n",
        "cpu.max": "50000 100000\n",
        "cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
    },
    1: {
        **{f"{folder}/cgroup.procs": "1" for folder in ("memory", "cpu,cpuacct")},
        "memory/memory.limit_in_bytes": f"{2 * MIB}\n",
        "memory/memory.usage_in_bytes": f"{MIB}\n",
        "memory/memory.stat": f"inactive_file 3\ntotal_inactive_file {MIB // 2}\n",
        "cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
        "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "cpu,cpuacct/cpuacct.usage": "2500000000\n",
    },
}
MEMBERSHIP = {
    2: "0::/docker/abc\n",
    1: "9:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n0::/docker/abc\n",
}


def grouped(folder: Path, version: int, changes: Mapping[str, str] | None = None) -> stats.System:
    place = proc(folder, {"self/cgroup": MEMBERSHIP[version]})
    groups = write(folder / "groups", {**GROUPS[version], **(changes or {})})
    return stats.System(proc=place, cgroups=groups)


@pytest.mark.parametrize("version", [1, 2])
def test_the_limits_of_a_control_group_are_what_there_is(tmp_path: Path, version: int) -> None:
    system = grouped(tmp_path, version)
    assert system.count_processors() == 0.5
    assert system.read_processor_seconds() == 2.5
    assert system.read_memory() == {"total": 2 * MIB, "used": MIB // 2, "available": 2 * MIB - MIB // 2}


@pytest.mark.parametrize(
    ("version", "changes"),
    [
        (2, {"memory.max": "max\n", "cpu.max": "max 100000\n"}),
        (2, {"memory.max": f"{8 * MIB}\n", "cpu.max": ""}),
        (1, {"memory/memory.limit_in_bytes": "9223372036854771712\n", "cpu,cpuacct/cpu.cfs_quota_us": "-1\n"}),
    ],
)
def test_a_control_group_without_limits_bounds_nothing(
    tmp_path: Path, version: int, changes: Mapping[str, str]
) -> None:
    system = grouped(tmp_path, version, changes)
    assert system.count_processors() == CPUS
    assert system.read_processor_seconds() == 0
    assert system.read_memory()["total"] == 4 * MIB


def test_what_a_group_may_still_use_is_no_more_than_the_machine_has(tmp_path: Path) -> None:
    system = grouped(tmp_path, 2, {"memory.max": f"{4 * MIB - 1}\n"})
    assert system.read_memory()["available"] == 3 * MIB


@pytest.mark.parametrize(("version", "folder"), [(2, ""), (1, "memory/")])
def test_the_group_is_looked_for_where_it_is_and_then_where_a_container_sees_it(
    tmp_path: Path, version: int, folder: str
) -> None:
    root = write(tmp_path / "groups", GROUPS[version])
    membership = MEMBERSHIP[version].encode()
    assert stats.find_groups(membership, root=root)["memory"] == (version, f"{root}/{folder}".rstrip("/"))
    write(tmp_path / "groups", {f"{folder}docker/abc/cgroup.procs": ""})
    assert stats.find_groups(membership, root=root)["memory"] == (version, f"{root}/{folder}docker/abc")
    assert stats.find_groups(membership, root=str(tmp_path / "none")) == {}


def test_in_a_sandbox_of_the_local_cloud_its_own_processes_are_summed_up(tmp_path: Path) -> None:
    fields = {"VmPeak": 99999, "VmPTE": 4, "VmSwap": 0, "RssAnon": 100, "RssFile": 5000, "RssShmem": 20, "Threads": 7}
    status = "".join(f"{name}:\t{count:8} kB\n" for name, count in fields.items())
    place = proc(
        tmp_path,
        {
            "stat": f"cpu  {TICKS * 1000} 0 0 0 0 0 0 0 0 0\n",
            "1/stat": process(ticks=(TICKS, 0, 0, 0)),
            "1/status": status,
            "8/stat": process(ticks=(0, TICKS, 0, TICKS)),
            "8/status": status,
            "self/ns/pid": "another namespace than the first",
        },
    )
    system = stats.System(proc=place, cgroups=str(tmp_path / "none"))
    assert system.read_processor_seconds() == 3
    assert system.read_memory() == {"total": 4 * MIB, "used": 2 * 124 * 1024, "available": 3 * MIB}
    assert ask(stats.StatsApi(workdir=b"/", system=system))["load"] is None


def test_the_disk_is_that_of_a_folder_that_may_not_be_there_yet(tmp_path: Path) -> None:
    figures = os.statvfs(tmp_path)
    found = stats.read_disk(bytes(tmp_path / "not" / "made"))
    assert found["total"] == figures.f_blocks * figures.f_frsize
