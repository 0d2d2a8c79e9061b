"""Text survives its encoding."""

import pytest


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_text_is_the_same_after_encoding_and_decoding(encoding: str) -> None:
    text = "".join(map(chr, range(0xD800)))
    assert text.encode(encoding).decode(encoding) == text
