"""What the README says can be done, done."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from lowtide.cli.main import build_parser

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return [body for found, body in re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL) if found == language]


def test_the_python_of_the_quick_start_runs(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    (code,) = blocks("python")
    exec(code, names)
    assert "bit for bit" in capsys.readouterr().out
    assert all(p.grad is not None for p in names["model"].parameters())


def test_its_commands_parse() -> None:
    commands = [line for block in blocks("") for line in block.splitlines() if line.startswith("lowtide ")]
    assert len(commands) >= 4
    for line in commands:
        _, *argv = line.split("#")[0].split()
        assert build_parser().parse_args(argv).run is not None


def test_it_names_exactly_two_commands_to_set_up() -> None:
    lines = [line for block in blocks("") for line in block.splitlines() if line.startswith("make ")]
    assert [line.split()[1] for line in lines] == ["run", "test"]
    makefile = (ROOT / "Makefile").read_text()
    assert "\nrun: " in makefile
    assert "\ntest: " in makefile


def test_every_folder_in_its_table_is_there() -> None:
    for path in re.findall(r"^\| `(src/[^`]+/|\w+/)` \|", README, re.MULTILINE):
        assert (ROOT / path).is_dir(), path


def test_every_page_that_it_links_to_is_there() -> None:
    for path in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / path).is_file(), path
