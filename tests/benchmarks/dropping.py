"""A client that reads a watch and polls, and drops what it reads: `python -m tests.benchmarks.dropping PORT SECONDS`.

A driver that computes beside it and the server has the speed that is left when nobody does the work.
"""

from __future__ import annotations

import re
import socket
import sys
import threading
import time
from typing import NoReturn

from tests.benchmarks.lists import PAGE
from tests.benchmarks.server import PODS

READ = 1024 * 1024


def _request(port: int, query: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(f"GET {PODS}?{query} HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n".encode())
    return connection


def _watch(port: int) -> None:
    with _request(port, "watch=1") as connection:
        buffer = bytearray(READ)
        while connection.recv_into(buffer):
            pass


def _page(port: int, token: str) -> str:
    """Read a page, and return where the next one begins."""
    with _request(port, f"limit={PAGE}&continue={token}") as connection:
        start = connection.recv(READ)
        while b"\r\n\r\n" not in start or len(start) < 1024:
            start += connection.recv(READ)
        head, _, body = start.partition(b"\r\n\r\n")
        left = int(re.search(rb"(?i)content-length: (\d+)", head)[1]) - len(body)  # type: ignore[index]  # it has one
        while left > 0:
            left -= len(connection.recv(READ))
    found = re.search(rb'"continue": ?"([^"]+)"', body[:1024])
    return found[1].decode() if found else ""


def main(port: int, interval: float) -> NoReturn:
    """Read until this process is killed."""
    threading.Thread(target=_watch, args=(port,), daemon=True).start()
    while True:
        token = _page(port, "")
        while token:
            token = _page(port, token)
        time.sleep(interval)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
