"""The curl examples of docs/http.md, run one after the other against a server."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from live_project import asked, wait
from serving import write_pictures

PAGE = Path(__file__).parents[2] / "docs" / "http.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_examples_of_the_api(tmp_path):
    photos = write_pictures(tmp_path / "photos", 30)
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines()]
    assert len(commands) > 20
    with asked(tmp_path / "project", photos) as (project, client):
        client.label_next(6)
        wait(project)
        image, other = [item["image"] for item in client.get("/next?count=2")["items"]]
        variables = {"IMAGE": image, "OTHER": other, "FILE": str(photos / "00003.png")}
        lines = [f"set -e; URL=http://127.0.0.1:{client.port}{client.base}"]
        for command in commands:
            if command.startswith("curl"):
                command = command.replace("curl -s ", "curl -sS --fail-with-body ", 1).replace(
                    ":8321", f":{client.port}"
                )
                lines.append(f"{command} || {{ echo; echo 'failed: {command.split()[3]}'; exit 1; }}; echo")
        environment = {**os.environ, **variables}
        done = subprocess.run(
            ["bash", "-c", "\n".join(lines)], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert {"labels.csv", "labels.jsonl", "tasks.json", "images.zip", "learner.zip", "thumb.png"} <= {
            path.name for path in tmp_path.iterdir()
        }
        assert project.records.numbers.keys() >= {"finch"}
