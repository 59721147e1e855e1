"""Kernels do without a folder for their cache, run without the GIL, and keep NaN, infinity and the order of sums."""

import math
import os
import subprocess
import sys
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

from segmeter import jit

exact_and_fused = pytest.mark.parametrize("decorate", [jit.kernel, jit.fused_part], ids=["kernel", "fused_part"])


def test_compiling_is_said_once_and_so_is_that_nothing_can_be_kept(monkeypatch, caplog, tmp_path):
    """Without a folder to write to, numba itself raises the RuntimeError on which the fallback rests."""
    from numba.core import caching, config

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    caplog.set_level("INFO", "segmeter.jit")
    monkeypatch.setattr(jit, "_SAID", jit.mmap(-1, 1))
    jit._warn_of_no_cache.cache_clear()
    for _ in range(2):
        assert jit.kernel(lambda value: 3 * value)(2) == 6
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    for _ in range(2):
        assert jit.kernel(lambda value: 2 * value)(21) == 42
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert caplog.records[0].shown


@pytest.mark.skipif(sys.platform != "linux", reason="only there are processes forked")
def test_what_a_forked_process_said_is_not_said_again(monkeypatch, caplog):
    """A flag of each process would say it once more."""
    monkeypatch.setattr(jit, "_SAID", jit.mmap(-1, 1))
    child = get_context("fork").Process(target=jit._say_compiling)
    child.start()
    child.join()
    caplog.set_level("INFO", "segmeter.jit")
    jit._say_compiling()
    assert child.exitcode == 0
    assert not caplog.records


@pytest.mark.parametrize("kind", ["kernel", "borrowing_part", "fused_kernel", "fused_part", "fused_sums_part"])
def test_a_division_by_0_is_that_of_ieee_754_nan_is_kept_and_the_gil_is_released(kind):
    decorate = getattr(jit, kind)
    divide = decorate(lambda a, b: a / b)
    assert divide(1.0, 0.0) == math.inf
    assert math.isnan(divide(0.0, 0.0))
    assert decorate(lambda value: value != value)(math.nan)
    assert divide.targetoptions["nogil"]


@pytest.mark.parametrize("decorate", [jit.kernel, jit.borrowing_part])
def test_every_kernel_checks_its_bounds_where_numba_is_told_to(decorate, monkeypatch):
    monkeypatch.setattr("numba.core.config.BOUNDSCHECK", 1)
    with pytest.raises(IndexError):
        decorate(lambda values, at: values[at])(np.zeros(2), np.uintp(2))


@exact_and_fused
def test_exact_arithmetic_rounds_a_product_before_it_adds(decorate):
    """(1 + 2**-52) squared is 1 + 2**-51 + 2**-104; a fused operation, where the hardware has one, keeps the last."""
    values = np.full(64, 1 + 2.0**-52)

    @decorate
    def add(values, addends, out):
        for i in range(values.size):
            out[i] = values[i] * values[i] + addends[i]

    out = np.ones(64)
    add(values, -(values * values), out)
    assert np.isin(out, [0.0] if decorate is jit.kernel else [0.0, 2.0**-104]).all()


@exact_and_fused
def test_only_the_sums_that_say_so_are_added_in_lanes(decorate):
    @decorate
    def add(values):
        total = 0.0
        for i in range(len(values)):
            total += values[i]
        return total

    assert add(np.concatenate([[2.0**53], np.ones(4096)])) == 2.0**53  # where a 1 is lost, unless it meets another 1


@pytest.mark.slow
def test_a_change_in_a_part_or_a_constant_of_another_file_is_compiled_anew(tmp_path):
    """In the kernel's folder or another, and called through a part beside the kernel.

    Mutations seen to fail: numba's own cache, which looks at the kernel's file only; only the kernel's folder.
    """
    part = "from segmeter.jit import fused_part\n\nADDEND = {1}\n\n@fused_part\ndef {0}(x):\n    return x + {1}\n"
    (tmp_path / "other").mkdir()
    places = {"near": tmp_path / "near.py", "far": tmp_path / "other" / "far.py"}
    (tmp_path / "whole.py").write_text(
        "import sys; sys.path.append('other')\nfrom far import ADDEND, far\nfrom near import near\n"
        "from segmeter.jit import fused_kernel, fused_part, kernel\n\n"
        "@fused_part\ndef m(x):\n    return near(x) + far(x)\n\n@fused_kernel\ndef g(x):\n    return 100 * m(x)\n\n"
        "@kernel\ndef h(x):\n    return x + ADDEND\n\n"
        "print(g(0), h(0), *(sum(each.stats.cache_hits.values()) for each in (g, h)))\n"
    )
    environment, found = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}, []
    for near, far in ((1, 10), (1, 10), (2, 10), (2, 20)):
        for (name, path), addend in zip(places.items(), (near, far), strict=True):
            if not path.exists() or f"ADDEND = {addend}\n" not in path.read_text():
                path.write_text(part.format(name, addend))
        command = [sys.executable, "whole.py"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        found.append(done.stdout.strip())
    assert found == ["1100 10 0 0", "1100 10 1 1", "1200 10 0 0", "2200 20 0 0"]


def test_a_cache_with_arguments_of_a_class_that_was_renamed_is_written_again(tmp_path):
    """Numba reads the whole index before it looks whether the source has changed, and would raise AttributeError."""
    module = (
        "from typing import NamedTuple\nfrom segmeter.jit import kernel\n\n"
        "class {0}(NamedTuple):\n    a: int\n\n"
        "@kernel\ndef f(job):\n    return job.a\n\ndef run():\n    return f({0}(7)), sum(f.stats.cache_hits.values())\n"
    )
    environment, found = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}, []
    command = [sys.executable, "-c", "import jobs; print(*jobs.run())"]
    for name in ("Job", "KernelJob", "KernelJob"):
        if name not in found:
            (tmp_path / "jobs.py").write_text(module.format(name))
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        found += [name, done.stdout.strip()]
    assert found[1::2] == ["7 0", "7 0", "7 1"]


@pytest.mark.parametrize(("before", "after"), [
    ("1", "2"),
    ("1.5", "2.5"),
    ("True", "False"),
    ("np.uint64(1)", "np.uint64(2)"),
    ("np.uint8(1)", "np.uint64(1)"),
    ("np.arange(2000) * 0", "np.arange(2000) * 0 + (np.arange(2000) == 1000)"),
    ("(1, np.arange(3))", "(1, np.arange(1, 4))"),
])  # fmt: skip
def test_a_value_from_elsewhere_that_a_kernel_or_its_part_names_is_a_part_of_the_key(before, after):
    """The compiler takes it as it stands: code from the cache on disk would go on with the former one.

    Mutations seen to fail: no values; arrays by what their repr says; no arrays in tuples.
    """
    keys: dict[str, set[str]] = {}
    for text in (before, before, after):
        names: dict[str, Any] = {"np": np, "kernel": jit.kernel}
        source = f"value = {text}\n@kernel\ndef part():\n    return value\n\ndef whole():\n    return part()\n"
        exec(source, names)
        keys.setdefault(text, set()).add(jit._hash_values(jit._parts(names["whole"])))
    assert [len(each) for each in keys.values()] == [1, 1]
    assert keys[before] != keys[after]
