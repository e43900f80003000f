"""What each augmentation policy reaches on digits, class by class from a cold start: mean of several seeds.

    uv run python benchmarks/policies_on_digits.py

Takes about ten minutes on two cores. Offline references are trained once a seed.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from coldstream.experiments import Run, make_config
from coldstream.metrics import summary

POLICIES = {
    "crop (what `coldstream run` uses)": "crop",
    "crop|flip": "crop|flip",
    "full policy of the paper": "crop|flip|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)",
    "full policy without flips": "crop|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)",
}


def main() -> None:
    """Run every policy on every seed and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    offline: dict[int, list[float]] = {}
    results: dict[str, list[dict[str, float]]] = {name: [] for name in POLICIES}
    with tempfile.TemporaryDirectory() as folder:
        for name, seed in track([(name, seed) for name in POLICIES for seed in seeds], "runs"):
            changes = [f"seed={seed}", f"learner.augment={POLICIES[name]}", f"offline.enabled={seed not in offline}"]
            found = Run.new(make_config({}, changes), Path(folder, f"{len(results[name])}-{hash(name)}")).run()
            if found["offline"]:
                offline[seed] = [event["accuracy"] for event in found["offline"]]
            ratios = [event["accuracy"] / best for event, best in zip(found["events"], offline[seed], strict=True)]
            results[name].append(
                {
                    "final": found["final_accuracy"],
                    "ratio": ratios[-1],
                    "omega": sum(ratios) / len(ratios),
                    "ece": found["average_ece"],
                    "debiased": found["average_ece_debiased"],
                }
            )
    table = Table(
        title=f"digits, {len(seeds)} seeds, mean ± sd; offline {summary([o[-1] for o in offline.values()])}"
    )
    for column in ("policy", "final accuracy", "of offline", "Ω_all", "average ECE", "debiased"):
        table.add_column(column)
    for name, rows in results.items():
        cells = (str(summary([row[key] for row in rows])) for key in ("final", "ratio", "omega", "ece", "debiased"))
        table.add_row(name, *cells)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
