"""Nothing outside bridge/ brings a tensor to the host or to NumPy, or an array to torch."""

import re

from tests.sources import MODULES, SOURCE

ALWAYS = re.compile(r'\.numpy\(|\.cpu\(|\.to\("cpu"|from_dlpack|__array__|from_numpy')
OF_TENSORS = re.compile(r"\.tolist\(|\.item\(")  # arrays have these too, so they count where torch is at hand
IMPORTS_TORCH = re.compile(r"^\s*(?:import|from) torch\b", re.MULTILINE)

EXAMPLE = re.compile(r"^\s*(?:>>>|\.\.\.) .*$", re.MULTILINE)

EXCEPTIONS = {  # (module, what): how often, and why
    ("training/step.py", ".tolist("): (1, "losses of some steps, an array that the bridge brought"),
    ("training/learner.py", ".tolist("): (1, "the words of NumPy's own generator"),
    ("distributed/ranks.py", ".tolist("): (1, "four numbers that the ranks agree on between steps"),
    ("evaluation/evaluate.py", ".tolist("): (1, "the terms of the loss, an array that the bridge brought"),
    ("models/checkpoint.py", '.to("cpu"'): (1, "a checkpoint writes tensors as they are; no array is made"),
    ("losses/focal_numba.py", ".tolist("): (1, "sums of each block, an array that the kernels filled"),
    ("losses/config.py", ".tolist("): (1, "counts of NumPy, in the words of an error"),
    ("losses/focal_torch.py", ".tolist("): (1, "class weights that the caller gave"),
    ("losses/targets.py", ".item("): (1, "the first bad labels of a target, for the message of the refusal"),
}


def crossings(path, text):
    """(module, what) of each crossing in the code of a module, beyond those that an exception allows."""
    code = EXAMPLE.sub("", text)
    found = ALWAYS.findall(code) + (OF_TENSORS.findall(code) if IMPORTS_TORCH.search(code) else [])
    for what in set(found):
        allowed, _ = EXCEPTIONS.get((path, what), (0, ""))
        for _ in range(min(allowed, found.count(what))):
            found.remove(what)
    return [(path, what) for what in found]


def test_no_prediction_crosses_outside_the_bridge():
    outside = [path for path in MODULES if path.relative_to(SOURCE).parts[0] != "bridge"]
    texts = {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in outside}
    assert [crossing for path, text in texts.items() for crossing in crossings(path, text)] == []


def test_every_exception_is_still_needed():
    for (path, what), (count, reason) in EXCEPTIONS.items():
        assert (SOURCE / path).read_text(encoding="utf-8").count(what) == count
        assert reason
