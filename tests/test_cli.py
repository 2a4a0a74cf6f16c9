"""The command line: what it prints where, and its exit status. The library calls behind it have tests of their own;
here they are stand-ins, except in the tests at the end, which run them for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import lowtide
from lowtide.cli import main
from lowtide.cli.main import build_parser, command_modules
from lowtide.cli.terminal import one_line
from lowtide.errors import InputError, TraceError
from lowtide.planning.plan import Plan
from tests.test_report_text import _Difference, _Verdict, make_plan, make_step

NET = """
import torch
from torch import nn

def make(width=8):
    net = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    return net, torch.ones(4, width)

def dropout(width=8):
    net = nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5), nn.Linear(width, width), nn.ReLU())
    return net, torch.ones(4, width), lambda y: y.square().mean()

class Reads(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)
        return self.layer(y) if y.sum().item() < 1e9 else y

def reads():
    return Reads(), torch.ones(2, 4)

def frozen():
    return nn.Linear(4, 4).requires_grad_(False), torch.ones(2, 4)

def broken():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(1))
        def forward(self, x):
            raise KeyError("no such\\nkey")
    return Broken(), torch.ones(2, 4)
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(NET)
    return str(path)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """`lowtide.plan` that plans nothing; what it was called with."""
    seen: dict[str, Any] = {}

    def plan(model: Any, args: Any, kwargs: Any, **options: Any) -> Plan:
        seen.update(model=model, args=args, kwargs=kwargs, **options)
        return make_plan(make_step())

    monkeypatch.setattr(lowtide, "plan", plan, raising=False)
    return seen


def verdict(monkeypatch: pytest.MonkeyPatch, ok: bool) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    class Verdict(_Verdict):
        def to_json(self) -> dict[str, Any]:
            return {"ok": self.ok}

        def __repr__(self) -> str:
            from lowtide.report.text import describe_verdict

            return describe_verdict(self)

    def verify(model: Any, args: Any, kwargs: Any, **options: Any) -> Any:
        seen.update(model=model, args=args, kwargs=kwargs, **options)
        return Verdict(ok=ok, differences=() if ok else (_Difference("gradient of a.weight differs by 0.5"),))

    monkeypatch.setattr(lowtide, "verify", verify, raising=False)
    return seen


def failed(capsys: pytest.CaptureFixture[str], argv: list[str]) -> str:
    """The one line on stderr of a command that must end with status 2 and say nothing on stdout."""
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    return err


def test_a_command_is_a_file_of_the_same_name() -> None:
    assert {"plan", "verify", "solvers"} <= set(command_modules())


@pytest.mark.parametrize("name", sorted(command_modules()))
def test_every_command_has_help_with_examples_that_parse(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert "examples:" in text
    assert "--json" in text
    examples = command_modules()[name].EXAMPLES
    assert examples
    for example in examples:
        assert example in text
        for command in example.split(" && "):
            program, *argv = command.split()
            assert program == "lowtide"
            assert build_parser().parse_args(argv).run is not None


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"lowtide {lowtide.__version__}\n"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "COMMAND"),
        (["plant"], "invalid choice: 'plant'"),
        (["plan"], "MODEL"),
        (["plan", "torchvision:resnet18", "--inputs"], "--input"),
        (["verify", "torchvision:resnet18", "--steps", "few"], "'few'"),
        (["plan", "torchvision:resnet1"], "did you mean"),
        (["plan", "torchvision:resnet18", "--input", "8xx"], "'8xx'"),
        (["plan", "torchvision:resnet18", "--input", "8x3:int65"], "'int65'"),
        (["plan", "torchvision:resnet18", "--set", "depth"], "'depth'"),
        (["plan", "torchvision:resnet18", "--dtype", "float31"], "'float31'"),
        (["plan", "nowhere.py:make"], "nowhere.py"),
        (["plan", "torchvision:resnet18", "--budget", "lots"], "'lots' is not a size"),
        (["plan", "torchvision:resnet18", "--budget", "1MiB"], "does not cover"),
        (["plan", "torchvision:resnet18", "--budget", "8GiB", "--device", "a10000"], "did you mean 'a100'"),
        (["verify", "torchvision:resnet18", "--steps", "0"], "--steps 0"),
        (["verify", "torchvision:resnet18", "--plan", "/no/such/plan.json"], "/no/such/plan.json"),
    ],
)
def test_what_the_user_can_put_right_is_one_line_and_status_2(
    argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in failed(capsys, argv)


def test_plan_calls_the_library_with_what_was_asked(
    net: str, planned: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["plan", f"{net}:dropout", "--set", "width=16", "--optimizer", "adamw", "--solver", "frontier"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert "peak of the step" in out
    assert f"Plan for {net}:dropout(width=16)"[:20] in out
    assert err == ""
    assert planned["args"][0].shape == (4, 16)
    assert planned["args"][0].is_meta
    assert planned["loss"] is not None
    assert planned["optimizer"] == "adamw"
    assert planned["solver"] == "frontier"
    assert planned["progress"] is None  # stderr is no terminal here


def test_plan_writes_a_file_that_loads_and_says_so_on_stderr(
    net: str, planned: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    assert main(["plan", f"{net}:make", "--json", "-o", str(path)]) == 0
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert data["peak_bytes"] == make_plan(make_step()).peak_bytes
    assert data["model"] == f"{net}:make"
    assert "step" not in data
    assert sum(data["at_peak"]["by_module"].values()) == sum(data["at_peak"]["by_category"].values()) > 0
    assert str(path) in err
    assert lowtide.load(path).peak_bytes == data["peak_bytes"]
    assert planned["kwargs"] == {}


def test_a_plan_that_cannot_be_written_leaves_no_file(
    net: str, planned: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "no" / "such" / "folder" / "plan.json"
    assert str(target) in failed(capsys, ["plan", f"{net}:make", "-o", str(target)])
    assert main(["plan", f"{net}:make", "-o", str(tmp_path)]) == 2
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "__pycache__") == ["net.py"]
    assert planned


@pytest.mark.parametrize(
    "error", [TraceError("a\nb"), InputError("a b"), RuntimeError("a b\nc"), KeyError("a b"), SystemExit("a b")]
)
def test_whatever_the_model_raises_is_one_line_that_names_it(
    net: str, error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def plan(*_: Any, **__: Any) -> Plan:
        raise error

    monkeypatch.setattr(lowtide, "plan", plan, raising=False)
    err = failed(capsys, ["plan", f"{net}:make"])
    assert "a b" in err
    assert isinstance(error, InputError) or f"{net}:make" in err


def test_traceback_shows_where(net: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def plan(*_: Any, **__: Any) -> Plan:
        raise ZeroDivisionError("deep")

    monkeypatch.setattr(lowtide, "plan", plan, raising=False)
    assert main(["plan", f"{net}:make", "--traceback"]) == 2
    assert "ZeroDivisionError: deep" in capsys.readouterr().err.split("lowtide: error")[0]


def test_a_warning_is_one_line_without_source_code(
    net: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def plan(*_: Any, **__: Any) -> Plan:
        warnings.warn("this step\nleaves its plan", stacklevel=1)
        return make_plan(make_step())

    monkeypatch.setattr(lowtide, "plan", plan, raising=False)
    shown = warnings.showwarning
    assert main(["plan", f"{net}:make"]) == 0
    assert capsys.readouterr().err == "lowtide: warning: this step leaves its plan\n"
    assert warnings.showwarning is shown


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_output_that_cannot_be_written_is_one_line_too() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "lowtide", "solvers"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "lowtide: error: cannot go on: No space left on device\n"


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "lowtide", "solvers", "--json"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_is_no_traceback(
    net: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def plan(*_: Any, **__: Any) -> Plan:
        raise KeyboardInterrupt

    monkeypatch.setattr(lowtide, "plan", plan, raising=False)
    assert main(["plan", f"{net}:make"]) == 130
    assert capsys.readouterr().err == "lowtide: error: interrupted\n"


@pytest.mark.parametrize(("ok", "status"), [(True, 0), (False, 1)])
def test_verify_tells_by_its_status_whether_the_step_is_the_same(
    ok: bool,
    status: int,
    net: str,
    planned: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = verdict(monkeypatch, ok)
    assert main(["verify", f"{net}:make", "--optimizer", "sgd", "--steps", "3", "--seed", "7"]) == status
    out = capsys.readouterr().out
    assert ("bit for bit" in out) == ok
    assert ("gradient of a.weight differs" in out) == (not ok)
    assert "measured peak of the step" in out
    assert (seen["steps"], seen["optimizer"], seen["seed"]) == (3, "sgd", 7)
    assert seen["args"][0].device.type == "cpu"
    assert isinstance(seen["plan"], Plan)
    assert main(["verify", f"{net}:make", "--json"]) == status
    assert json.loads(capsys.readouterr().out)["ok"] is ok
    assert planned


def test_verify_takes_a_plan_from_a_file_only_for_its_own_step(
    net: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = verdict(monkeypatch, True)
    path = tmp_path / "plan.json"
    make_plan(make_step()).save(path)
    monkeypatch.setattr(lowtide, "trace", lambda *_, **__: make_step(), raising=False)
    assert main(["verify", f"{net}:make", "--plan", str(path)]) == 0
    assert seen["plan"].peak_bytes == make_plan(make_step()).peak_bytes
    capsys.readouterr()
    monkeypatch.setattr(lowtide, "trace", lambda *_, **__: make_step(("other", "modules")), raising=False)
    err = failed(capsys, ["verify", f"{net}:make", "--plan", str(path)])
    assert str(path) in err
    assert "toy:chain" in err


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "lowtide.plan", "format": 99}', "\x00\xff"])
def test_a_file_that_is_no_plan_is_refused(
    text: str, net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text, encoding="latin-1")
    failed(capsys, ["verify", f"{net}:make", "--plan", str(path)])


def test_solvers_are_listed_with_a_sentence_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solvers"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("linear ") for line in lines)
    assert all(len(line.split()) > 3 for line in lines)
    assert main(["solvers", "--json"]) == 0
    assert {"linear", "cubic"} <= {row["name"] for row in json.loads(capsys.readouterr().out)}


def test_an_error_is_one_line_whatever_is_in_it() -> None:
    assert one_line("a\n  b\tc\r\n") == "a b c"


def test_colours_only_for_eyes(
    net: str, planned: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict(monkeypatch, True)
    assert main(["verify", f"{net}:make"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(["verify", f"{net}:make"]) == 0
    assert "\x1b[1;32m" in capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["verify", f"{net}:make"]) == 0
    assert "32m" not in capsys.readouterr().out
    assert planned


def lowtide_process(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-m", "lowtide", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def test_the_whole_way_from_plan_to_verdict(net: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    done = lowtide_process("plan", f"{net}:make", "--set", "width=64", "--optimizer", "adamw", "-o", str(path))
    assert done.returncode == 0, done.stderr
    assert "peak of the step" in done.stdout
    argv = ["verify", f"{net}:make", "--set", "width=64", "--optimizer", "adamw", "--plan", str(path), "--json"]
    done = lowtide_process(*argv)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout)["ok"] is True
    done = lowtide_process("verify", f"{net}:make", "--set", "width=32", "--plan", str(path))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("factory", "says"),
    [("frozen", "nothing to train"), ("broken", "KeyError"), ("make", "8")],
)
def test_a_step_that_cannot_run_is_named(factory: str, says: str, net: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", f"{net}:{factory}"] + (["--input", "4x7"] if factory == "make" else [])
    assert says in failed(capsys, argv)


def test_a_model_that_looks_at_values_is_traced_on_the_cpu(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", f"{net}:reads"]) == 0
    out, err = capsys.readouterr()
    assert "peak of the step" in out
    assert "looks at values" in err


def test_a_model_too_large_to_run_for_real_is_not_tried(
    net: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lowtide.cli.commands.plan.physical_bytes", lambda: 100)
    err = failed(capsys, ["plan", f"{net}:reads"])
    assert "100 B" in err
    assert "looks at values" in err


def test_the_random_stream_is_left_alone(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = torch.random.get_rng_state()
    assert main(["verify", f"{net}:dropout"]) == 0
    assert torch.equal(before, torch.random.get_rng_state())
    assert "bit for bit" in capsys.readouterr().out


def test_verify_predicts_the_scratch_of_kernels_too(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torchvision")
    assert main(["verify", "torchvision:resnet18", "--input", "2x3x64x64", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for which in ("peak_bytes", "baseline_peak_bytes"):
        assert found[f"predicted_{which}"] == pytest.approx(found[which], rel=0.01)
