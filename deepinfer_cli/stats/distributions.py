"""Student's t, the binomial and the beta distribution in plain Python, as far as intervals need them.

Checked against scipy in the tests; the product does not carry scipy for four functions.
"""

from __future__ import annotations

import math

_MAX_TERMS = 500
_TINY = 1e-300
_BISECTIONS = 200


def beta_cdf(a: float, b: float, x: float) -> float:
    """P(X <= x) for X ~ Beta(a, b): the regularised incomplete beta function, by its continued fraction."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    if x > (a + 1.0) / (a + b + 2.0):  # the fraction converges quickly on the other side only
        return 1.0 - beta_cdf(b, a, 1.0 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) * _beta_fraction(a, b, x) / a


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Lentz's method on the continued fraction of the incomplete beta function."""
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    value = d
    for m in range(1, _MAX_TERMS):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0)),
        ):
            d = 1.0 + numerator * d
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = 1.0 + numerator / c
            c = c if abs(c) > _TINY else _TINY
            step = c * d
            value *= step
        if abs(step - 1.0) < 1e-15:
            break
    return value


def beta_quantile(a: float, b: float, share: float) -> float:
    """x with P(X <= x) = share for X ~ Beta(a, b), by bisection."""
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        low, high = (middle, high) if beta_cdf(a, b, middle) < share else (low, middle)
    return (low + high) / 2.0


def t_cdf(t: float, degrees: float) -> float:
    """P(T <= t) for Student's t."""
    tail = 0.5 * beta_cdf(degrees / 2.0, 0.5, degrees / (degrees + t * t))
    return 1.0 - tail if t > 0 else tail


def t_quantile(share: float, degrees: float) -> float:
    """t with P(T <= t) = share for Student's t."""
    if not 0.0 < share < 1.0:
        raise ValueError(f"a share lies between 0 and 1, got {share}")
    if share < 0.5:
        return -t_quantile(1.0 - share, degrees)
    x = beta_quantile(degrees / 2.0, 0.5, 2.0 * (1.0 - share))
    return math.inf if x <= 0.0 else math.sqrt(degrees * (1.0 - x) / x)


def binomial_tail(num_successes: int, num_trials: int, share: float = 0.5) -> float:
    """P(X <= num_successes) for X ~ Binomial(num_trials, share), 0 < share < 1."""
    log_p, log_q = math.log(share), math.log1p(-share)
    logs = [
        math.lgamma(num_trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(num_trials - k + 1)
        + k * log_p
        + (num_trials - k) * log_q
        for k in range(num_successes + 1)
    ]
    return min(1.0, math.fsum(math.exp(value) for value in logs))
