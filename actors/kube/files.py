"""Reads the files that a user names: only regular ones, of bounded size, and YAML that expands to no more than that.

A path may lead to a pipe, on which a read blocks, or to a device that never ends; and a few lines of YAML, whose
aliases name each other, may stand for more than fits into memory.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import yaml

from actors.kube.http.bounds import MIB

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ANOTHER", "LARGEST", "TooManyMerged", "check", "expands_beyond", "read", "read_yaml"]

LARGEST: Final = 16 * MIB
"""Bytes of a file. A kubeconfig with a thousand clusters has about 5 MiB."""

BLOCK: Final = 64 * 1024
"""Bytes of one read."""

COST: Final = 32
"""Bytes that a value counts besides its text: about what the shortest value with its key takes in a file."""

MOST_MERGED: Final = 100
"""Mappings that one `<<` merges, and COST × this the keys that a mapping may have by merging."""

ANOTHER: Final = "but found another document"
"""The problem of a file with several documents, in PyYAML's words."""

_MERGE: Final = "tag:yaml.org,2002:merge"
_NULL: Final = "tag:yaml.org,2002:null"


def read(path: Path, most: int = LARGEST) -> bytes:
    """Return a file's content.

    Raises:
        OSError: it cannot be read, is no regular file, or has more than `most` bytes.
    """
    content = bytearray()  # grows with the file: one read of `most` would allocate as much for any file
    with os.fdopen(_open(path), "rb") as file:
        while len(content) <= most and (block := file.read(BLOCK)):
            content += block
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return bytes(content)


def check(path: Path) -> None:
    """Check that a file can be read by others, such as OpenSSL.

    Raises:
        OSError: as `read` does.
    """
    descriptor = _open(path)
    size = os.fstat(descriptor).st_size
    os.close(descriptor)
    if size > LARGEST:
        raise OSError(errno.EFBIG, f"it has more than {LARGEST} bytes", str(path))


def read_yaml(path: Path) -> Any:
    """Return the YAML document in a file.

    Raises:
        OSError: as `read` does.
        yaml.YAMLError: it is not one YAML document, or merges too many mappings.
        ValueError: it is not text, or has an impossible number or date.
        RecursionError: it is nested too deeply.
    """
    text = read(path).decode("utf-8-sig")
    if text.lstrip().startswith("{"):
        with suppress(ValueError):
            return json.loads(text)  # which may be indented by tabs; YAML may not
    loader = _Loader(text)
    try:
        return loader.only_document()
    finally:
        loader.dispose()


def expands_beyond(document: object, most: int) -> bool:
    """Whether a document, written without aliases, has more than about `most` bytes."""
    left: list[object] = [document]
    while left:
        value = left.pop()
        most -= COST
        match value:
            case str():
                most -= len(value)
            case Mapping():
                left.extend(value.keys())
                left.extend(value.values())
            case list() | tuple():
                left.extend(value)
            case _:
                pass
        if most < len(left):
            return True
    return False


class TooManyMerged(yaml.constructor.ConstructorError):
    """A mapping has too many keys by merging."""


class _Loader(yaml.SafeLoader):
    """A SafeLoader that stops when merges (`<<`) multiply a mapping's keys.

    It merges by itself: PyYAML 6.0.4 takes a key of two merged mappings from the last one, unless it has one letter.
    """

    def only_document(self) -> Any:
        """Return the document that is not empty: `---` may stand before, between and after them.

        Raises:
            yaml.YAMLError: there are several, or one is no YAML.
        """
        found: yaml.Node | None = None
        while self.check_node():
            node = self.get_node()
            if node is None or (isinstance(node, yaml.ScalarNode) and node.tag == _NULL):
                continue
            if found is not None:
                raise yaml.composer.ComposerError(
                    "expected a single document in the stream",
                    found.start_mark,
                    ANOTHER,
                    node.start_mark,
                )
            found = node
        return None if found is None else self.construct_document(found)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Put the pairs of merged mappings before a mapping's own: of equal keys, the last counts.

        Of a list of mappings the first one counts (https://yaml.org/type/merge.html).
        """
        merges = [value for key, value in node.value if key.tag == _MERGE]
        node.value = [pair for pair in node.value if pair[0].tag != _MERGE]  # first: a mapping may merge itself
        merged = []
        for merge in merges:
            mappings = merge.value[::-1] if isinstance(merge, yaml.SequenceNode) else [merge]
            for mapping in mappings:
                if not isinstance(mapping, yaml.MappingNode):
                    raise yaml.constructor.ConstructorError(None, None, "merges what is no mapping", mapping.start_mark)
                self.flatten_mapping(mapping)
                merged += mapping.value
                if len(mappings) > MOST_MERGED or len(merged) > COST * MOST_MERGED:
                    raise TooManyMerged(None, None, "merges too many mappings", node.start_mark)
        node.value = merged + node.value
        super().flatten_mapping(node)


def _open(path: Path) -> int:
    """Open a regular file. `O_NONBLOCK`: opening a pipe would wait for its writer."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        code, why = (errno.EISDIR, os.strerror(errno.EISDIR)) if stat.S_ISDIR(mode) else (errno.EINVAL, "")
        raise OSError(code, why or "it is no regular file", str(path))
    return descriptor
