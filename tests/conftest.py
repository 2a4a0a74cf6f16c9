"""Shared by all tests: golden files, and small steps on one thread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: `text` is what the file tests/golden/NAME.txt holds. `--update-golden` writes it."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            path.write_text(text + "\n")
        assert path.exists(), f"no golden file {path.name}: run pytest --update-golden and look at it"
        assert text + "\n" == path.read_text()

    return compare
