"""The cover covers, and is much smaller than the full grid."""

import itertools

from tests.support.pairwise import pairwise_cover

FACTORS = {"a": [1, 3, 17, 64], "b": [1, 2, 3, 7], "c": [1, 16, 512], "d": [True, False], "e": "xyz"}


def test_every_pair_of_values_meets():
    rows = pairwise_cover(FACTORS)
    for first, second in itertools.combinations(FACTORS, 2):
        met = {(row[first], row[second]) for row in rows}
        assert met == set(itertools.product(FACTORS[first], FACTORS[second]))


def test_it_is_small_and_the_same_every_time():
    rows = pairwise_cover(FACTORS)
    assert 16 <= len(rows) <= 24  # 4 x 4 pairs need 16; the grid has 288
    assert rows == pairwise_cover(FACTORS)
