"""The script of docs/take-away.md serves an exported network without torch."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coldstream import ColdStart

PAGE = Path(__file__).parent.parent / "docs" / "take-away.md"
WITHOUT = """
import sys
sys.modules["torch"] = sys.modules["coldstream"] = None
sys.argv = sys.argv[1:]
exec(open(sys.argv[0]).read())
"""


@pytest.mark.parametrize("zoom", [1.0, pytest.param(0.875, marks=pytest.mark.slow)])
@pytest.mark.parametrize("channels", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_the_script_answers_as_the_learner(channels, zoom, tmp_path):
    pytest.importorskip("onnxruntime")
    (code,) = re.findall(r"```python\n(# classify\.py\n.*?)```", PAGE.read_text(), flags=re.DOTALL)
    (tmp_path / "classify.py").write_text(code)
    learner = ColdStart(model="linear", size=(8, 12), channels=channels, replay=8, zoom=zoom)
    draw = np.random.default_rng(0)
    for _ in range(6):
        for label, low in (("dark", 0), ("bright", 100)):
            learner.learn_one(draw.integers(low, low + 150, (8, 12, 3), np.uint8), label)
    learner.export(tmp_path / "model.onnx")

    sized, larger = tmp_path / "sized.png", tmp_path / "larger.png"
    Image.fromarray(draw.integers(60, 190, (8, 12, 3), np.uint8)).save(sized)
    Image.fromarray(np.full((61, 200, 3), 40, np.uint8)).save(larger)
    command = [sys.executable, "-c", WITHOUT, "classify.py", "model.onnx", "sized.png", "larger.png"]
    lines = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.splitlines()
    for path, line in zip((sized, larger), lines, strict=True):
        name, label, confidence = line.split()
        expected = learner.predict_proba_one(path)
        assert name == path.name
        assert label == max(expected, key=expected.get)
        assert float(confidence) == pytest.approx(expected[label], abs=0.0006 if zoom == 1 else 0.05)
