"""What is in the wheel and the source distribution, and what they pull in."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import lowtide

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both, built from a copy of the files that packaging needs."""
    pytest.importorskip("build", reason="needs build: pip install 'lowtide[dev]'")
    if int(version("setuptools").split(".")[0]) < 77:
        pytest.skip("needs setuptools 77 or newer in this environment")
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist"],
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return copy / "dist"


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as z:
        inside = {name for name in z.namelist() if ".dist-info/" not in name}
        licences = [name for name in z.namelist() if name.endswith("LICENSE")]
    source = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "lowtide").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == source
    assert "lowtide/py.typed" in inside
    assert len(licences) == 1


def test_it_needs_torch_numpy_and_rich_alone(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as z:
        (name,) = (n for n in z.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = z.read(name).decode()
    needs = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", metadata, re.MULTILINE)
    assert sorted(needs) == ["numpy", "rich", "torch"]
    assert f"Version: {lowtide.__version__}\n" in metadata
    assert "License-Expression: Apache-2.0" in metadata


def test_the_source_distribution_can_be_built_from(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as t:
        inside = {name.partition("/")[2] for name in t.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/lowtide/py.typed"} <= inside
