"""Data sets in the layouts in which the official ones are passed on, as small as a test wants them.

torchvision compares the checksums of CIFAR's and Flowers-102's files with those of the official ones, which it keeps
as class attributes: there `cifar10`, `cifar100` and `flowers102` put the sums of the small files, through a
`pytest.MonkeyPatch`.
"""

import hashlib
import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image


def picture(number, height=8, width=8):
    """Pixels that are the number's own."""
    return np.random.default_rng(number).integers(0, 256, (height, width, 3), np.uint8)


def encoded(pixels, kind="PNG"):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **({"lossless": True} if kind == "WEBP" else {}))
    return buffer.getvalue()


def tree(root, content):
    """Write {path: array, bytes or text}; arrays as what the path's ending says."""
    for name, value in content.items():
        path = Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(value, np.ndarray):
            value = encoded(value, {".webp": "WEBP", ".jpg": "JPEG", ".bmp": "BMP"}.get(path.suffix.lower(), "PNG"))
        path.write_bytes(value.encode() if isinstance(value, str) else value)
    return Path(root)


def zipped(folder, target, top="", method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(target, "w", method) as archive:
        # Against the order of names, which must not matter.
        for path in sorted((p for p in Path(folder).rglob("*") if p.is_file()), reverse=True):
            archive.write(path, top + path.relative_to(folder).as_posix())
    return Path(target)


def cifar10(root, patch, batches, names):
    """Write CIFAR-10; `batches` are the labels of each file. Returns the pixels of each file."""
    from torchvision import datasets

    return _cifar(root, patch, datasets.CIFAR10, batches, "labels", {"label_names": names})


def cifar100(root, patch, batches, names):
    """Write CIFAR-100; `batches` are the fine labels of train and test. Returns the pixels of each."""
    from torchvision import datasets

    meta = {"fine_label_names": names, "coarse_label_names": ["x"]}
    return _cifar(root, patch, datasets.CIFAR100, batches, "fine_labels", meta)


def _cifar(root, patch, kind, batches, key, meta):
    pixels = {
        name: np.random.default_rng(number).integers(0, 256, (len(labels), 3072), np.uint8)
        for number, (name, labels) in enumerate(batches.items())
    }
    content = {name: pickle.dumps({"data": pixels[name], key: labels}) for name, labels in batches.items()}
    content[kind.meta["filename"]] = pickle.dumps(meta)
    sums = {name: hashlib.md5(data).hexdigest() for name, data in content.items()}
    patch.setattr(kind, "train_list", [[name, sums[name]] for name, _ in kind.train_list])
    patch.setattr(kind, "test_list", [[name, sums[name]] for name, _ in kind.test_list])
    patch.setattr(kind, "meta", kind.meta | {"md5": sums[kind.meta["filename"]]})
    tree(Path(root) / kind.base_folder, content)
    return {name: rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for name, rows in pixels.items()}


def imagenet(root, train, val):
    """Write ImageNet as torchvision unpacks it; both are {wnid: pictures}."""
    content = {f"train/{c}/{c}_{i}.JPEG": p for c, of_class in train.items() for i, p in enumerate(of_class)}
    numbered = enumerate(((c, p) for c, of_class in val.items() for p in of_class), 1)
    content |= {f"val/{c}/ILSVRC2012_val_{i:08d}.JPEG": p for i, (c, p) in numbered}
    return tree(Path(root) / "imagenet", {**content, "ILSVRC2012_devkit_t12.tar.gz": b"x"})


def core50_frame(session, number, frame):
    return f"s{session}/o{number}/C_{session:02d}_{number:02d}_{frame:03d}.png"


def core50(root, sessions, objects, frames, show):
    """Write CORe50, every clip of so many frames; `show` makes pixels of session, object and frame."""
    content = {
        core50_frame(*clip, frame): show(*clip, frame)
        for clip in ((session, number) for session in sessions for number in objects)
        for frame in range(frames)
    }
    return tree(Path(root) / "core50_128x128", content)


def cub200(root, classes, images):
    """Write CUB-200-2011; `classes` are {number: name}, images [(number, file, whether for training, pixels)]."""
    paths = [f"{classes[number]}/{file}" for number, file, _, _ in images]
    content = {f"images/{path}": pixels for path, (*_, pixels) in zip(paths, images, strict=True)}
    lists = {
        "images": paths,
        "image_class_labels": [number for number, *_ in images],
        "train_test_split": [int(training) for _, _, training, _ in images],
    }
    for name, values in lists.items():
        content[f"{name}.txt"] = "".join(f"{i} {value}\n" for i, value in enumerate(values, 1))
    content["classes.txt"] = "".join(f"{number} {name}\n" for number, name in classes.items())
    return tree(Path(root) / "CUB_200_2011", {**content, "README": "hello"})


def mit_scenes(root, images, train, test):
    """Write MIT Indoor Scenes; `images` are {path: pixels}, the others the text of the two lists."""
    content = {f"Images/{path}": pixels for path, pixels in images.items()}
    return tree(Path(root) / "indoorCVPR_09", {**content, "TrainImages.txt": train, "TestImages.txt": test})


def flowers102(root, patch, labels, pictures, train, val, test):
    """Write Flowers-102; labels and pictures of image 1, 2, ... and the numbers that make the three parts."""
    from scipy import io as scipy_io
    from torchvision import datasets

    base = tree(
        Path(root) / "flowers-102", {f"jpg/image_{i:05d}.jpg": pixels for i, pixels in enumerate(pictures, 1)}
    )
    scipy_io.savemat(base / "imagelabels.mat", {"labels": np.array([labels])})
    scipy_io.savemat(base / "setid.mat", {"trnid": [train], "valid": [val], "tstid": [test]})
    sums = {
        key: (name, hashlib.md5((base / name).read_bytes()).hexdigest() if name.endswith("mat") else md5)
        for key, (name, md5) in datasets.Flowers102._file_dict.items()
    }
    patch.setattr(datasets.Flowers102, "_file_dict", sums)
    return base


def fgvc_aircraft(root, variants, pictures, trainval, test):
    """Write FGVC-Aircraft; pictures 0, 1, ... and for both parts [(number, variant)]."""
    content = {f"images/{i:07d}.jpg": pixels for i, pixels in enumerate(pictures)}
    content["variants.txt"] = "".join(f"{name}\n" for name in variants)
    for part, chosen in (("trainval", trainval), ("test", test)):
        content[f"images_variant_{part}.txt"] = "".join(f"{number:07d} {name}\n" for number, name in chosen)
    return tree(Path(root) / "fgvc-aircraft-2013b" / "data", content)
