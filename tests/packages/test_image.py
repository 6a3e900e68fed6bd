"""The image's recipe from nothing: what it copies is all that its steps need."""

import shutil
import subprocess

from cluster import TREE, clean_environment
from recipe import commands, copied
from test_demo import NO_OUTER_MAKE
from test_packager import ELSEWHERE, LIMIT


def test_the_steps_of_the_image_need_no_more_than_it_copies(tmp_path):
    source, image = tmp_path / "src", tmp_path / "image"
    for name, place in copied():
        (source / place).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (TREE / name).is_dir() else shutil.copy)(TREE / name, source / place)
    environment = clean_environment({**NO_OUTER_MAKE, **dict.fromkeys(ELSEWHERE)})
    for command in commands():
        ended = subprocess.run(["bash", "-euc", command.replace("/image", str(image))], cwd=source, env=environment, capture_output=True,
                               text=True, timeout=LIMIT)
        assert ended.returncode == 0, f"{command}\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
    told = subprocess.run([image / "usr/local/digits/train_digits", "--epochs", "1"], env=clean_environment(), check=True,
                          capture_output=True, text=True, timeout=LIMIT).stdout
    assert "rank 0 of 1:" in told, told
