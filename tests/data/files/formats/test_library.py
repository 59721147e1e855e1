"""The library of a format is imported, or its absence ends with the command that installs it."""

import json

import pytest

from segmeter.data.files.formats.library import need
from segmeter.errors import DataError


def test_an_installed_library_is_given():
    assert need("json", "itk", "MHA files") is json


def test_a_missing_library_says_what_to_install():
    with pytest.raises(DataError) as error:
        need("no_such_library", "itk", "MHA files")
    assert error.value.problems == (
        "read: expected `no_such_library` to be installed for MHA files, got none. Run: pip install 'segmeter[itk]'",
    )


def test_a_library_that_lacks_one_of_its_own_is_missing_too(tmp_path, monkeypatch):
    (tmp_path / "half_there.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError, match=r"`half_there` to be installed for DICOM"):
        need("half_there", "dicom", "DICOM segmentations")
