"""All data sets by name."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from coldstream._lazy import FunctionsOf
from coldstream.data.sources import VARIABLE, Entry, MissingData, Place, Source, data_root
from coldstream.parsing import unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldstream.data.dataset import Dataset
    from coldstream.data.sources import Pair

clips, lists = FunctionsOf("coldstream.data.clips"), FunctionsOf("coldstream.data.list_files")
cifar100_strips, gtsrb, cub200, mit_scenes = clips.cifar100_strips, clips.gtsrb, lists.cub200, lists.mit_scenes
tv = FunctionsOf("coldstream.data.torchvision_sets")
core50 = FunctionsOf("coldstream.data.core50_clips").core50
digits = FunctionsOf("coldstream.data.built_in").digits
folder: Callable[..., Pair] = FunctionsOf("coldstream.data.folders").folder
huggingface: Callable[..., Pair] = FunctionsOf("coldstream.data.huggingface").huggingface
_FASHION = "train-images-idx3-ubyte"

DATASETS: dict[str, Source] = {
    "digits": Source(
        "scikit-learn's handwritten digits, 8x8", 10, 1_442, 355, "it comes with scikit-learn", built_in=digits
    ),
    "fashion-mnist": Source(
        "Fashion-MNIST, 28x28 grey",
        10,
        60_000,
        10_000,
        "put the four .gz files of https://github.com/zalandoresearch/fashion-mnist (Debian "
        "has them as the package dataset-fashion-mnist, in /usr/share/datasets) into fashion-mnist/",
        (
            Place(f"FashionMNIST/raw/{_FASHION}", tv.fashion_mnist),
            Place(f"FashionMNIST/raw/{_FASHION}.gz", tv.fashion_mnist_packed),
            Place(f"fashion-mnist/{_FASHION}.gz", tv.fashion_mnist_packed),
        ),
        partial(tv.fetch, "FashionMNIST"),
    ),
    "cifar10": Source(
        "CIFAR-10, 32x32",
        10,
        50_000,
        10_000,
        "unpack cifar-10-python.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html",
        (Place("cifar-10-batches-py", tv.cifar10),),
        partial(tv.fetch, "CIFAR10"),
    ),
    "cifar100": Source(
        "CIFAR-100, 32x32",
        100,
        50_000,
        10_000,
        "unpack cifar-100-python.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html; or put "
        "a zip of one strip per class there",
        (Place("cifar-100-python", tv.cifar100), Place("cifar100*.zip", cifar100_strips)),
        partial(tv.fetch, "CIFAR100"),
    ),
    "imagenet": Source(
        "ImageNet, ILSVRC 2012",
        1_000,
        1_281_167,
        50_000,
        "register at https://image-net.org, download ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and "
        "ILSVRC2012_devkit_t12.tar.gz into imagenet/, and let torchvision.datasets.ImageNet unpack them (once with "
        "split='train', once with split='val') to imagenet/train/<wnid>/ and imagenet/val/<wnid>/",
        (Place("imagenet", folder),),
    ),
    "core50": Source(
        "CORe50, 128x128 crops of clips, 1 frame a second",
        10,
        6_000,
        2_250,
        "download core50_128x128.zip from https://vlomonaco.github.io/core50; it is read as it is or unpacked",
        (Place("core50_128x128", core50), Place("core50*.zip", core50)),
    ),
    "cub200": Source(
        "CUB-200-2011, birds",
        200,
        5_994,
        5_794,
        "download CUB_200_2011.tgz from https://www.vision.caltech.edu/datasets/cub_200_2011 and unpack it; or put "
        "it there as an image folder, also zipped",
        (Place("CUB_200_2011", cub200), Place("CUB_200_2011.zip", cub200), Place("cub200*", cub200)),
    ),
    "flowers102": Source(
        "Oxford Flowers-102, train and val together",
        102,
        2_040,
        6_149,
        "put 102flowers.tgz, unpacked, imagelabels.mat and setid.mat of "
        "https://www.robots.ox.ac.uk/~vgg/data/flowers/102 into flowers-102/; or put it there as an image "
        "folder, also zipped",
        (Place("flowers-102", tv.flowers102), Place("flowers102*", folder)),
        partial(tv.fetch, "Flowers102"),
    ),
    "mit-scenes": Source(
        "MIT Indoor Scenes",
        67,
        5_360,
        1_340,
        "download indoorCVPR_09.tar, TrainImages.txt and TestImages.txt from "
        "https://web.mit.edu/torralba/www/indoor.html and unpack into indoorCVPR_09/, the two lists beside Images/",
        (Place("indoorCVPR_09", mit_scenes), Place("mit-scenes*", mit_scenes)),
    ),
    "fgvc-aircraft": Source(
        "FGVC-Aircraft, variants, trainval",
        100,
        6_667,
        3_333,
        "unpack fgvc-aircraft-2013b.tar.gz of https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft",
        (Place("fgvc-aircraft-2013b", tv.fgvc_aircraft),),
        partial(tv.fetch, "FGVCAircraft"),
    ),
    "gtsrb": Source(
        "GTSRB traffic signs, tracks of 30 frames as clips, 32x32",
        43,
        2_580,
        1_290,
        "put a zip or a folder with <class>/track<number>.webp there: three tracks of each class of GTSRB's training "
        "images, https://benchmark.ini.rub.de, the frames of a track below each other",
        (Place("gtsrb*", gtsrb),),
    ),
}


def load_dataset(name: str, root: str | Path | None = None, download: bool = False) -> tuple[Dataset, Dataset]:
    """Return the training and the test set of that name.

    Parameters
    ----------
    name
        A name of `catalog`; or the path of an image folder or a zip of one, as it is or as `folder:PATH`; or
        `hf:NAME` for a set of Hugging Face (see `huggingface`).
    root
        The folder of data sets; else the environment variable COLDSTREAM_DATA, else one in the user's cache.
    download
        Whether to download a missing set, if that is possible.

    Raises
    ------
    MissingData
        If the set is missing. The message says where it was looked for and how to get it.

    Examples
    --------
    >>> train, test = load_dataset("digits")
    >>> len(train), len(test)
    (1442, 355)
    >>> load_dataset("cifra100")
    Traceback (most recent call last):
    ...
    ValueError: unknown data set 'cifra100'; did you mean 'cifar100'? valid: cifar10, ...
    """
    if name in DATASETS:
        train, test = _load(name, DATASETS[name], data_root(root), download)
        return replace(train, name=name), replace(test, name=name)
    kind, colon, rest = name.partition(":")
    if colon and kind == "hf":
        return huggingface(rest, root=data_root(root), download=download)
    path = Path(rest if colon and kind == "folder" else name).expanduser()
    if path.exists():
        return folder(path)
    if (colon and kind == "folder") or len(path.parts) > 1 or path.suffix == ".zip":
        raise MissingData(f"there is no image folder or zip {str(path)!r}")
    raise unknown("data set", name, [*DATASETS, "folder:PATH", "hf:NAME"])


def catalog(root: str | Path | None = None) -> list[Entry]:
    """Return all named sets with their official numbers, and whether they are present."""
    base = data_root(root)
    entries = []
    for name, source in DATASETS.items():
        paths = [str(path) for place in source.places for path in sorted(base.glob(place.pattern))]
        where = paths[0] if paths else str(base / source.where()) if source.places else ""
        present = bool(paths) or source.built_in is not None
        how = source.instructions(name)
        entries.append(Entry(name, source.title, source.classes, source.train, source.test, present, where, how))
    return entries


def _load(name: str, source: Source, root: Path, download: bool) -> tuple[Dataset, Dataset]:
    if source.built_in is not None:
        return source.built_in()
    located = source.find(root)
    failed = ""
    if located is None and download and source.fetch is not None:
        try:
            source.fetch(root)
        except (OSError, RuntimeError, EOFError) as error:
            failed = f" Downloading failed: {error}."
        located = source.find(root) if not failed else None
    elif located is None and download:
        failed = " It cannot be downloaded by this program."
    if located is None:
        raise MissingData(
            f"data set {name!r} is not here: looked for {source.where()} in {str(root)!r}.{failed} "
            f"To get it: {source.instructions(name)}. "
            f"The folder is the argument root, else the environment variable {VARIABLE}."
        )
    place, path = located
    return place.read(path)
