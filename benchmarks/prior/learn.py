"""Learn the coefficients of `gp`'s prior from the tuning tables: `python -m prior.learn`.

Run it in this folder's parent; it writes searchers/gp/learned/coefficients.json.

The losses of a table become normal scores of their ranks. Table t has coefficients theta + delta_t,
with theta ~ N(0, SHARED^2) for what all tables of a family share, delta_t ~ N(0, V) for what is its
own, and noise: a linear regression with random coefficients. V is learned too, one variance for
each feature, by expectation maximization (Dempster et al. 1977); at first it counts as if FIRM
tables had said so. A new problem has theta's mean, and theta's variance plus V.

Axes: N configurations, F features of a family, T features of one table.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from prior.tables import Table, load_tables
from searchers.gp.encoding import Encoding, units
from searchers.gp.kernels import Array, Index
from searchers.gp.learned.features import Features, index_of
from searchers.gp.learned.prior import Coefficients, Learned
from searchers.gp.learned.roles import roles_of

SHARED = 0.5  # prior deviation of a coefficient
OWN = 0.35  # of a table's own part, before any has been seen
FIRM = 4.0  # tables that this counts for
ROUNDS = 10
NOISE = 0.7  # of a score, beyond the features
DIGITS = 3
OUTPUT = Path(__file__).resolve().parents[2] / "searchers" / "gp" / "learned" / "coefficients.json"


def learn(tables: Iterable[Table]) -> Learned:
    """Return the coefficients of each family that some table's space belongs to."""
    families: dict[str, list[tuple[Sequence[str], Array, Array]]] = {}
    for table in tables:
        roles = roles_of(table.space)
        if roles is None:
            continue
        encoding = Encoding.of(table.space)
        features = Features.of(table.space, encoding, roles)
        x_ND = encoding.columns_of(encoding.snap(units(table.space, table.configs)))
        names = tuple(dict.fromkeys(features.names))
        of_name_FT = np.eye(len(names))[index_of(features.names, names)]
        rows = names, features.values(x_ND) @ of_name_FT, scores(table.losses)
        families.setdefault(roles.family, []).append(rows)
    return {family: regress(rows) for family, rows in families.items()}


def scores(loss_N: Array) -> Array:
    """Return normal scores of the ranks: mean 0, variance 1, lower is better."""
    score_N: Array = ndtri((rankdata(loss_N) - 0.5) / len(loss_N))
    return score_N


def regress(tables: Sequence[tuple[Sequence[str], Array, Array]]) -> Coefficients:
    """Return the coefficients of a new table, given those with (names, features, scores)."""
    names = sorted({name for known, _, _ in tables for name in known})
    moments = []
    for known, value_NT, score_N in tables:
        centred_NT = (value_NT - value_NT.mean(axis=0)) / NOISE
        moment_T = centred_NT.T @ (score_N - score_N.mean()) / NOISE
        moments.append((index_of(known, names), centred_NT.T @ centred_NT, moment_T))
    own_F = np.full(len(names), OWN**2)
    for _ in range(ROUNDS):
        mean_F, covariance_FF = shared(moments, own_F)
        square_F, tables_F = np.full(len(names), FIRM * OWN**2), np.full(len(names), FIRM)
        for place_T, gram_TT, moment_T in moments:
            spread_TT = np.linalg.inv(np.diag(1.0 / own_F[place_T]) + gram_TT)
            gain_TT = spread_TT @ gram_TT
            part_T = spread_TT @ moment_T - gain_TT @ mean_F[place_T]
            doubt_TT = gain_TT @ covariance_FF[np.ix_(place_T, place_T)] @ gain_TT.T
            square_F[place_T] += part_T**2 + np.diag(spread_TT + doubt_TT)
            tables_F[place_T] += 1.0
        own_F = square_F / tables_F
    mean_F, covariance_FF = shared(moments, own_F)
    return Coefficients(tuple(names), mean_F, np.sqrt(np.diag(covariance_FF) + own_F))


def shared(moments: Sequence[tuple[Index, Array, Array]], own_F: Array) -> tuple[Array, Array]:
    """Return the mean and the covariance of theta, given the variances of the tables' own parts.

    Args:
        moments: of each table the places of its features, their Gram matrix, and their products
            with the scores.
        own_F: variances of delta.
    """
    precision_FF, pull_F = np.eye(len(own_F)) / SHARED**2, np.zeros(len(own_F))
    for place_T, gram_TT, moment_T in moments:
        # The table's own part is integrated out.
        inner_TT = np.diag(1.0 / own_F[place_T]) + gram_TT
        solved = np.linalg.solve(inner_TT, np.column_stack([gram_TT, moment_T]))
        precision_FF[np.ix_(place_T, place_T)] += gram_TT - gram_TT @ solved[:, :-1]
        pull_F[place_T] += moment_T - gram_TT @ solved[:, -1]
    covariance_FF = np.linalg.inv(precision_FF)
    return covariance_FF @ pull_F, covariance_FF


def main() -> None:
    learned = learn(load_tables())
    text = {
        family: {
            name: [round(float(mean), DIGITS), round(float(deviation), DIGITS)]
            for name, mean, deviation in zip(
                known.names, known.mean_F, known.deviation_F, strict=True
            )
        }
        for family, known in sorted(learned.items())
    }
    OUTPUT.write_text(json.dumps(text, indent=0, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
