"""Triton's kernels without a GPU: a module run under the interpreter, and a kernel compiled.

The module runs in a process of its own, as Triton reads TRITON_INTERPRET when imported.
"""

import importlib
import json
import os
import subprocess
import sys

import pytest


def interpreted(module, *arguments):
    """What the module prints, read as JSON; its error, where it fails, is the test's."""
    pytest.importorskip("triton", reason="torch brings no Triton on this system")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def compiled_for_gpu(module, kernel, types, constants, **options):
    """Compile a kernel of Triton for a GPU that need not be here; arguments without a type are int32."""
    triton = pytest.importorskip("triton", reason="torch brings no Triton on this system")
    compiler = pytest.importorskip("triton.compiler")
    target = pytest.importorskip("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    found = getattr(importlib.import_module(module), kernel)
    types = types | dict.fromkeys(constants, "constexpr")
    signature = {argument: types.get(argument, "i32") for argument in found.arg_names}
    source = compiler.ASTSource(fn=found, signature=signature, constexprs=constants)
    return triton.compile(source, target=target, options=options).asm["cubin"]
