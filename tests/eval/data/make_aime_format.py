# ruff: noqa: E501 - the problems are sentences, kept whole
"""Thirty problems of our own in the form of the published AIME sets, each with a check that finds its answer.

    python tests/eval/data/make_aime_format.py > tests/eval/data/aime_format.jsonl

The checks search or count; none of them repeats the argument a solver would use.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, permutations, product


def digits(n: int) -> list[int]:
    return [int(d) for d in str(n)]


def is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1))


def lattice_triangles() -> int:
    points = list(product(range(3), repeat=2))
    area2 = [
        abs((b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1]))
        for a, b, c in combinations(points, 3)
    ]
    return sum(value > 0 for value in area2)


def coin_ways() -> int:
    ways = [1] + [0] * 50
    for coin in (1, 5, 10, 25):
        for total in range(coin, 51):
            ways[total] += ways[total - coin]
    return ways[50]


def three_heads_in_a_row() -> int:
    hits = sum("111" in f"{n:08b}" for n in range(256))
    share = Fraction(hits, 256)
    return share.numerator + share.denominator


def rook_paths() -> int:
    return sum(1 for path in product("RU", repeat=9) if path.count("R") == 5 and "RRR" not in "".join(path))


def dice_sum() -> int:
    share = Fraction(sum(sum(roll) == 10 for roll in product(range(1, 7), repeat=3)), 216)
    return share.numerator + share.denominator


def derangements() -> int:
    return sum(all(p[i] != i for i in range(6)) for p in permutations(range(6)))


def recurrence() -> int:
    a, b = 1, 3
    for _ in range(2025):
        a, b = b, (2 * b + a) % 1000
    return a


def right_triangles() -> int:
    return sum(
        math.isqrt(a * a + b * b) ** 2 == a * a + b * b and a + b + math.isqrt(a * a + b * b) <= 100
        for a in range(1, 100)
        for b in range(a, 100)
    )


def subsets_without_neighbours() -> int:
    return sum(not mask & mask >> 1 for mask in range(1 << 12))


def palindromes() -> int:
    return sum(n % 11 == 0 and str(n) == str(n)[::-1] for n in range(100, 10_000))


def colourings() -> int:
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)]
    return sum(all(c[a] != c[b] for a, b in edges) for c in product(range(3), repeat=6))


def surjections() -> int:
    return sum(len(set(f)) == 3 for f in product(range(3), repeat=6))


def quadratic_pairs() -> int:
    return sum(
        math.isqrt(b * b - 4 * c) ** 2 == b * b - 4 * c
        for b in range(1, 21)
        for c in range(1, 21)
        if b * b >= 4 * c
    )


def hexagon_area() -> int:
    corners = [(0, 0), (7, 0), (11, 4), (9, 10), (3, 12), (-2, 6)]
    pairs = zip(corners, corners[1:] + corners[:1], strict=True)
    return abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in pairs)) // 2


def josephus() -> int:
    people = list(range(1, 101))
    i = 0
    while len(people) > 1:
        i = (i + 2) % len(people)
        people.pop(i)
    return people[0]


PROBLEMS: list[tuple[str, Callable[[], int]]] = [
    (
        "Find the number of integers $n$ with $1 \\le n \\le 999$ whose digits add up to a multiple of $7$.",
        lambda: sum(sum(digits(n)) % 7 == 0 for n in range(1, 1000)),
    ),
    (
        "Find the remainder when $3^{2026}$ is divided by $1000$.",
        lambda: pow(3, 2026, 1000),
    ),
    (
        "Find the number of ways to pay $50$ cents with coins of $1$, $5$, $10$ and $25$ cents.",
        coin_ways,
    ),
    (
        "Find the number of triangles of positive area whose corners are points $(x, y)$ with $x$ and $y$ "
        "in $\\{0, 1, 2\\}$.",
        lattice_triangles,
    ),
    (
        "A fair coin is tossed $8$ times. The probability that three heads occur in a row is $m/n$ in lowest "
        "terms. Find $m+n$.",
        three_heads_in_a_row,
    ),
    (
        "A path goes from $(0,0)$ to $(5,4)$ by steps of one unit to the right or up. Find the number of such "
        "paths that never take three steps to the right in a row.",
        rook_paths,
    ),
    (
        "Three fair dice are rolled. The probability that they show a total of $10$ is $m/n$ in lowest terms. "
        "Find $m+n$.",
        dice_sum,
    ),
    (
        "Six letters are put into six addressed envelopes, one each. In how many ways can every letter be in a "
        "wrong envelope?",
        derangements,
    ),
    (
        "Let $a_0 = 1$, $a_1 = 3$ and $a_{k+2} = 2a_{k+1} + a_k$. Find the remainder when $a_{2025}$ is divided "
        "by $1000$.",
        recurrence,
    ),
    (
        "Find the number of right triangles with integer sides and a perimeter of at most $100$. Congruent "
        "triangles count once.",
        right_triangles,
    ),
    (
        "Find the number of subsets of $\\{1, 2, \\ldots, 12\\}$ that do not contain two consecutive integers. "
        "The empty set counts.",
        subsets_without_neighbours,
    ),
    (
        "Find the number of palindromes between $100$ and $9999$ that are multiples of $11$.",
        palindromes,
    ),
    (
        "Each corner of a regular hexagon gets one of three colours so that neighbouring corners differ. Find the "
        "number of colourings; rotations count as different.",
        colourings,
    ),
    (
        "Find the number of functions from a set of $6$ elements onto a set of $3$ elements.",
        surjections,
    ),
    (
        "Find the number of pairs $(b, c)$ of integers from $1$ to $20$ for which $x^2 + bx + c = 0$ has integer "
        "roots.",
        quadratic_pairs,
    ),
    (
        "Find the area of the hexagon with the corners $(0,0)$, $(7,0)$, $(11,4)$, $(9,10)$, $(3,12)$, $(-2,6)$ "
        "in this order.",
        hexagon_area,
    ),
    (
        "A hundred people stand in a circle, numbered from $1$ to $100$. Counting from $1$, every third person "
        "leaves until one is left. Find the number of this person.",
        josephus,
    ),
    (
        "Find the sum of all primes below $70$.",
        lambda: sum(n for n in range(70) if is_prime(n)),
    ),
    (
        "Find the number of positive divisors of $10!$.",
        lambda: sum(math.factorial(10) % d == 0 for d in range(1, math.isqrt(math.factorial(10)) + 1)) * 2,
    ),
    (
        "Find the smallest positive integer that leaves the remainders $2$, $3$ and $4$ when divided by $7$, $9$ "
        "and $11$.",
        lambda: next(n for n in range(1, 1000) if (n % 7, n % 9, n % 11) == (2, 3, 4)),
    ),
    (
        "Find the number of integers from $1$ to $1000$ that are divisible by neither $2$ nor $3$ nor $5$.",
        lambda: sum(n % 2 > 0 and n % 3 > 0 and n % 5 > 0 for n in range(1, 1001)),
    ),
    (
        "Find the last three digits of $1! + 2! + \\cdots + 20!$.",
        lambda: sum(math.factorial(k) for k in range(1, 21)) % 1000,
    ),
    (
        "Find the number of three-digit integers whose digits, from left to right, form an arithmetic "
        "progression (with any common difference, zero and negative ones included).",
        lambda: sum(2 * digits(n)[1] == digits(n)[0] + digits(n)[2] for n in range(100, 1000)),
    ),
    (
        "Five distinct integers from $1$ to $9$ are chosen so that their sum is $25$. Find the number of choices.",
        lambda: sum(sum(c) == 25 for c in combinations(range(1, 10), 5)),
    ),
    (
        "Find the number of arrangements of the letters of SEVENTH in which the two letters E are not next to "
        "each other, divided by $10$.",
        lambda: sum("EE" not in "".join(p) for p in set(permutations("SEVENTH"))) // 10,
    ),
    (
        "Find the largest integer $n$ such that $2^n$ divides $200!$.",
        lambda: len(bin(math.factorial(200))) - len(bin(math.factorial(200)).rstrip("0")),
    ),
    (
        "Find the number of ordered triples $(x, y, z)$ of non-negative integers with $x + 2y + 3z = 36$.",
        lambda: sum(36 - 2 * y - 3 * z >= 0 for y in range(19) for z in range(13)),
    ),
    (
        "Find the number of lattice points $(x, y)$ with $x^2 + y^2 \\le 100$.",
        lambda: sum(x * x + y * y <= 100 for x in range(-10, 11) for y in range(-10, 11)),
    ),
    (
        "A $4 \\times 4$ board is to be covered by $8$ dominoes. Find the number of ways.",
        lambda: domino_tilings(4, 4),
    ),
    (
        "Find the sum of the digits of $2^{100}$.",
        lambda: sum(digits(2**100)),
    ),
]


def domino_tilings(rows: int, columns: int) -> int:
    def fill(free: frozenset[tuple[int, int]]) -> int:
        if not free:
            return 1
        row, column = min(free)
        return sum(
            fill(free - {(row, column), other})
            for other in ((row, column + 1), (row + 1, column))
            if other in free
        )

    return fill(frozenset(product(range(rows), range(columns))))


def records() -> list[dict[str, object]]:
    return [
        {"problem_idx": i, "problem": text, "answer": check()} for i, (text, check) in enumerate(PROBLEMS, 1)
    ]


if __name__ == "__main__":
    for record in records():
        sys.stdout.write(json.dumps(record) + "\n")
