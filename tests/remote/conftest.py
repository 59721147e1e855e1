"""Stores on this machine: S3 by moto, a web server, memory; and a cache of the test's own."""

from __future__ import annotations

import functools
import http.server
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import MemoryStore

from segmeter.remote import cache, stores


class Memory:
    """Objects in the memory of this process, whose requests for content are counted and can be made to fail."""

    def __init__(self) -> None:
        self.host = uuid.uuid4().hex
        self.url = f"memory://{self.host}"
        self.store: Any = MemoryStore()
        self.asked: list[str] = []  # names of the objects whose content was asked for
        self.fault: Callable[[str], None] = lambda name: None  # called with the name before each request

    def put(self, name: str, content: bytes | Path) -> None:
        self.fault(name)
        self.store.put(name, content)

    def put_folder(self, folder: Path, under: str = "") -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(under + str(path.relative_to(folder)), path.read_bytes())

    def drop(self, name: str) -> None:
        self.store.delete(name)

    def head(self, name: str) -> Any:
        self.fault(name)
        return self.store.head(name)

    def list(self, name: str | None, **options: Any) -> Any:
        self.fault(name or "")
        return self.store.list(name, **options)

    def get(self, name: str) -> Any:
        self.asked.append(name)
        self.fault(name)
        return self.store.get(name)

    def names(self) -> list[str]:
        return [each["path"] for page in self.store.list() for each in page]

    def content(self, name: str) -> bytes:
        return bytes(self.store.get(name).bytes())


class S3:
    """An empty bucket of a server."""

    def __init__(self, endpoint: str) -> None:
        self.client: Any = boto3.client("s3", endpoint_url=endpoint)
        self.bucket = f"b{uuid.uuid4().hex}"
        self.client.create_bucket(Bucket=self.bucket)
        self.url = f"s3://{self.bucket}"

    def put(self, name: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=name, Body=content)

    put_folder = Memory.put_folder

    def names(self) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return [each["Key"] for page in pages for each in page.get("Contents", [])]

    def get(self, name: str) -> bytes:
        content: bytes = self.client.get_object(Bucket=self.bucket, Key=name)["Body"].read()
        return content


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
    handler = functools.partial(_Quiet, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield root, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def of_bytes(monkeypatch):
    """Bound the cache."""
    return lambda size: monkeypatch.setenv("SEGMETER_CACHE_GB", str(size / 1e9))
