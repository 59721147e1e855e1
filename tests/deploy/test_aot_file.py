import pytest

from segmeter.deploy import aot_file
from segmeter.errors import ConfigError


def test_a_missing_compiler_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ConfigError, match=r"no 'no-such-compiler'.*Install g\+\+.*format=onnx"):
        aot_file.check_tools()


def test_the_compiler_of_the_environment_is_taken(monkeypatch):
    monkeypatch.setenv("CXX", "sh")
    aot_file.check_tools()


def test_what_cannot_be_compiled_is_refused_in_one_line():
    class Program:
        example_inputs = None

        def module(self, check_guards):
            raise ValueError("an operation\nthat is not known")

    with pytest.raises(
        ConfigError, match=r"can't be compiled \(ValueError: an operation that is not known\)\. Use format=onnx\.$"
    ):
        aot_file.encode(Program(), {})
