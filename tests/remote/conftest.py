"""Stores on this machine: S3 by moto, a web server, memory; and a cache of the test's own."""

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from segmeter.remote import stores, trees
from tests.remote.served import S3, Memory, serve_s3


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache of the test's own, no store of an earlier test, and no long waits."""
    monkeypatch.setenv("SEGMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(stores, "WAITS", (0.0, 0.0))
    trees._checked.clear()
    trees.open_store.cache_clear()
    yield
    trees.open_store.cache_clear()


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory() as store:
        yield store


@pytest.fixture
def requests(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the objects whose content is asked for."""
    asked: list[str] = []
    cat = memory.files.cat_file

    def counted(path: str, *arguments: object, **options: object) -> bytes:
        asked.append(path.rpartition("/")[2])
        content: bytes = cat(path, *arguments, **options)
        return content

    monkeypatch.setattr(memory.files, "cat_file", counted)
    return asked


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    with serve_s3() as endpoint:
        yield endpoint


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> S3:
    """An empty bucket."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOFTHETEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret-of-the-test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return S3(s3_server)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the URL that it is served at."""
    root = tmp_path / "web"
    root.mkdir()
    handler = functools.partial(_Quiet, directory=str(root))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield root, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()
