"""How many primes there are below a limit."""

import pytest


@pytest.mark.parametrize(("limit", "count"), [(100, 25), (1_000, 168), (10_000, 1_229), (100_000, 9_592)])
def test_so_many_primes_are_below_the_limit(limit: int, count: int) -> None:
    sieve = bytearray([1]) * limit
    sieve[:2] = b"\0\0"
    for number in range(2, limit):
        if sieve[number]:
            sieve[number * 2 :: number] = bytes(len(sieve[number * 2 :: number]))
    assert sum(sieve) == count
