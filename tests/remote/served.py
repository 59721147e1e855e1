"""What the tests serve: objects in memory and in S3, filled and changed by other code than ours."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
from obstore.store import MemoryStore


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
