"""Stores on this machine: S3 by moto, a web server, memory; and a cache of the test's own."""

import functools
import http.server
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from segmeter.remote import cache, stores
from tests.remote.served import S3, Memory


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache of the test's own, no store of an earlier test, and no long waits."""
    monkeypatch.setenv("SEGMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(stores, "WAITS", (0.0, 0.0))
    monkeypatch.setattr(cache, "_free_bytes", 0)
    monkeypatch.setattr(cache, "_PATIENCE", 0.3)
    stores.open_bucket.cache_clear()
    yield
    stores.open_bucket.cache_clear()


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    found, opened = Memory(), stores.open_bucket
    opening = lambda scheme, host: found if host == found.host else opened(scheme, host)  # noqa: E731
    monkeypatch.setattr(stores, "open_bucket", opening)
    opening.cache_clear = opened.cache_clear  # type: ignore[attr-defined]
    return found


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def _serving(handler: Callable[..., http.server.BaseHTTPRequestHandler]) -> Iterator[Any]:
    """A web server in a thread of this process."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of a server of S3 in a thread of this process."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> S3:
    """An empty bucket."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOFTHETEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret-of-the-test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return S3(s3_server)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the URL that it is served at."""
    root = tmp_path / "web"
    root.mkdir()
    with _serving(functools.partial(_Quiet, directory=str(root))) as server:
        yield root, f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def of_bytes(monkeypatch):
    """Bound the cache."""
    return lambda size: monkeypatch.setenv("SEGMETER_CACHE_GB", str(size / 1e9))
