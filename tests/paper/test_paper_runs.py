"""The paper's tables as they are run: at paper scale on small stand-ins, on the command line, as pages and pictures.

The stand-ins have the official layouts and random pixels. ImageNet's weights are random too, in the file in which
torchvision keeps what it downloaded, where no checksum is compared any more.
"""

import io
import re
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

import layouts
from coldstream.cli import main
from coldstream.lab import Experiment, make_config, run_jobs
from coldstream.lab.reading import changes_between
from coldstream.lab.records import Confusion
from coldstream.metrics import Interval
from coldstream.models.registry import build_body
from coldstream.paper import EXPERIMENTS, crossing, pages, pictures, results, timing
from coldstream.report import plots
from coldstream.report.kept import KeptEvent, KeptPart, KeptResults, KeptRun, keep, read_kept
from coldstream.report.verdicts import Outcome, Verdict

torchvision = pytest.importorskip("torchvision")
pytest.importorskip("scipy.io")

STREAMED = [name for name, experiment in EXPERIMENTS.items() if experiment.measured is None]
RUN = [name for name in STREAMED if name != "search"]  # for which the stand-ins have too few images
WEIGHTS = "IMAGENET1K_V1"
SMALL = "resnet10-16"
EXAMPLES = {"cifar100": 20, "cifar10": 10, "imagenet": 9, "core50": 12, "tasks": 16}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of every data set that the paper scale uses, and TORCH_HOME with weights."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        # Two images of each of ten classes: as many classes as the crossing has, as many images as it has tests.
        names = [f"thing {number}" for number in range(10)]
        layouts.cifar100(folder, patch, {"train": [*range(10)] * 2, "test": [*range(10)]}, names)
        batches = {**{f"data_batch_{i}": [0, 1] for i in range(1, 6)}, "test_batch": [0, 1]}
        layouts.cifar10(folder, patch, batches, names)
        layouts.imagenet(folder, _folders(3, 0), _folders(1, 50))
        # Objects 1, 6 and 11 are of three classes, session 3 is for testing; of 21 frames two are taken.
        layouts.core50(folder, (1, 2, 3), (1, 6, 11), 21, lambda *which: layouts.picture(which, 16, 16))
        _tasks(folder, patch)
        patch.setenv("TORCH_HOME", str(folder))
        (folder / "hub" / "checkpoints").mkdir(parents=True)
        file = torchvision.models.ResNet18_Weights[WEIGHTS].url.rsplit("/", 1)[1]
        torch.manual_seed(0)
        torch.save(torchvision.models.resnet18().state_dict(), folder / "hub" / "checkpoints" / file)
        body, _ = build_body(SMALL, (3, 32, 32))
        safetensors.torch.save_file(body.state_dict(), folder / "small.safetensors")
        yield folder


def _folders(count, first):
    """Pictures of three classes, none as large as another."""
    return {f"n0144000{c}": [_photo(first + 10 * c + i) for i in range(count)] for c in range(3)}


def _photo(number):
    return layouts.picture(number, 36 + number % 7, 40 + number % 5)


def _tasks(folder, patch):
    """Two classes each, two images to learn and one to test."""
    birds = [(c, f"{i}.jpg", i < 2, _photo(100 + 10 * c + i)) for c in (1, 2) for i in range(3)]
    layouts.cub200(folder, {1: "001.Black", 2: "002.Laysan"}, birds)
    rooms = {
        f"{name}/{i}.jpg": _photo(200 + 10 * c + i) for c, name in enumerate(("bar", "church")) for i in range(3)
    }
    train, test = ("".join(f"{r}\n" for r in rooms if ("2.jpg" in r) == last) for last in (False, True))
    layouts.mit_scenes(folder, rooms, train, test)
    photos = [_photo(300 + i) for i in range(6)]
    layouts.flowers102(folder, patch, [1, 1, 1, 2, 2, 2], photos, [1, 4], [2, 5], [3, 6])
    variants = ("707-320", "A300B4")
    of = [(i, variants[i // 3]) for i in range(6)]
    layouts.fgvc_aircraft(folder, variants, photos, [one for one in of if one[0] % 3 < 2], [of[2], of[5]])


# The largest scale on stand-ins.


def largest(experiment):
    """The settings of every part at the scale of the paper; of an experiment of ours, at its largest."""
    return EXPERIMENTS[experiment].configs(EXPERIMENTS[experiment].scales[-1])


@pytest.mark.parametrize("experiment", STREAMED)
def test_the_largest_scale_is_valid(experiment, root):
    for part, tree in largest(experiment).items():
        config = make_config(tree, [f"data.root={root}"])
        assert list(config.learners) == list(tree["learners"]), part
        assert {config.data.root, *(task.root for task in config.tasks.values())} == {str(root)}


def test_what_is_measured_is_valid():
    """An experiment that is timed takes the settings of a learner."""
    for scale, settings in timing.TIMING.measured.items():
        network = {key: value for key, value in settings.items() if key != "iterations"}
        assert make_config({"name": scale, "learner": network})


def short(tree, root, arms, *, unchanged=False, weights=None):
    """An experiment of some arms of a part, as little changed as will make it short.

    One seed, one epoch wherever there are some; a small network and images of 32 x 32, unless `unchanged`. Arms that
    begin from ImageNet's weights keep ResNet18, or begin from `weights` of the small network.
    """
    learners = {}
    for name in arms:
        settings = dict(tree["learners"][name])
        settings |= {key: 1 for key in ("epochs", "fine_epochs") if key in settings}
        if not unchanged and settings.get("init") == WEIGHTS and weights is None:
            # At 32 x 32 one place is left in the end: of a few images alone it has no statistics.
            settings |= {"model": "resnet18", "size": 64}
        elif not unchanged:
            settings |= {"model": SMALL} if "model" in settings else {}
            settings |= {"size": 32} if "size" in settings else {}
            settings |= {"init": str(weights)} if settings.get("init") == WEIGHTS else {}
        learners[name] = settings
    changes = [f"data.root={root}", "seeds=[0]", "base.epochs=1", "offline.epochs=1"]
    changes += ["data.classes=10", "learner.classes=10"] if tree["name"] == "baselines-lab" else []
    changes += ["pretrain.epochs=1"] if "pretrain" in tree else []
    if not unchanged and tree["learner"]["model"].startswith("resnet18"):
        changes += [f"learner.model={SMALL}", "learner.size=32"]
    return make_config({**tree, "learners": learners}, changes)


def run(config, runs):
    """Run an experiment to its end; return its results."""
    experiment = Experiment.create(config, runs / config.name)
    run_jobs(experiment)
    finished = experiment.results()
    assert list(finished.learners) == list(config.learners)
    examples = EXAMPLES["tasks" if config.tasks else config.data.name]
    assert finished.examples == examples
    for name, learner in finished.learners.items():
        (unit,) = learner.units
        assert 0 <= unit.numbers.final_accuracy <= 1, name
        assert max(event.step for event in unit.events) == examples, name
        assert all(bool(task.offline) == config.offline.enabled for task in unit.tasks), name
    return finished


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One folder for all, so that what tables share is run once."""
    return tmp_path_factory.mktemp("all") / "runs"


@pytest.mark.parametrize("experiment", RUN)
def test_one_arm_of_each_kind_runs(experiment, root, runs):
    parts = list(largest(experiment).values())
    for tree in {tree["name"]: tree for tree in (parts[0], parts[-1])}.values():
        kinds = {settings["kind"]: name for name, settings in reversed(tree["learners"].items())}
        run(short(tree, root, kinds.values(), weights=root / "small.safetensors"), runs / "one")


def test_weights_of_imagenet(root, tmp_path):
    """The file is looked for, by the name of the weights, where torchvision keeps it."""
    tree = EXPERIMENTS["fig:cifar100_cssl"].configs("paper")["CIFAR100"]
    changed = {**tree, "offline": {"enabled": False}}
    run(short(changed, root, ["Deep SLDA"]), tmp_path / "runs")
    (root / "hub" / "checkpoints").rename(root / "hub" / "elsewhere")
    try:
        with pytest.raises(ValueError, match=f"'{WEIGHTS}' of resnet18 could not be downloaded"):
            run(short(changed, root, ["Deep SLDA"]), tmp_path / "others")
    finally:
        (root / "hub" / "elsewhere").rename(root / "hub" / "checkpoints")


@pytest.mark.slow
@pytest.mark.parametrize("experiment", RUN)
def test_every_arm_runs(experiment, root, runs):
    """And fills its place in the table. Tests come after every second class: with one there is no bias."""
    for tree in largest(experiment).values():
        if tree.get("stream", {}).get("test_every"):
            tree = {**tree, "stream": {**tree["stream"], "test_every": 2}}
        run(short(tree, root, tree["learners"]), runs)
    finished = results.from_runs(
        EXPERIMENTS[experiment], EXPERIMENTS[experiment].scales[-1], runs, other_settings=True
    )
    # But for Ω: of what is learned from noise in one epoch there may be nothing to be a share of.
    sure = [metric for metric in EXPERIMENTS[experiment].metrics if "omega" not in metric]
    values = finished.values
    for part, tree in largest(experiment).items():
        missing = [key for key in product([part], tree["learners"], sure) if len(values.get(key, ())) != 1]
        assert missing == []
    assert pages.tables(EXPERIMENTS[experiment], finished)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "arms"),
    [
        ("T:compress", ["6 bit, 66%"]),
        ("fig:perf_gap", ["REMIND"]),
        ("T:imagenet_cssl", ["CSSL + JPEG, 1.5 Gb", "REMIND, 1.5 Gb"]),
        ("T:diff_arch", ["ResNet101", "MobileNetV2", "DenseNet121", "Wide ResNet50-2"]),
    ],
)
def test_the_networks_of_the_paper(experiment, arms, root, tmp_path):
    """At their full size: ResNet18 for images of 32 x 32, and of 224 x 224; other architectures."""
    (tree,) = largest(experiment).values()
    config = short(tree, root, arms, unchanged=True)
    assert (config.learner["model"], config.learner["size"]) in (("resnet18-cifar", 32), ("resnet18", 224))
    run(config, tmp_path / "runs")


# The command line.


def coldstream(*arguments):
    """Run a command in this process; return its exit code, what it said and what it complained about."""
    said, complained = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(complained):
        patch.setattr(sys, "argv", ["coldstream", *map(str, arguments)])
        patch.setenv("COLUMNS", "220")
        with pytest.raises(SystemExit) as stopped:
            main()
    return stopped.value.code, said.getvalue(), " ".join(complained.getvalue().split())


def tiny(experiment, **changes):
    """An experiment with ten classes, a linear model, one epoch and two replayed."""
    lab = experiment.setting("lab")
    tree = {
        **lab.tree,
        "data": {**lab.tree["data"], "classes": 10},
        "learner": {**lab.tree["learner"], "model": "linear", "classes": 10},
        "offline": {**lab.tree["offline"], "epochs": 1},
    }
    where = replace(lab, tree=tree, method={**lab.method, "replay": 2, **changes})
    return replace(experiment, setting=lambda scale: where)


COMPRESS = ("run", "paper/T:compress", "--scale", "lab", "--seed", "0")


@pytest.fixture(scope="module")
def finished(root, tmp_path_factory):
    """A folder in which a T:compress that takes seconds was run, and what the command said."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EXPERIMENTS, "T:compress", tiny(EXPERIMENTS["T:compress"]))
        patch.chdir(tmp_path_factory.mktemp("work"))
        code, said, complained = coldstream(*COMPRESS, "--set", f"data.root={root}")
        assert code == 0, complained
        yield Path.cwd(), said


def test_list_shows_every_experiment(finished, monkeypatch):
    monkeypatch.chdir(finished[0])
    code, said, _ = coldstream("list", "paper")
    assert code == 0
    lines = {name: [line for line in said.splitlines() if f" {name} " in line] for name in EXPERIMENTS}
    assert all(len(shown) == 1 for shown in lines.values()), lines
    assert {name for name, (line,) in lines.items() if "not run" not in line} == {"T:compress"}


def test_a_table_is_printed_beside_the_papers(finished):
    for name, (mean, sd) in {(key[1]): pair for key, pair in EXPERIMENTS["T:compress"].numbers.items()}.items():
        assert re.search(rf"│ {re.escape(name)} .*│ +{mean:.3f} ± {sd:.3f} │", finished[1]), name


def test_what_is_finished_is_not_run_again(finished, root, monkeypatch):
    folder, said = finished
    monkeypatch.chdir(folder)
    store = {path: path.stat().st_mtime_ns for path in (folder / "runs" / "store").rglob("*") if path.is_file()}
    code, again, _ = coldstream(*COMPRESS, "--set", f"data.root={root}")
    assert code == 0
    # Seven learners and the offline networks of three tests: after four, eight and ten classes.
    assert "10 of 10 jobs are finished" in again
    assert store == {path: path.stat().st_mtime_ns for path in store}
    assert again[again.index("T:compress, lab") :] == said[said.index("T:compress, lab") :]


def test_all_experiments_one_after_another(finished, root, tmp_path, monkeypatch):
    """Where the data are is for those that stream; the one that is timed goes without."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in EXPERIMENTS if name not in ("T:compress", "T:cssl_timing")]:
        monkeypatch.delitem(EXPERIMENTS, name)
    shutil.copytree(finished[0] / "runs", tmp_path / "runs")
    pieces = {"CSSL": {piece: np.array([1.0, 2.0]) for piece in timing.TIMING.metrics}}
    monkeypatch.setattr("benchmarks.run.time_pieces", lambda console, **settings: pieces)
    code, said, complained = coldstream("run", "paper", "--scale", "lab", "--seed", "0", "--set", f"data.root={root}")
    assert code == 0, complained
    assert "10 of 10 jobs are finished" in said
    assert "T:cssl_timing, lab scale" in said


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["paper/T:nonsense"], r"unknown table or figure of the paper 'T:nonsense'.*valid: .*T:compress"),
        (["paper/T:compres"], r"'T:compres'; did you mean 'T:compress'\?"),
        (["paper/T:compress", "--scale", "huge"], r"unknown scale 'huge'; valid: desk, lab, paper"),
        (["paper/T:compress", "--scale", "papers"], r"unknown scale 'papers'; did you mean 'paper'\?"),
        (["paper/T:core50/XX"], r"unknown part of T:core50 'XX'; valid: CI, 'CI, pre-trained', CID,"),
        (["paper/T:core50/ID, pretrained"], r"did you mean 'ID, pre-trained'\?"),
        (["--scale", "lab"], r"--scale is for the paper's tables: coldstream run paper/NAME --scale lab"),
        (["digits", "--scale", "paper"], r"--scale is for the paper's tables"),
        (["paper/T:compress", "--out", "x"], r"leave --out and --learner out"),
        (["paper/T:compress", "--learner", "cssl"], r"leave --out and --learner out"),
        (["paper/T:compress", "--set", "learner.replya=1"], r"did you mean 'replay'\?"),
        (["paper/T:cssl_timing", "--seed", "1"], r"T:cssl_timing is timed, not streamed; leave --set and --seed out"),
    ],
)
def test_errors(arguments, wanted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, said, complained = coldstream("run", *arguments)
    assert (code, said) == (2, "")
    assert re.search(wanted, complained), complained
    assert list(tmp_path.iterdir()) == []


# Pages.


def made_up(experiment, number=lambda part, name, seed, metric: 0.5, *, seeds=2):
    """Results at lab scale, every number made by hand: two tests, two classes."""
    parts = {}
    for part, tree in experiment.configs("lab").items():
        learners = {
            name: [
                _unit(tree, name, seed, {m: number(part, name, seed, m) for m in experiment.metrics})
                for seed in range(seeds)
            ]
            for name in [*tree["learners"], *(["offline"] if "tasks" in tree else [])]
        }
        parts[part] = KeptPart(settings=results.addresses(tree), examples=20, learners=learners)
    environment = {"commit": "0123456789", "threads": 1, "torch": "2.7"}
    return KeptResults(
        experiment=experiment.name, scale="lab", date="2025-01-02", environment=environment, parts=parts
    )


def _unit(tree, name, seed, numbers):
    """After 10 and 20 images: accuracy 0.4 and 0.6, with each seed 0.2 more."""
    tasks = [] if name == "offline" and "tasks" in tree else tree.get("tasks", [None])
    events = [
        KeptEvent(step=step, task=task, accuracy=round(step / 50 + 0.2 + 0.2 * seed, 4), ece=0.1)
        for task in tasks
        for step in (10, 20)
    ]
    confusion = Confusion(truth=("b", "a"), predicted=("a", "b"), counts=((1, 3), (4, 0)))
    return KeptRun(seed=seed, numbers=numbers, events=events, confusion=confusion)


def by_share(part, name, seed, metric):
    """Accuracy by the frozen share, falling but for 40%, which is as good as 20%; the second seed 0.01 worse."""
    return {"0%": 0.9, "20%": 0.8, "40%": 0.8, "60%": 0.6, "80%": 0.5, "100%": 0.4}[name.split()[0]] - 0.01 * seed


@pytest.fixture(scope="module")
def written(finished):
    """The page of results, of a finished run and of kept results of another experiment."""
    folder, _ = finished
    keep(made_up(EXPERIMENTS["fig:layer_freeze"], by_share), folder / "docs" / "results")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        code, said, complained = coldstream("report", "paper", "--out", "docs")
    assert code == 0, complained
    return folder / "docs", said


def test_what_a_report_writes(written):
    docs, said = written
    names = ["results.md", *(f"paper/{experiment.slug}.md" for experiment in EXPERIMENTS.values())]
    assert said.split() == [f"docs/{name}" for name in names]
    assert all((docs / name).is_file() for name in names)
    finished = {path.stem for path in (docs / "paper").iterdir() if was_run(path, "Lab")}
    assert finished == {"fig-layer_freeze", "T-compress"}
    assert not [path for path in (docs / "paper").iterdir() if was_run(path, "Desk")]
    assert "coldstream run paper/T:core50 --scale lab --set data.root" in (docs / "paper" / "T-core50.md").read_text()
    assert [path.name for path in (docs / "images" / "results").iterdir()] == ["fig-layer_freeze-bars.png"]
    for page_of, where in (("results.md", ""), ("paper/fig-layer_freeze.md", "../")):
        text = (docs / page_of).read_text()
        assert f"![Accuracy by frozen share]({where}images/results/fig-layer_freeze-bars.png)" in text


def was_run(page, scale):
    """Whether a page has results at a scale."""
    _, there, section = page.read_text().partition(f"\n{scale} scale: ")
    return bool(there) and "It was not run yet" not in re.split(r"\n\w+ scale: |\n#", section)[0]


NUMBER = re.compile(r"\d\.\d{3}")


def cells(text):
    """Lines of the tables in Markdown."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


def linked(name):
    """How the page of all results names an experiment."""
    return f"[{name}](paper/{EXPERIMENTS[name].slug}.md)"


def test_verdicts_in_the_page(written):
    """Of five steps down one, from 20% to 40%, is none: nothing is lost, with no spread, so that is not decided."""
    docs, _ = written
    lines = cells((docs / "results.md").read_text())
    freezing = linked("fig:layer_freeze")
    falls = "Accuracy falls with the frozen share"
    assert [freezing, falls, "not decided", "lab, 2 seeds"] in lines
    assert [
        freezing,
        "Training everything is better than training the head alone",
        "confirmed",
        "lab, 2 seeds",
    ] in lines
    assert [falls, "not decided", "4", "1", "0", "0"] in lines
    # One seed decides nothing, whatever its numbers are.
    raw = "6 bits and 66% are better than raw images"
    assert [linked("T:compress"), raw, "one seed: not decided", "lab, 1 seed"] in lines
    for claim in EXPERIMENTS["T:core50"].claims:
        assert [linked("T:core50"), claim.text, "not run", ""] in lines
    text = (docs / "paper" / "fig-layer_freeze.md").read_text()
    lines, where = cells(text), "final accuracy (CIFAR100)"
    assert ["20% frozen", "40% frozen", where, "+0.000 ± 0.000", "2", "not decided"] in lines
    assert ["0% frozen", "100% frozen", where, "+0.500 ± 0.000", "2", "confirmed"] in lines
    # Where one comparison is the claim, its interval is at the top.
    assert (
        "\n- Training everything is better than training the head alone: **confirmed** (+0.500 ± 0.000), lab scale.\n"
        in text
    )
    assert f"\n- {falls}: **not decided**, lab scale.\n" in text


def test_how_many_claims_there_are_of_each_verdict(written):
    """Each claim has a line, and its verdict is counted at the top."""
    docs, _ = written
    text = (docs / "results.md").read_text()
    claims = sum(len(experiment.claims) for experiment in EXPERIMENTS.values())
    counted = re.search(
        rf"Of {claims} claims (\d+) are confirmed, (\d+) refuted, (\d+) not decided and (\d+) not run",
        text,
    )
    overview = [line[2] for line in cells(text) if line[0].startswith("[") and line[1] != "(no claim to test)"]
    assert len(overview) == claims
    outcomes = ("confirmed", "refuted", "not decided", "not run")
    assert [sum(outcome in verdict for verdict in overview) for outcome in outcomes] == [*map(int, counted.groups())]
    not_run = len(EXPERIMENTS["fig:layer_freeze"].claims) + len(EXPERIMENTS["T:compress"].claims)
    assert int(counted[4]) == claims - not_run


def test_a_claim_that_numbers_go_against(tmp_path):
    """The head alone is better by 0.1 with one seed and by 0.4 with the other, 0.25 ± 1.9; then by 0.12 twice."""
    experiment = EXPERIMENTS["fig:layer_freeze"]

    def upside_down(by):
        return lambda part, name, seed, metric: 0.5 + (by[seed] if name == "100% frozen" else 0)

    for by, verdict in (((0.1, 0.4), "not decided (some 6 seeds would)"), ((0.12, 0.12), "refuted")):
        keep(made_up(experiment, upside_down(by)), tmp_path / "results")
        pages.write(tmp_path / "runs", tmp_path)
        lines = cells((tmp_path / "results.md").read_text())
        claim = "Training everything is better than training the head alone"
        assert [linked(experiment.name), claim, verdict, "lab, 2 seeds"] in lines


def test_a_page_from_what_was_kept_is_the_same(written, monkeypatch):
    docs, said = written
    before = {path: path.read_bytes() for path in docs.rglob("*") if path.is_file()}
    monkeypatch.chdir(docs.parent)
    kept = docs.parent / "moved"
    shutil.move("runs", kept)
    try:
        assert coldstream("report", "paper", "--out", "docs")[1] == said
    finally:
        shutil.move(kept, "runs")
    assert {path: path.read_bytes() for path in docs.rglob("*") if path.is_file()} == before
    assert docs / "results" / "T-compress-lab.json" in before


@pytest.mark.parametrize("where", ["elsewhere", "in the same folder"])
def test_seeds_add_up(where, written, root, tmp_path, monkeypatch):
    """The second one run without the first, elsewhere or in the folder of its run: the page is that of both."""
    docs, _ = written
    monkeypatch.chdir(tmp_path)
    shutil.copytree(docs / "results", tmp_path / "docs" / "results")
    if where != "elsewhere":
        shutil.copytree(docs.parent / "runs", tmp_path / "runs")
    code, said, complained = coldstream(*COMPRESS[:-1], "1", "--set", f"data.root={root}")
    assert code == 0, complained
    assert ("seeds [1]" if where == "elsewhere" else "seeds [0, 1]") in said
    assert coldstream("report", "paper")[0] == 0
    before, after = (
        read_kept("T:compress", "lab", folder / "results").parts["CIFAR100"].learners
        for folder in (docs, tmp_path / "docs")
    )
    for name, runs in after.items():
        assert [run.seed for run in runs] == [0, 1]
        assert runs[0].numbers == before[name][0].numbers != runs[1].numbers
    assert "2 seeds" in (tmp_path / "docs" / "paper" / "T-compress.md").read_text()


def test_a_learner_alone_adds_its_seed(written, root, tmp_path, monkeypatch):
    """One learner is run with one more seed, without offline references: the others keep what they had."""
    docs, _ = written
    monkeypatch.chdir(tmp_path)
    shutil.copytree(docs / "results", tmp_path / "docs" / "results")
    before = read_kept("T:compress", "lab", tmp_path / "docs" / "results").parts["CIFAR100"].learners
    raw, other = "8 bit, 100%", "6 bit, 66%"
    place, changes = f"paper/T:compress/CIFAR100/{raw}", ("--set", f"data.root={root}", "--set", "offline.seeds=[0]")
    code, said, complained = coldstream("run", place, "--scale", "lab", "--seed", "1", *changes)
    assert code == 0, complained
    assert f"T:compress, CIFAR100: {raw}, seeds [1]" in said
    assert complained.endswith("1 of 1 jobs")
    code, said, _ = coldstream("report", "paper")
    assert code == 0
    assert "left out" not in said
    after = read_kept("T:compress", "lab", tmp_path / "docs" / "results").parts["CIFAR100"].learners
    assert [run.seed for run in after[raw]] == [0, 1]
    assert after[raw][0].numbers == before[raw][0].numbers
    assert "final_accuracy" in after[raw][1].numbers
    assert "omega_final" not in after[raw][1].numbers
    assert after[other] == before[other]
    # With the same seed it is the run of the whole part, job for job.
    shutil.copytree(docs.parent / "runs" / "store", tmp_path / "runs" / "store", dirs_exist_ok=True)
    code, said, _ = coldstream("run", place, "--scale", "lab", "--seed", "0", *changes)
    assert code == 0
    assert "5 of 5 jobs are finished" in said  # with those of seed 1


def test_results_of_other_settings_are_left_out(finished, root, tmp_path, monkeypatch):
    """A run with a changed setting is shown when it is run, but not put beside the paper; nor are kept results."""
    monkeypatch.chdir(tmp_path)
    keep(made_up(EXPERIMENTS["T:reservoir"]), tmp_path / "docs" / "results")
    code, said, _ = coldstream(*COMPRESS, "--set", f"data.root={root}", "--set", "offline.epochs=2")
    assert code == 0
    assert "│ 6 bit, 66%" in said
    code, said, _ = coldstream("report", "paper")
    assert code == 0
    assert "runs/T-compress-lab is left out: it was run with other settings: offline.epochs: 1 → 2" in said
    assert was_run(tmp_path / "docs" / "paper" / "T-reservoir.md", "Lab")
    monkeypatch.setitem(EXPERIMENTS, "T:reservoir", tiny(EXPERIMENTS["T:reservoir"]))
    code, said, _ = coldstream("report", "paper")
    assert "kept results of T:reservoir, CIFAR100, are left out, as settings have changed: " in said
    overview = [line for line in cells((tmp_path / "docs" / "results.md").read_text()) if line[0].startswith("[")]
    assert {tuple(line[2:]) for line in overview} == {("not run", "")}
    assert {line[0] for line in overview} == {linked(name) for name in EXPERIMENTS}
    compress = EXPERIMENTS["T:compress"]
    assert results.read_results(compress, "lab", tmp_path / "runs", tmp_path / "docs" / "results") is None


@pytest.mark.parametrize("experiment", STREAMED)
def test_every_experiment_has_a_page(experiment, tmp_path):
    """The whole of it from made-up results; numbers of the paper that belong to a part are in its table."""
    experiment = EXPERIMENTS[experiment]
    keep(made_up(experiment), tmp_path / "results")
    written = pages.write(tmp_path / "runs", tmp_path)
    assert [path.stem for path in written] == ["results", *(one.slug for one in EXPERIMENTS.values())]
    shown = {number for line in cells((tmp_path / "results.md").read_text()) for number in NUMBER.findall(str(line))}
    lab = experiment.configs("lab")
    assert {f"{mean:.4f}"[:5] for (part, *_), (mean, _) in experiment.numbers.items() if part in lab} <= shown
    drawn = sorted((tmp_path / "images" / "results").iterdir())
    assert [path.name for path in drawn] == sorted(
        f"{experiment.slug}-{figure.kind}.png" for figure in experiment.figures
    )
    for path in drawn:
        with Image.open(path) as image:
            assert image.format == "PNG"
            assert min(image.size) > 300
            assert len(np.unique(np.asarray(image.convert("L")))) > 20  # lines and letters, not one grey


# Pictures.


DRAWN = [(experiment, figure) for experiment in EXPERIMENTS.values() for figure in experiment.figures]


def test_every_kind_of_picture_is_used():
    assert {figure.kind for _, figure in DRAWN} == pictures.KINDS.keys()


@pytest.fixture
def panels_of(monkeypatch, tmp_path):
    """Draw a picture and return its panels."""

    def draw(experiment, kind, kept):
        drawn = []
        monkeypatch.setattr(plots, "save", lambda figure, path, svg: drawn.append(figure))
        (figure,) = (one for one in experiment.figures if one.kind == kind)
        pictures.KINDS[kind](tmp_path / "x.png", experiment, figure, kept)
        return drawn[0].axes

    return draw


def lines_of(axes):
    return {line.get_label(): ([*line.get_xdata()], [*line.get_ydata()]) for line in axes.lines}


@pytest.mark.parametrize(
    ("experiment", "figure"), DRAWN, ids=[f"{experiment.slug}-{figure.kind}" for experiment, figure in DRAWN]
)
def test_a_picture_of_one_seed(experiment, figure, panels_of):
    for axes in panels_of(experiment, figure.kind, made_up(experiment, seeds=1)):
        assert not axes.collections or figure.kind == "bars"  # without a range there is no band


def test_events_are_means_over_seeds(panels_of):
    experiment = EXPERIMENTS["fig:cifar_acc_track"]
    (axes,) = panels_of(experiment, "events", made_up(experiment))
    # Seeds 0 and 1: 40 and 60% after 10 images, 60 and 80% after 20.
    points = ([10, 20], [pytest.approx(50), pytest.approx(70)])
    assert lines_of(axes) == dict.fromkeys(experiment.configs("lab")["CIFAR100"]["learners"], points)


def test_capacities_are_drawn_where_they_are(panels_of):
    experiment = EXPERIMENTS["fig:cifar100_cssl"]
    share = {"CSSL, 30 Mb": 0.3, "CSSL, 60 Mb": 0.6, "CSSL, 90-150 Mb": 0.9, "ExStream, 120 Mb": 0.2, "REMIND": 0.7}
    (axes,) = panels_of(experiment, "capacity", made_up(experiment, lambda part, name, *_: share.get(name, 0.5)))
    lines = lines_of(axes)
    sizes = [30, 60, 90, 120, 150]
    assert lines["CSSL"] == (sizes, [0.3, 0.6, 0.9, 0.9, 0.9])
    assert lines["ExStream"] == (sizes, [0.5, 0.5, 0.5, 0.2, 0.5])
    assert lines["REMIND"] == (sizes, [0.7] * 5)
    assert lines["REMIND + extra params"] == (sizes, [0.5] * 5)


def test_bars_are_as_high_as_their_numbers(panels_of):
    experiment = EXPERIMENTS["fig:layer_freeze"]
    (axes,) = panels_of(experiment, "bars", made_up(experiment, by_share))
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([89.5, 79.5, 79.5, 59.5, 49.5, 39.5])
    assert [label.get_text() for label in axes.get_xticklabels()][::5] == ["0% frozen", "100% frozen"]


def test_confusions_are_shares_in_the_order_of_coming(panels_of):
    experiment = EXPERIMENTS["fig:perf_gap"]
    panels = panels_of(experiment, "confusion", made_up(experiment))
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles == [name for name in experiment.configs("lab")["CIFAR100"]["learners"] if name != "offline"]
    for axes in panels:  # b came first: of its four images three are taken for b, of a's all for a
        assert axes.images[0].get_array().tolist() == [[0.75, 0.25], [0, 1]]


def test_tasks_have_a_panel_each(panels_of):
    experiment = EXPERIMENTS["tab:mt_stream"]
    kept = made_up(experiment, lambda part, name, seed, metric: 0.75 + 0.1 * seed)
    panels = panels_of(experiment, "tasks", kept)
    tasks = list(experiment.configs("lab")["cold"]["tasks"])
    titles = [f"{task}, {part}" for part in kept.parts for task in tasks]
    assert [axes.get_title(loc="left") for axes in panels] == titles
    for axes in panels:
        lines = lines_of(axes)
        assert lines["offline"][1] == pytest.approx([80, 80])
        assert lines["CSSL"] == ([10, 20], [pytest.approx(50), pytest.approx(70)])
    cold = kept.model_copy(update={"parts": {"cold": kept.parts["cold"]}})
    assert len(panels_of(experiment, "tasks", cold)) == len(tasks)


def test_the_crossing_is_a_difference(panels_of):
    experiment = crossing.CROSSING
    strong = {50: -0.125, 100: 0.0, 250: 0.25, 500: 0.5}

    def number(part, name, seed, metric):
        return 0.5 + (strong[int(part.split()[1])] if name == crossing.STRONG else 0)

    accuracy, ece = (lines_of(axes) for axes in panels_of(experiment, "crossing", made_up(experiment, number)))
    assert accuracy["resnet8-16, 79,000 parameters"] == ([50, 100, 250, 500], [-12.5, 0, 25, 50])
    assert ece["resnet10-32, 617,000 parameters"] == ([50, 100, 250], [0.125, 0, -0.25])
    kept = made_up(experiment, number)
    few = {name: kept.parts[name] for name in ("resnet8-16, 50 a class", "resnet8-16, 250 a class")}
    accuracy, _ = (
        lines_of(axes) for axes in panels_of(experiment, "crossing", kept.model_copy(update={"parts": few}))
    )
    assert [label for label in accuracy if label[0] != "_"] == ["resnet8-16, 79,000 parameters"]
    assert accuracy["resnet8-16, 79,000 parameters"] == ([50, 250], [-12.5, 25])


def test_central_claims_are_judged_at_the_largest_scale_that_was_run():
    """0% frozen is better by 0.5 in both seeds; nothing else was run."""
    experiment = EXPERIMENTS["fig:layer_freeze"]
    kept = made_up(experiment, by_share)
    scales = {name: [{"scale": "lab", "results": None}] for name in EXPERIMENTS}
    scales[experiment.name] = [{"scale": "lab", "results": kept}, {"scale": "desk", "results": None}]
    rows = {row["claim"].experiment: row for row in pages.central_claims(scales)}
    row = rows.pop(experiment.name)
    assert (str(row["verdict"]), row["data"]) == ("confirmed", "lab, 2 seeds")
    assert row["lead"].mean == pytest.approx(0.5)
    assert row["ours"] == "final accuracy 0.895 ± 0.007 against 0.395 ± 0.007"
    assert {str(other["verdict"]) for other in rows.values()} == {"not run"}
    # Means are over the seeds that both have.
    (part,) = kept.parts.values()
    part.learners["100% frozen"] = part.learners["100% frozen"][:1]
    (row,) = [one for one in pages.central_claims(scales) if one["claim"].experiment == experiment.name]
    assert row["ours"] == "final accuracy 0.900 against 0.400"
    assert rows["T:data_aug"]["paper"] == "0.886 ± 0.002 against 0.689 ± 0.001"


def test_searched_settings_count_more_than_the_papers_at_lab_scale():
    """The desk's verdict counts most, one seed nowhere while another place has several."""

    def decided(lab, searched, desk):
        seeds = {"T:data_aug": {"lab": lab, "desk": desk}, "baselines": {"lab": searched}}
        scales = {name: [{"scale": "lab", "results": None}] for name in EXPERIMENTS}
        for name, counts in seeds.items():
            scales[name] = [
                {"scale": scale, "results": made_up(EXPERIMENTS[name], better, seeds=n) if n else None}
                for scale, n in counts.items()
            ]
        (row,) = [one for one in pages.central_claims(scales) if one["claim"].experiment == "T:data_aug"]
        return row["experiment"].name, row["data"], str(row["verdict"])

    def better(part, name, seed, metric):
        return 0.7 if name in ("CSSL", "MU + CM + AA") else 0.5

    assert decided(0, 0, 0) == ("T:data_aug", "", "not run")
    assert decided(2, 0, 0) == ("T:data_aug", "lab, 2 seeds", "confirmed")
    assert decided(2, 1, 1) == ("T:data_aug", "lab, 2 seeds", "confirmed")
    assert decided(2, 3, 0) == ("baselines", "lab, 3 seeds", "confirmed")
    assert decided(2, 3, 1) == ("baselines", "lab, 3 seeds", "confirmed")
    assert decided(2, 3, 2) == ("T:data_aug", "desk, 2 seeds", "confirmed")
    assert decided(1, 1, 1) == ("T:data_aug", "desk, 1 seed", "one seed: not decided")


def test_base_initialisation_that_was_not_written_was_not_there():
    """A run of before with the experiment's recipe is no result of a recipe of the learner's own."""

    def changes(wanted, before):
        return changes_between(results._common(wanted, before), before)

    arm = {"kind": "deep-slda", "init": "base"}
    before = {"learners": {"a": arm}, "data": {"name": "digits"}}
    for name, value in (("base", {"epochs": 200}), ("per_update", 10), ("base_init", True)):
        wanted = {"learners": {"a": {**arm, name: value}}, "data": {"name": "digits", "validation": None}}
        assert changes(wanted, before) == [f"learners.a.{name}: {value!r} → None"]
    added = {"learners": {"a": {**arm, "added since": 1}}, "data": {"name": "digits", "validation": None}}
    assert changes(added, before) == []
    held_out = {"learners": {"a": arm}, "data": {"name": "digits", "validation": 50}}
    assert changes(held_out, before) == ["data.validation: 50 → None"]


def test_a_reference_alone_is_no_result(tmp_path):
    """The learners have other settings now, the offline network has not."""
    experiment = EXPERIMENTS["tab:mt_stream_strat"]
    kept = made_up(experiment)
    for part in kept.parts.values():
        part.settings.update({name: "another" for name in part.settings if name != "offline"})
    keep(kept, tmp_path)
    assert results.read_results(experiment, "lab", tmp_path / "runs", tmp_path) is None


def test_a_line_has_the_seeds_that_all_of_its_capacities_have(panels_of):
    experiment = EXPERIMENTS["fig:cifar100_cssl"]
    kept = made_up(experiment, lambda part, name, seed, metric: 0.5 + seed / 10, seeds=3)
    (part,) = kept.parts.values()
    part.learners["CSSL, 60 Mb"] = part.learners["CSSL, 60 Mb"][1:2]
    part.learners["ExStream, 30 Mb"] = part.learners["ExStream, 30 Mb"][:1]
    part.learners["ExStream, 60 Mb"] = part.learners["ExStream, 60 Mb"][1:]
    (axes,) = panels_of(experiment, "capacity", kept)
    lines = lines_of(axes)
    assert lines["CSSL"][1] == pytest.approx([0.6] * 5)
    assert "ExStream" not in lines


def test_a_claim_is_judged_where_all_of_its_comparisons_are():
    """At desk scale some of its learners are missing: lab's verdict counts, and desk's says how many it has."""

    def at(scale, whole, seeds, outcome):
        interval = Interval(0.1, 0.05, seeds)
        return {"scale": scale, "claims": [{"whole": whole, "verdict": Verdict(outcome, interval)}]}

    lab = at("lab", True, 3, Outcome.REFUTED)
    for desk, expected in (
        (at("desk", True, 3, Outcome.CONFIRMED), "desk"),
        (at("desk", True, 1, Outcome.NOT_DECIDED), "lab"),
        (at("desk", False, 3, Outcome.CONFIRMED), "lab"),
    ):
        assert pages._at_largest([lab, desk], 0)["scale"] == expected
    experiment = EXPERIMENTS["T:reservoir"]
    (claim,) = pages._at_scale(experiment, "desk", None)["claims"]
    assert claim["text"].endswith("at every capacity (1 of 4 comparisons)")


def test_a_learner_that_the_first_part_lacks_has_its_line():
    experiment = EXPERIMENTS["T:core50"]
    kept = made_up(experiment)
    del next(iter(kept.parts.values())).learners["REMIND"]
    for table in pages.tables(experiment, kept):
        assert "REMIND" in [line[0] for line in table]
