"""The manifest of a checkpoint: sealed, and every file held against it."""

import hashlib
import json

import pytest

from segmeter.errors import CheckpointError
from segmeter.models.checkpoint import FORMAT, read_manifest, settle_file
from segmeter.records import seal

CONTENT = {"format": FORMAT, "b": [1, None], "a": "x"}


def test_the_seal_is_the_sha256_of_the_sorted_content():
    text = '{"a": "x", "b": [1, null], "format": 1}'
    assert seal(CONTENT) == {**CONTENT, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    assert seal(seal(CONTENT)) == seal(CONTENT)


def test_what_was_sealed_is_read_and_an_edit_is_found(tmp_path):
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(seal(CONTENT), indent=2))
    assert read_manifest(path) == seal(CONTENT)
    path.write_text(json.dumps(seal(CONTENT) | {"a": "y"}))
    with pytest.raises(CheckpointError, match=r"manifest.json: was changed or damaged .*sha256 differs"):
        read_manifest(path)


def test_a_settled_file_is_described_and_has_the_mode_of_new_files(tmp_path):
    tmp_path.chmod(0o750)
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"weights")
    path.chmod(0o600)
    entry = settle_file(path)
    assert entry["bytes"] == 7
    assert entry["sha256"] == hashlib.sha256(b"weights").hexdigest()
    assert path.stat().st_mode & 0o777 == 0o640
