"""traced program <-> AOTInductor's package (.pt2): code compiled for one kind of device, which torch runs."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram

from segmeter.bridge.decode import labels_to_numpy
from segmeter.bridge.to_torch import to_torch
from segmeter.classes import ClassSpec
from segmeter.deploy.facts import KEY
from segmeter.errors import ConfigError


def check_tools() -> None:
    """Raise ConfigError where there is no C++ compiler."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise ConfigError(
            f"export: format=aot needs a C++ compiler, and there is no {compiler!r}. "
            "Install g++, name another one in the environment variable CXX, or use format=onnx."
        )


def encode(program: ExportedProgram, facts: Mapping[str, Any]) -> bytes:
    """Compile a traced program for its device, and pack it with its facts as an extra file.

    Raises
    ------
    ConfigError
        The compiler refused it.
    """
    from torch._inductor import aot_compile
    from torch.export.pt2_archive._package import package_pt2

    arguments, _ = program.example_inputs or ((), {})
    try:
        with torch.no_grad():
            options = {"aot_inductor.package": True}
            files = aot_compile(program.module(check_guards=False), arguments, options=options)
    except Exception as error:  # the compiler has errors of many kinds
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"export: this network can't be compiled ({type(error).__name__}: {reason}). Use format=onnx."
        ) from error
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt2"
        extra = {f"{KEY}.json": json.dumps(facts, ensure_ascii=False)}
        package_pt2(str(path), aoti_files=files, extra_files=extra)  # type: ignore[arg-type]
        return path.read_bytes()


class AotModel:
    """Runs a package on the device of its code; a call takes (B, H, W, C) images and gives their labels."""

    def __init__(self, content: bytes, spec: ClassSpec, device: torch.device) -> None:
        from torch._inductor import aoti_load_package

        self._spec, self._device = spec, device
        with TemporaryDirectory() as folder:
            path = Path(folder) / "model.pt2"
            path.write_bytes(content)
            self._run = aoti_load_package(str(path))

    def __call__(self, images: np.ndarray) -> np.ndarray:
        labels = self._run(to_torch(images, device=self._device))
        return labels_to_numpy(labels, task=self._spec.task, num_classes=self._spec.num_classes)
