"""Several data sets one after another, each with its own head: the paper's section 5.3, appendices A.3 and B.5."""

from __future__ import annotations

from typing import Any

from coldstream.learners.recipes import paper_recipe
from coldstream.paper import common
from coldstream.paper.catalog import Claim, Comparison, Figure, PaperExperiment, Setting, Settings, each_better

CROPS = "resizedcrop|flip"
TASKS = ("MIT Scenes", "CUB-200", "Flowers", "FGVC")
_SCENES = ["cloud", "forest", "mountain", "plain", "sea"]
_VEHICLES = ["bicycle", "bus", "motorcycle", "pickup_truck", "train"]
_RATES = [0.1, 0.01, 0.001]


def setting(scale: str) -> Setting:
    """Return where it takes place; at lab scale classes of CIFAR-100 stand in for scenes and aircraft."""
    recipe = paper_recipe("multi-task")
    method = common.method(recipe)
    if scale == "lab":
        tree: Settings = {
            "tasks": {
                "MIT Scenes": {"name": "cifar100", "classes": _SCENES, "per_class": 80, "test_per_class": 100},
                "CUB-200": {"name": "cub200", "classes": 20},
                "Flowers": {"name": "flowers102", "classes": 15},
                "FGVC": {"name": "cifar100", "classes": _VEHICLES, "per_class": 80, "test_per_class": 100},
            },
            "learner": {"model": "resnet10-16", "size": 32, "channels": 3, "normalize": "half"},
            "base": {"classes": 3, "epochs": 30, "batch": 32, "augment": "crop|flip"},
            "offline": {"epochs": 50, "batch": 32, "rates": _RATES, "augment": "crop|flip"},
            "pretrain": {
                "data": {
                    **{"name": "cifar100", "classes": list(common.PRETRAINING)},
                    **{"per_class": 250, "test_per_class": 100},
                },
                **{"epochs": 20, "batch": 64, "rate": 0.1, "weight_decay": 5e-4, "augment": "crop|flip"},
            },
            "seeds": [0, 1, 2],
            "prequential": False,
            "threads": 1,
        }
        lab_method = {**method, "replay": 20, "augment": "crop|flip"}
        return Setting("lab", tree, 1340, 3072, lab_method, pretrained={"init": "pretrained"})
    tree = {
        "tasks": {
            "MIT Scenes": {"name": "mit-scenes"},
            "CUB-200": {"name": "cub200"},
            "Flowers": {"name": "flowers102"},
            "FGVC": {"name": "fgvc-aircraft"},
        },
        "learner": common.network(recipe),
        "base": {"classes": 34, "epochs": 50, "batch": 128, "rate": 0.1, "weight_decay": 5e-4, "augment": CROPS},
        "offline": {"epochs": 50, "batch": 128, "rates": _RATES, "augment": CROPS},
        "seeds": [0, 1, 2],
        "prequential": False,
        "checkpoint_every": 1000,
    }
    return Setting("paper", tree, 20_061, 150_528, method, pretrained={"init": "IMAGENET1K_V1"})


def cssl(where: Setting, **changes: Any) -> Settings:
    """Return CSSL as the paper has it on several tasks: everything is kept."""
    return {"kind": "cssl", **where.method, "strategy": "full+separate", **changes}


def _methods(where: Setting) -> dict[str, Settings]:
    parts = {}
    for part, begin in (("pre-trained", where.pretrained), ("cold", {})):
        frozen: Settings = {**begin, "base_init": True} if begin else {"init": "base"}
        remind: Settings = {"kind": "remind", "replay": 10 if where.lab else 50, "rate": "linear(0.1, 0.001)"}
        remind |= {"capacity": None, "weight_decay": 1e-5, "strategy": "full+separate", **begin}
        # Everything may be kept: no class has more images than this.
        arms = {
            "ExStream": {"kind": "exstream", "per_class": 100, "rate": 2e-3, **frozen},
            "Deep SLDA": {"kind": "deep-slda", "covariance": "plastic", **frozen},
            "REMIND": remind,
            "CSSL": cssl(where, **begin),
            "CSSL + base init": cssl(where, **frozen),
        }
        parts[part] = where.experiment(arms)
    return parts


def _numbers(values: dict[tuple[str, str], tuple[tuple[float, float | None], ...]]) -> dict[Any, Any]:
    return {
        (part, name, f"accuracy of {task}"): (mean / 100, None if sd is None else sd / 100)
        for (part, name), tasks in values.items()
        for task, (mean, sd) in zip(TASKS, tasks, strict=True)
    }


_PAPER: dict[tuple[str, str], tuple[tuple[float, float | None], ...]] = {
    ("pre-trained", "offline"): ((71.42, 0.60), (73.70, 0.01), (91.98, 0.02), (76.05, 0.17)),
    ("pre-trained", "ExStream"): ((58.96, 0.70), (26.04, 0.46), (69.16, 0.27), (33.33, 0.56)),
    ("pre-trained", "Deep SLDA"): ((60.05, 0.35), (29.85, 0.04), (72.56, 0.13), (34.16, 0.20)),
    ("pre-trained", "REMIND"): ((54.23, 0.58), (46.27, 1.01), (78.06, 1.47), (36.56, 3.24)),
    ("pre-trained", "CSSL"): ((54.30, 1.95), (59.94, 0.97), (88.36, 0.98), (45.29, 2.11)),
    ("cold", "offline"): ((51.60, 0.56), (46.95, 0.25), (83.10, 0.57), (60.12, 0.44)),
    ("cold", "ExStream"): ((31.84, 0.34), (9.37, 0.08), (40.31, 0.15), (16.58, 0.20)),
    ("cold", "Deep SLDA"): ((35.05, 0.19), (11.30, 0.10), (44.04, 0.09), (16.89, 0.06)),
    ("cold", "REMIND"): ((28.56, 0.71), (17.97, 0.41), (43.97, 1.29), (16.53, 0.68)),
    ("cold", "CSSL"): ((42.49, 0.73), (40.08, 0.45), (78.70, 0.45), (25.98, 2.30)),
}
_METRICS = tuple(f"accuracy of {task}" for task in TASKS)
_BASELINES = ("ExStream", "Deep SLDA", "REMIND")


def _better(part: str, tasks: tuple[str, ...]) -> tuple[Comparison, ...]:
    return tuple(
        Comparison((part, "CSSL"), (part, other), f"accuracy of {task}") for task in tasks for other in _BASELINES
    )


_LAB = (
    "Four tasks at 32 x 32: five outdoor scenes of CIFAR-100 (80 images each; in the place of MIT Scenes), 20 of "
    "CUB's birds (12 each, 4 to test), 15 flowers (20 each), five vehicles of CIFAR-100 (80 each; in the place of "
    "aircraft). A ResNet of 155,000 parameters, B = 20 (REMIND 10), crops and flips. Base initialisation is on three "
    "of the five scenes. Pre-training is on 20 classes of CIFAR-100 that are not streamed."
)

METHODS = PaperExperiment(
    name="tab:mt_stream",
    title="Multi-task streaming",
    varies="the method, and pre-training",
    fixed="four data sets one after another, class by class, everything kept; tested with each task's own head",
    setting=setting,
    parts=_methods,
    metrics=(*_METRICS, "final_accuracy"),
    numbers=_numbers(_PAPER),
    claims=(
        Claim("From a cold start CSSL is better than every baseline on every task", _better("cold", TASKS)),
        Claim(
            "Pre-trained, CSSL is better than every baseline on every task but the first",
            _better("pre-trained", TASKS[1:]),
        ),
        Claim(
            "Pre-trained, ExStream and Deep SLDA are better than CSSL on the first task",
            each_better("pre-trained", ["ExStream", "Deep SLDA"], "CSSL", metric=_METRICS[0]),
        ),
    ),
    about={"lab": _LAB},
    figures=(Figure("tasks", "Accuracy of each task on the way"),),
)

STRATEGIES = ("full+separate", "split+separate", "full+sum", "split+sum")


def _strategies(where: Setting) -> dict[str, Settings]:
    arms = {name: cssl(where, **where.pretrained, strategy=name) for name in STRATEGIES}
    return {"pre-trained": where.experiment(arms)}


_OF_STRATEGIES: dict[tuple[str, str], tuple[tuple[float, float | None], ...]] = {
    ("pre-trained", "full+separate"): ((56.11, None), (60.79, None), (88.08, None), (45.22, None)),
    ("pre-trained", "split+separate"): ((53.13, None), (57.232, None), (84.50, None), (36.78, None)),
    ("pre-trained", "full+sum"): ((54.40, None), (62.12, None), (84.39, None), (49.09, None)),
    ("pre-trained", "split+sum"): ((54.48, None), (60.32, None), (86.57, None), (43.05, None)),
}
_AVERAGES = {"full+separate": 0.6255, "split+separate": 0.5791, "full+sum": 0.6250, "split+sum": 0.6111}

STRATEGY = PaperExperiment(
    name="tab:mt_stream_strat",
    title="Replay strategies for several tasks",
    varies="B replayed for each task (full) or over all tasks (split); a step for each task (separate) or one (sum)",
    fixed="four data sets one after another, class by class, everything kept, pre-trained network",
    setting=setting,
    parts=_strategies,
    metrics=(*_METRICS, "final_accuracy"),
    numbers={
        **_numbers(_OF_STRATEGIES),
        **{("pre-trained", name, "final_accuracy"): (value, None) for name, value in _AVERAGES.items()},
    },
    claims=(
        Claim(
            "Full and separate is the best of the four on average",
            tuple(
                Comparison(("pre-trained", "full+separate"), ("pre-trained", other), "final_accuracy")
                for other in STRATEGIES[1:]
            ),
        ),
        Claim(
            "Splitting with separate steps is the worst of the four on average",
            tuple(
                Comparison(("pre-trained", other), ("pre-trained", "split+separate"), "final_accuracy")
                for other in STRATEGIES
                if other != "split+separate"
            ),
        ),
    ),
    about={"lab": _LAB},
    figures=(Figure("tasks", "Accuracy of each task on the way"),),
)
