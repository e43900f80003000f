"""Base initialisation: offline training on a first batch of data, before the stream begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from coldstream.augment import Policy
from coldstream.data import Dataset
from coldstream.data.dataset import numbered
from coldstream.learners.inputs import id_key
from coldstream.learners.tasks import task_name
from coldstream.learners.training.offline import OfflineRecipe, train_offline
from coldstream.models import Body

if TYPE_CHECKING:
    from coldstream.learners.base import Learner


@torch.inference_mode(mode=False)
def run(
    learner: Learner[Any],
    dataset: Dataset,
    recipe: OfflineRecipe,
    progress: Callable[[int], None] | None,
    task: object,
) -> None:
    """Build the network, train it offline and let the method fit the rest; after an error nothing has changed."""
    settings = learner.settings
    if learner.batch_incremental:
        raise ValueError(f"{type(learner).__name__} has no base initialisation: its first batch is one")
    if recipe.epochs and settings.items == "vectors" and str(Policy.parse(recipe.augment)) != "none":
        raise ValueError(f"augment={recipe.augment!r} is for images; for vectors: OfflineRecipe(augment='none')")
    if learner.step:
        raise ValueError(f"base initialisation comes before streaming; {learner.step} examples were learned")
    if learner.prepared:
        raise ValueError("base initialisation was done already")
    name = task_name(learner, task)
    if not len(dataset):
        raise ValueError("base initialisation needs at least one example")
    labels = [dataset.names[label] for label in dataset.labels]
    learner._new_classes(settings.classes).check(labels)
    items: list[NDArray[Any]] = []
    for image in dataset.images:
        items.append(learner._inputs.admit(image, items[0].shape if items else None))
    shape, images = items[0].shape, np.stack(items)

    engine = learner._build(shape)
    state = learner._open_task(engine, shape, name)
    rows = np.array([state.classes.enter(label) for label in labels])
    for row in rows:
        state.classes.counts[row] += 1
    state.grow()
    body = Body(engine.body, engine.features, engine.draws)
    plain = {"momentum": recipe.momentum, "weight_decay": recipe.weight_decay, "average": False}
    trainer = learner._make_engine(body, **plain)
    train_offline(trainer, state.head, images, rows, recipe, learner.seed, progress)
    state.head.velocity.clear()
    if learner.crops_as_tested and settings.zoom != 1:
        images = np.stack([learner._inputs.admit(image, shape, test=True) for image in dataset.images])
    keys = [id_key(id) for id in numbered(dataset.identities())]
    with learner._changes.change("base_init"):
        try:
            learner._engine, learner.shape, learner.tasks = engine, shape, {name: state}
            learner._after_base_init(state, images, rows, keys)
            learner.prepared = True
        except BaseException:
            learner._engine, learner.shape, learner.tasks, learner.prepared = None, None, {}, False
            learner._changes.undone()
            raise
