"""What people see of a project: items to label, its status, lists of images, and what the learner knows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from coldstream.serve import knows as known
from coldstream.serve.errors import Refused
from coldstream.serve.images import sized
from coldstream.serve.journal import Event
from coldstream.serve.queue import Choice
from coldstream.serve.scores import Guess

if TYPE_CHECKING:
    from coldstream.serve.project import Project

GALLERY = 600
"""Most images of one page of the gallery."""
_SCORED = 2_000
"""Most images whose guesses a page of the gallery asks for."""


def url(project: Project, image: str) -> str:
    """Return where an image is, for a browser."""
    return f"/api/projects/{project.name}/images/{image}"


def items(project: Project, choices: Sequence[Choice]) -> list[dict[str, Any]]:
    """Return images that were handed out, with guesses; what is not ready is predicted now."""
    guesses = guesses_of(project, [choice.image for choice in choices], fresh=False)
    return [
        {
            "image": choice.image,
            "url": url(project, choice.image),
            "name": project.records.images[choice.image].name,
            "why": choice.why,
            "audit": choice.audit,
            "guess": _json(guesses.get(choice.image)),
        }
        for choice in choices
    ]


def guesses_of(project: Project, ids: Sequence[str], *, fresh: bool = True) -> dict[str, Guess]:
    """Return guesses, made now where there are none, or none of the learner as it is now."""
    answering, scores = project.live.answering, project.scores
    old = [
        id for id in ids if (guess := scores.guess_of(id)) is None or (fresh and guess.version != answering.version)
    ]
    if old:
        scores.guess(answering, old)
    return {id: guess for id in ids if (guess := scores.guess_of(id)) is not None}


def predict(project: Project, data: bytes) -> dict[str, Any] | None:
    """Return a guess for the bytes of an image; None before anything was learned."""
    project.images.decode(data)
    answering = project.live.answering
    if answering.learner is None or answering.shape is None or not answering.columns:
        return None
    values = answering.probabilities([sized(data, answering.shape)])
    values, numbers = project.scores.merged(values, answering.columns)
    return project.scores.named(values[0], numbers, answering.version).json()


def status(project: Project) -> dict[str, Any]:
    """Return the numbers of a project and what its learner is doing."""
    with project.lock:
        records, state = project.records, project.live.state
        behind = len(records.pending)
        doing = "learning" if behind and state.doing == "ready" else state.doing
        return {
            "id": project.id,
            "name": project.name,
            "images": len(records.images),
            "labelled": records.labelled,
            "skipped": records.skipped,
            "machine": records.machine,
            "remaining": len(records.unlabelled),
            "classes": [
                {"name": one.name, "count": one.count, "machine": one.machine} for one in records.shown_classes()
            ],
            "learning": {
                "state": doing,
                "behind": behind,
                "updates": records.updates,
                "version": project.live.answering.version,
            },
            "health": health(project),
            "seq": records.seq,
            "saved": project.live.checkpoints.saved,
        }


def health(project: Project) -> str:
    """Return ``ok``, or in words what is wrong."""
    state = project.live.state
    if state.error is not None:
        return state.error
    if project.live.checkpoints.error is not None:
        return f"the last checkpoint was not written: {project.live.checkpoints.error}"
    if refused := len(project.records.refused):
        return f"{refused} updates failed twice and are left out of learning; their labels are kept"
    return "ok"


def recent(project: Project, count: int) -> list[dict[str, Any]]:
    """Return the labels that were given last, the latest first."""
    with project.lock:
        records, answers = project.records, list[dict[str, Any]]()
        for one in reversed(records.recent):
            record = records.images[one.image]
            if record.label is None or record.by != "human":
                continue
            label = records.name_of(record.label)
            answers.append(
                {
                    "seq": one.seq,
                    **_shown(project, one.image),
                    "label": label,
                    "guess": one.guess,
                    "right": None if one.guess is None else one.guess[0] == label,
                    "audit": record.audit,
                }
            )
            if len(answers) == count:
                break
        return answers


def gallery(
    project: Project, name: str | None, who: str | None, by: str | None, offset: int, count: int
) -> dict[str, Any]:
    """Return images by class, by who labelled them, or by doubt; those in doubt first."""
    with project.lock:
        records = project.records
        number = None if name is None else project.class_number(name, "query.class")
        if who == "guess":
            ids = records.unlabelled.all()
        else:
            ids = [
                id
                for id, record in records.images.items()
                if record.label is not None
                and (number is None or records.resolve(record.label) == number)
                and who in (None, record.by)
            ]
    version = project.live.answering.version
    scores = project.scores
    missing = [id for id in ids if (score := scores.score_of(id)) is None or score.version != version]
    for start in range(0, min(len(missing), _SCORED), 64):
        scores.score(project.live.answering, missing[start : start + 64])
    if who == "guess" and number is not None:
        ids = [id for id in ids if (score := scores.score_of(id)) and records.resolve(score.label) == number]
    if by == "doubt":
        ids.sort(key=lambda id: _agreement(project, id))
    page = ids[offset : offset + count]
    return {"items": [_entry(project, id) for id in page], "total": len(ids)}


def _agreement(project: Project, id: str) -> float:
    """Return how sure the learner is of an image's label, or of its guess; below zero where it guesses otherwise."""
    record, score = project.records.images[id], project.scores.score_of(id)
    if score is None:
        return 2.0
    label = None if record.label is None else project.records.resolve(record.label)
    if label is None or project.records.resolve(score.label) == label:
        return score.confidence
    return -score.confidence


def _entry(project: Project, id: str) -> dict[str, Any]:
    records, record, score = project.records, project.records.images[id], project.scores.score_of(id)
    return {
        **_shown(project, id),
        "label": None if record.label is None else records.name_of(record.label),
        "by": record.by,
        "guess": None if score is None else records.name_of(score.label),
        "confidence": None if score is None else score.confidence,
        "audit": record.audit,
    }


def _shown(project: Project, id: str) -> dict[str, Any]:
    return {"image": id, "url": url(project, id), "name": project.records.images[id].name}


def _json(guess: Guess | None) -> dict[str, object] | None:
    return None if guess is None else guess.json()


def knows(project: Project, wanted: float) -> dict[str, Any]:
    """Return what the learner knows, and how many of the remaining images it may label by itself."""
    # Without the lock, which would make labels wait: what is read here is only ever added to.
    tests = known.tests(project.records)
    return {
        **known.summary(project.records, tests),
        "promise": known.promise_of(project.records, project.scores, tests, wanted),
        "accepts": known.accepts(project.records),
    }


def accept(project: Project, wanted: float, *, key: str | None = None, who: str = "person") -> dict[str, Any]:
    """Label the remaining images that the learner is sure enough of, as a machine's labels."""
    with project.lock:
        event = project.again(key, "accept", accuracy=wanted)
        if event is None:
            known.threshold_of(project.records, known.tests(project.records), wanted)
            ids: Collection[str] = project.records.unlabelled.all()
    if event is None:
        answering = project.live.answering
        stale = [
            id for id in ids if (score := project.scores.score_of(id)) is None or score.version != answering.version
        ]
        for start in range(0, len(stale), 64):
            project.scores.score(answering, stale[start : start + 64])
        with project.lock:
            scores = {id: score for id in ids if (score := project.scores.score_of(id)) is not None}
            sure = [(id, score) for id, score in scores.items() if score.version == answering.version]
            remaining = [score.confidence for _, score in sure]
            tests = known.tests(project.records)
            threshold = known.threshold_of(project.records, tests, wanted, remaining)
            entries = [
                [id, project.records.name_of(score.label), round(score.confidence, 6)]
                for id, score in sure
                if score.confidence >= threshold and id in project.records.unlabelled
            ]
            if not entries:
                raise Refused("no remaining image is above the threshold; label some more", "body.accuracy", 409)
            body = {"accuracy": wanted, "threshold": threshold, "items": entries}
            event = project.append("accept", body, who=who, key=key)
    return {"seq": event.seq, "count": len(event.body["items"]), "threshold": event.body["threshold"]}


def revoke(project: Project, seq: int, *, key: str | None = None, who: str = "person") -> dict[str, Any]:
    """Take back all machine labels of one acceptance."""
    with project.lock:
        event = project.again(key, "revoke", seq=seq)
        if event is None:
            if seq not in project.records.accepted:
                raise Refused(f"event {seq} is not an acceptance, or it was revoked", "body.seq", 404)
            event = project.append("revoke", {"seq": seq}, who=who, key=key)
    return {"seq": event.seq}


def undone(project: Project, event: Event | None) -> dict[str, Any]:
    """Return what an undo took back, and the first image that it was about, to be labelled again."""
    if event is None:
        return {"undone": None}
    taken = project.journal.event(event.body["seq"])
    assert taken is not None
    image = taken.body["image"] if "image" in taken.body else taken.body["images"][0]
    record = project.records.images[image]
    choice = Choice(image, "audit" if record.audit else "undone", record.audit)
    return {
        "undone": {"kind": taken.kind, "image": image, "label": taken.body.get("label")},
        "item": items(project, [choice])[0],
        "seq": event.seq,
    }
