"""Cross-validated errors -> growth of a kernel's error with its distance to the nearest measured kernel."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from costmodel.predictor.error_curve import ErrorCurve
from costmodel.predictor.neighbours import EXACT, distances
from costmodel.predictor.network import Array
from costmodel.training.kernel_models import COVERAGE, EDGES_US

MOST_ROWS = 8_000
"""Most rows of a group whose distances are computed."""
LEAST_ROWS = 100
"""Fewest rows of a bin of distances; a group with fewer in all has a constant curve."""
MOST_BINS = 40
"""Most bins of distances."""
AT_ONCE = 64
"""Rows whose distances to all others are computed at once."""
BEYOND = 4.0
"""Distance beyond the last bin, relative to it, up to which the error is taken to grow in proportion."""
Values = npt.NDArray[np.float64]


def fit_error_curve(
    x: Array, error: Array, time_us: Values, tests: npt.NDArray[np.int64], widths: Array, seed: int = 0
) -> ErrorCurve:
    """Error curve of a group, from predictions of rows whose shape groups were held out.

    In bins of distance, the 90 % quantile of the error relative to the usual half-width of kernels that take as long;
    isotonic regression of these, as an error does not fall with distance (Barlow et al., "Statistical inference under
    order restrictions", 1972).

    Args:
        x: scaled features, (rows, features).
        error: absolute log error of each row's out-of-fold prediction, (rows,).
        time_us: time of each row, (rows,).
        tests: fold that tests each row, (rows,); its prediction has seen no row of that fold.
        widths: usual half-widths of the group by time, as in `GroupModel.widths`.
        seed: seed of the choice of rows.
    """
    chosen = np.sort(np.random.default_rng(seed).permutation(len(x))[:MOST_ROWS])
    distance = held_out_distances(x, tests, chosen)
    relative = relative_errors(error[chosen], time_us[chosen], widths)
    new = np.isfinite(distance) & (distance >= EXACT)
    return isotonic_curve(distance[new], relative[new])


def relative_errors(error: Array, time_us: Values, widths: Array) -> Values:
    """Errors relative to the usual half-widths of kernels that take as long, (rows,)."""
    return (error / widths[np.searchsorted(EDGES_US, time_us)]).astype(np.float64)


def held_out_distances(x: Array, tests: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64]) -> Values:
    """Distance of each chosen row to the nearest row of another fold; infinite where there is none."""
    found = np.full(len(chosen), np.inf)
    for fold in np.unique(tests[chosen]):
        kept = x[tests != fold]
        tested = np.flatnonzero(tests[chosen] == fold)
        for rows in np.array_split(tested, -(-len(tested) // AT_ONCE)) if len(kept) else ():
            found[rows] = distances(x[chosen[rows]], kept).min(1)
    return found


def isotonic_curve(distance: Values, relative: Values) -> ErrorCurve:
    """Curve through the 90 % quantile of relative errors in bins with equal numbers of rows, made non-decreasing."""
    if len(distance) < 2 * LEAST_ROWS:
        return ErrorCurve((0.0,), (1.0,))
    from sklearn.isotonic import IsotonicRegression

    order = np.argsort(distance, kind="stable")
    bins = np.array_split(order, max(2, min(MOST_BINS, len(order) // LEAST_ROWS)))
    places = np.array([np.median(distance[rows]) for rows in bins])
    quantiles = np.array([np.quantile(relative[rows], COVERAGE) for rows in bins])
    smooth = IsotonicRegression().fit_transform(places, quantiles, sample_weight=[len(rows) for rows in bins])
    places, smooth = np.append(places, BEYOND * places[-1]), np.append(smooth, BEYOND * smooth[-1])
    return ErrorCurve(tuple(map(float, places)), tuple(map(float, smooth)))
