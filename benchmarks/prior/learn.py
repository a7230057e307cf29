"""Learn the coefficients of `gp`'s prior from the tuning tables: `python -m prior.learn`.

Run it in this folder's parent; it writes searchers/gp/learned/coefficients.json.

The losses of a table become normal scores of their ranks. Table t has coefficients theta + delta_t,
with theta ~ N(0, S) for what all tables of a family share, delta_t ~ N(0, OWN^2 S) for what is its
own, and noise: one linear regression in closed form. A new problem has N(theta, V + OWN^2 S), of
which the variances are kept.

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
from searchers.gp.kernels import Array
from searchers.gp.learned.features import Features, index_of
from searchers.gp.learned.prior import Coefficients, Learned
from searchers.gp.learned.roles import roles_of

SHARED = 0.5  # prior deviation of a coefficient
OWN = 0.7  # deviation of a table's own part, as a share of it
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
        rows = features.names, features.values(x_ND), scores(table.losses)
        families.setdefault(roles.family, []).append(rows)
    return {family: regress(rows) for family, rows in families.items()}


def scores(loss_N: Array) -> Array:
    """Return normal scores of the ranks: mean 0, variance 1, lower is better."""
    score_N: Array = ndtri((rankdata(loss_N) - 0.5) / len(loss_N))
    return score_N


def regress(tables: Sequence[tuple[Sequence[str], Array, Array]]) -> Coefficients:
    """Return the coefficients of a new table, given those with (names, features, scores)."""
    names = sorted({name for known, _, _ in tables for name in known})
    shared_F = np.full(len(names), SHARED**2)
    precision_FF, pull_F = np.diag(1.0 / shared_F), np.zeros(len(names))
    for known, value_NT, score_N in tables:
        place_T = index_of(known, names)
        centred_NT = (value_NT - value_NT.mean(axis=0)) / NOISE
        gram_TT = centred_NT.T @ centred_NT
        moment_T = centred_NT.T @ (score_N - score_N.mean()) / NOISE
        own_TT = np.diag(1.0 / (OWN**2 * shared_F[place_T]))
        # The table's own part is integrated out.
        solved = np.linalg.solve(own_TT + gram_TT, np.column_stack([gram_TT, moment_T]))
        precision_FF[np.ix_(place_T, place_T)] += gram_TT - gram_TT @ solved[:, :-1]
        pull_F[place_T] += moment_T - gram_TT @ solved[:, -1]
    covariance_FF = np.linalg.inv(precision_FF)
    deviation_F = np.sqrt(np.diag(covariance_FF) + OWN**2 * shared_F)
    return Coefficients(tuple(names), covariance_FF @ pull_F, deviation_F)


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
