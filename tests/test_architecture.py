"""What may import what. Checked in fresh processes, since imports stay."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import lowtide
import lowtide.planning
import lowtide.report

ROOT = Path(lowtide.__file__).parent
OPTIONAL = ("torchvision", "timm", "transformers", "matplotlib", "ortools")


def modules_under(package: str) -> list[str]:
    found = __import__(package, fromlist=["_"])
    return [package, *(info.name for info in pkgutil.walk_packages(found.__path__, f"{package}."))]


def loaded_after(imports: list[str], of: tuple[str, ...]) -> list[str]:
    """Which of the modules `of` a fresh process has loaded once it has imported `imports`."""
    code = f"import importlib, sys\nfor name in {imports!r}: importlib.import_module(name)\n"
    code += f"print(*[m for m in {of!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("package", ["lowtide.planning", "lowtide.report"])
def test_no_module_of_it_needs_torch(package: str) -> None:
    names = modules_under(package)
    assert len(names) > 2
    assert loaded_after(names, ("torch", *OPTIONAL)) == []


@pytest.mark.parametrize("name", ["lowtide", "lowtide.cli", "lowtide.units"])
def test_importing_it_loads_neither_torch_nor_an_optional_package(name: str) -> None:
    assert loaded_after([name], ("torch", *OPTIONAL)) == []


def test_every_command_can_be_listed_without_torch() -> None:
    code = "import sys; from lowtide.cli.main import build_parser; build_parser(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "False", done.stderr


def imports_of(path: Path) -> set[str]:
    """Lowtide's modules that a file imports anywhere, except for the checker's eyes only."""
    tree = ast.parse(path.read_text())
    hidden = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name.split(".")[0] == "lowtide"}


# Part of the library -> what it may not import. A repr may reach for its text.
FORBIDDEN = {
    "planning": ("lowtide.acting", "lowtide.bench", "lowtide.cli", "lowtide.models"),
    "report": ("lowtide.acting", "lowtide.bench", "lowtide.cli", "lowtide.models"),
    "acting": ("lowtide.bench", "lowtide.cli", "lowtide.models"),
    "models": ("lowtide.acting", "lowtide.bench", "lowtide.cli", "lowtide.planning"),
    "bench": ("lowtide.cli",),
}
REPR = ("lowtide.report.text", "lowtide.report.notebook")


@pytest.mark.parametrize("half", sorted(FORBIDDEN))
def test_imports_go_one_way(half: str) -> None:
    files = sorted((ROOT / half).rglob("*.py"))
    assert files
    for path in files:
        for name in imports_of(path):
            assert not name.startswith(FORBIDDEN[half]), f"{path.relative_to(ROOT)} imports {name}"
            if half == "planning" and name.startswith("lowtide.report"):
                assert name in REPR, f"{path.relative_to(ROOT)} imports {name}"


def test_every_file_has_a_docstring_and_future_annotations() -> None:
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text()
        if not text.strip():
            continue
        tree = ast.parse(text)
        assert ast.get_docstring(tree), f"{path.relative_to(ROOT)} does not say what it is"
