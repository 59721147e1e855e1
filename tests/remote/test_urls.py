from pathlib import Path

import pytest

from segmeter.errors import ConfigError
from segmeter.remote.urls import file_of, known_place, split_archive, url_of


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("runs/a", None),
        ("/data/s3/x", None),
        ("C:/data", None),
        ("s3://bucket/a b/c/", "s3://bucket/a b/c"),
        ("S3://bucket", "s3://bucket"),
        ("file:///data/x", "file:///data/x"),
        ("zip://in/side::https://host/all.zip", "zip://in/side::https://host/all.zip"),
        ("zip://::data/all.zip", "zip://::data/all.zip"),
        ("http://host:8080/x@2", "http://host:8080/x@2"),
        ("s3://bucket/x@2", "s3://bucket/x@2"),
    ],
)
def test_a_url_survives_being_a_path(given, url):
    assert url_of(given) == url
    assert url_of(Path(given)) == url


def test_another_scheme_is_refused_with_those_that_are_read():
    with pytest.raises(ConfigError, match=r"a URL of s3, gs, .*, got ftp://"):
        url_of("ftp://host/x")


@pytest.mark.parametrize(
    "given",
    [
        "https://me:hidden@host/x",
        "s3://key:hidden@bucket/x",
        "s3://AKIAX:hid/hidden@bucket/x",
        "https:///u:p/hidden@host/x",
        "https://host/x?sig=hidden",
        "https://host/x#sig=hidden",
        "az://c/x?sv=1&sig=hidden",
        "gs://b/x?X-Goog-Signature=hidden",
        "zip://a::s3://b/x?X-Amz-Signature=hidden",
        "s3://key:pass::hidden@bucket/x",
        "zip://a::s3://key:pass::hidden@bucket/x.zip",
    ],
)
def test_a_login_or_signature_is_refused_and_not_repeated(given):
    with pytest.raises(ConfigError, match="Give credentials by the environment") as refused:
        url_of(given)
    assert "hidden" not in str(refused.value)


def test_a_chain_is_for_archives_only():
    """Mutation seen to fail: any URL cut at :: (what follows is then another place)."""
    with pytest.raises(ConfigError, match="between zip://FOLDER and its archive only, got one in s3://"):
        url_of("s3://bucket/a::b/c.png")


def test_an_archive_has_to_be_named():
    assert split_archive("zip://a/b::x.zip") == ("a/b", "x.zip")
    assert split_archive("s3://b/x.zip") is None
    with pytest.raises(ConfigError, match="name the archive after ::"):
        split_archive("zip://a/b")


def test_places_are_known_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert known_place(Path("s3://b/x")) == "s3://b/x"
    assert known_place("x") == str(tmp_path / "x")
    assert file_of("file:///x/y") == Path("/x/y")
    assert file_of("s3://x/y") is None
