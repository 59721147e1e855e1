"""How threads wait, on every way into the package, and how many there are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from segmeter import threads
from segmeter.threads import control_groups, count_cores, describe_waiting, share_cores, sleep_while_waiting

POLICIES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
QUOTA, PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"
ASLEEP = "OMP_WAIT_POLICY=PASSIVE"
LOADED = (
    "import segmeter, torch; from segmeter.threads import describe_waiting as d; print(d(), torch.get_num_threads())"
)
# A program that loaded torch first can't be helped, but the processes that it starts can
CHILD = """
import multiprocessing, sys, types
sys.modules["torch"] = types.ModuleType("torch")
import segmeter
from segmeter.threads import describe_waiting
print(describe_waiting())
"""
SPAWN, FORKSERVER = (
    f"{CHILD}with multiprocessing.get_context('{kind}').Pool(1) as pool: print(pool.apply(describe_waiting))"
    for kind in ("spawn", "forkserver")
)
JOBLIB = f"{CHILD}import joblib; print(*joblib.Parallel(2, backend='loky')([joblib.delayed(describe_waiting)()]))"
DASK = f"""{CHILD}from distributed import Client, LocalCluster
with LocalCluster(n_workers=1, dashboard_address=None) as cluster, Client(cluster) as client:
    print(client.submit(describe_waiting).result())
"""
WAYS = {"segmeter": SPAWN, "multiprocessing": FORKSERVER, "joblib": JOBLIB, "distributed": DASK}


def python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python as a user does who has set nothing but these variables."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "MKL_", "GOMP_"))}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=given | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_torch_is_loaded_with_threads_that_sleep_one_for_each_core_that_it_may_use_and_doctor_says_so() -> None:
    """Mutations seen to fail: the policy set after torch is loaded; all cores of the machine are counted."""
    done = python("-c", LOADED, OMP_DISPLAY_ENV="verbose")
    assert done.stdout.startswith(ASLEEP)
    assert int(done.stdout.split()[1]) <= count_cores()
    doctor = python("-m", "segmeter", "doctor", OMP_DISPLAY_ENV="verbose")
    assert ["waiting", ASLEEP] in [line.split() for line in doctor.stdout.splitlines()]
    for errors in (done.stderr, doctor.stderr):  # GNU's OpenMP says what it has taken
        assert "GOMP_SPINCOUNT = '0'" in errors or "GOMP_SPINCOUNT" not in errors
    if hasattr(os, "sched_setaffinity"):
        pinned = f"import os; os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}}); {LOADED}"
        counted = f"{pinned}; from segmeter.threads import count_cores; print(count_cores())"
        assert python("-c", counted).stdout.splitlines() == [f"{ASLEEP} 1", "1"]


@pytest.mark.slow
def test_processes_of_torchrun_have_threads_that_sleep(tmp_path: Path) -> None:
    """torchrun gives each process one thread, unless it is told otherwise."""
    logs = ("--log-dir", str(tmp_path), "--redirects", "3")  # each process writes to files of its own
    started = ("-m", "torch.distributed.run", "--nproc-per-node", "2", *logs, "--no-python", sys.executable)
    python(*started, "-c", LOADED)
    assert [path.read_text() for path in tmp_path.rglob("stdout.log")] == [f"{ASLEEP} 1\n"] * 2


@pytest.mark.parametrize(
    "package", [pytest.param(name, marks=[pytest.mark.slow] if name != "segmeter" else []) for name in WAYS]
)
def test_worker_processes_have_threads_that_sleep(package: str) -> None:
    pytest.importorskip(package)
    said = python("-c", WAYS[package]).stdout.splitlines()
    assert said == ["they spin, as torch was loaded before segmeter", ASLEEP]


@pytest.mark.parametrize("name", POLICIES)
def test_what_the_user_has_set_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation seen to fail: one name left out."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for each in (*POLICIES, "OPENBLAS_THREAD_TIMEOUT"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, "7")
    monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", "20")
    sleep_while_waiting()
    assert {each: os.environ[each] for each in POLICIES if each in os.environ} == {name: "7"}
    assert os.environ["OPENBLAS_THREAD_TIMEOUT"] == "20"
    assert describe_waiting() == f"{name}=7"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 8 cores whose control groups are files of a test."""
    monkeypatch.setattr(threads, "_count_allowed", lambda: 8)
    monkeypatch.setattr(threads, "_CGROUPS", tmp_path / "groups")
    monkeypatch.setattr(threads, "_OWN_CGROUPS", tmp_path / "own")
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def limit(machine: Path, own: str, **contents: str) -> None:
    """Put this process into control groups; `contents` are files below their root and the text of each."""
    (machine / "own").write_text(own)
    for name, text in contents.items():
        path = machine / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


@pytest.mark.parametrize(("own", "contents", "cores"), [
    ("0::/job", {}, 8),
    ("0::/job", {"job/cpu.max": "max 100000"}, 8),
    ("0::/job", {"job/cpu.max": "150000 100000"}, 2),
    ("0::/job", {"job/cpu.max": "10000 100000"}, 1),
    ("0::/job", {"job/cpu.max": "1600000 100000"}, 8),
    ("0::/job/step", {"job/cpu.max": "300000 100000", "job/step/cpu.max": "max 100000"}, 3),
    ("0::/../../host/path", {"cpu.max": "400000 100000"}, 4),
    ("4:cpu,cpuacct:/job", {f"cpu,cpuacct/job/{QUOTA}": "150000", f"cpu,cpuacct/job/{PERIOD}": "50000"}, 3),
    ("4:cpu:/docker/abc", {f"cpu/{QUOTA}": "200000", f"cpu/{PERIOD}": "100000"}, 2),
    ("4:cpu:/job", {f"cpu/job/{QUOTA}": "-1", f"cpu/job/{PERIOD}": "100000"}, 8),
    ("4:memory:/job", {f"memory/job/{QUOTA}": "100000", f"memory/job/{PERIOD}": "100000"}, 8),
    ("no control groups", {}, 8),
    ("", {}, 8),  # where the system has none
])  # fmt: skip
def test_a_quota_limits_the_cores(own: str, contents: dict[str, str], cores: int, machine: Path) -> None:
    """Part of a core counts as one. Mutation seen to fail: rounded down, the innermost group alone, version 2 alone."""
    if own:
        limit(machine, own, **contents)
    assert count_cores() == cores
    assert own or list(control_groups("cpu")) == []


@pytest.fixture
def set_to(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of threads that torch, which would take 8, is told to take."""
    import torch

    told: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    return told


@pytest.mark.parametrize(("quota", "processes", "given", "taken"), [
    *((None, *row) for row in ((1, None, []), (2, None, [4]), (3, None, [2]), (9, None, [1]))),
    *(("250000", *row) for row in ((1, None, [3]), (2, None, [1]))),
    *(("250000", 2, name, []) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")),
])  # fmt: skip
def test_processes_of_a_training_share_the_cores_or_the_quota_unless_the_user_has_set_a_number(
    quota, processes, given, taken, machine, set_to, monkeypatch
):
    """Mutation seen to fail: all cores for each process."""
    if given:
        monkeypatch.setenv(given, "6")
    if quota:
        limit(machine, "0::/job", **{"job/cpu.max": f"{quota} 100000"})
    share_cores(processes)
    assert set_to == taken


def test_commands_and_load_take_the_threads_of_the_quota(machine: Path, set_to: list[int]) -> None:
    """Mutation seen to fail: either of them without its call."""
    import segmeter
    from segmeter.cli.commands._parts import prepare_device

    limit(machine, "0::/job", **{"job/cpu.max": "250000 100000"})
    prepare_device("cpu")
    assert set_to == [3]
    with pytest.raises(segmeter.SegmeterError):
        segmeter.load(machine / "no run")
    assert set_to == [3, 3]
