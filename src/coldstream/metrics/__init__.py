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
    log_loss,
    per_class_accuracy,
    predictions,
    share_taken_for,
)
from coldstream.metrics.coverage import CoverageCurve, coverage_curve
from coldstream.metrics.paired import CONFIDENCE, Interval, holm, mean_interval, paired_by_seed, paired_interval
from coldstream.metrics.prequential import Prequential
from coldstream.metrics.transfer import backward_transfer, forgetting, forward_transfer

__all__ = [
    "CONFIDENCE",
    "CoverageCurve",
    "Interval",
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
    "holm",
    "log_loss",
    "mean_interval",
    "omega",
    "paired_by_seed",
    "paired_interval",
    "per_class_accuracy",
    "predictions",
    "reliability",
    "share_taken_for",
    "summary",
]
