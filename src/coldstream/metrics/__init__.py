"""Measures of a streaming learner, from plain arrays: NumPy in, numbers and small frozen records out.

Accuracies, probabilities and confidences are fractions in [0, 1], never percentages.
"""

from coldstream.metrics.aggregates import Summary, omega, summary
from coldstream.metrics.calibration import (
    Reliability,
    average_ece,
    debiased_ece,
    expected_ece,
    reliability,
)
from coldstream.metrics.classification import (
    accuracy,
    confidences,
    confusion_matrix,
    hits,
    per_class_accuracy,
    predictions,
)
from coldstream.metrics.coverage import CoverageCurve, coverage_curve
from coldstream.metrics.prequential import Prequential
from coldstream.metrics.transfer import backward_transfer, forgetting, forward_transfer

__all__ = [
    "CoverageCurve",
    "Prequential",
    "Reliability",
    "Summary",
    "accuracy",
    "average_ece",
    "backward_transfer",
    "confidences",
    "confusion_matrix",
    "coverage_curve",
    "debiased_ece",
    "expected_ece",
    "forgetting",
    "forward_transfer",
    "hits",
    "omega",
    "per_class_accuracy",
    "predictions",
    "reliability",
    "summary",
]
