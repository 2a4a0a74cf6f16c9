"""Chains: building, refusing, storing, and the two judges of a checkpoint set against each other."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from lowtide.errors import InputError
from lowtide.planning.chain import Chain, Stage
from lowtide.planning.rehearse import rehearse_checkpoints
from tests.random_chains import chains, checkpoint_sets, random_chain


def test_columns_and_stages_say_the_same() -> None:
    chain = Chain.from_arrays(a=[8, 4, 2], s=[1, 0], i=[1, 0], o=[0, 1], t=[3, 5], forward=[1.5, 2], backward=[3, 4])
    assert chain.stages == (Stage(4, 1, True, False, 3, 1.5, 3), Stage(2, 0, False, True, 5, 2, 4))
    assert Chain.of(chain.stages, input_bytes=8) == chain
    assert chain.n == 2


def test_numpy_columns_become_plain_numbers() -> None:
    chain = Chain.from_arrays(a=np.array([1.0, 2.0]), s=np.array([3], dtype=np.int32), o=np.array([True]))
    assert chain.a == (1, 2)
    assert all(type(x) is int for x in chain.a + chain.s)
    assert json.loads(json.dumps(chain.to_json()))["o"] == [1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"a": [1]}, "at least one stage: a has 1 sizes"),
        ({"a": []}, "at least one stage"),
        ({"a": [1, 2], "s": [1, 2]}, "s has 2 entries for 1 stages"),
        ({"a": [1, -2]}, r"a\[1\] is -2: .*negative"),
        ({"a": [1, 2], "t": [-1]}, r"t\[0\] is -1"),
        ({"a": [1, 2.5]}, r"a\[1\] is 2.5: it must be a whole number"),
        ({"a": [1, "2"]}, r"a\[1\] is '2': it must be a whole number"),
        ({"a": [1, float("nan")]}, r"a\[1\] is nan: it must be a whole number"),
        ({"a": [1, None]}, r"a\[1\] is None"),
        ({"a": [1, 2], "i": [2]}, r"i\[0\] is 2: it must be 0 or 1"),
        ({"a": [1, 2], "forward": [-1.0]}, "forward of stage 1 is -1.0"),
        ({"a": [1, 2], "backward": [float("nan")]}, "backward of stage 1 is nan"),
        ({"a": [1, 2], "names": ["x", "y"]}, "names has 2 entries"),
    ],
)
def test_what_is_not_a_chain_is_refused_in_a_sentence(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Chain.from_arrays(**arguments)


def test_json_comes_back_whole() -> None:
    chain = Chain.of(
        [Stage(3, 1, t=2, name="conv", ops=(0, 4)), Stage(2, o=True, name="relu", ops=(4, 5))], input_bytes=7
    )
    assert Chain.from_json(json.loads(json.dumps(chain.to_json()))) == chain


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "lowtide.plan"}, "not a Lowtide chain"),
        ({"format": 99}, "format 99"),
        ({"s": None}, "damaged"),
        ({"a": ["x", 1]}, "whole number"),
        ({"ops": [[1]]}, "damaged"),
    ],
)
def test_damaged_json_is_refused(change: dict[str, Any], message: str) -> None:
    data = Chain.from_arrays(a=[1, 2]).to_json() | change
    with pytest.raises(InputError, match=message):
        Chain.from_json(data)


@pytest.mark.parametrize("data", [None, 3, [], {}, {"kind": "lowtide.chain", "format": 1}])
def test_json_of_something_else_is_refused(data: Any) -> None:
    with pytest.raises(InputError):
        Chain.from_json(data)


def test_segment_peak_by_hand() -> None:
    # stage 1 saves 5 of its own; stage 2 its input, activation 1 (10 bytes); stage 3 its output, activation 3 (7 bytes)
    chain = Chain.from_arrays(a=[1, 10, 20, 7], s=[5, 0, 0], i=[0, 1, 0], o=[0, 0, 1], t=[100, 1, 2])
    assert chain.segment_peak(0, 1) == 5 + 100
    assert chain.segment_peak(1, 2) == 1  # its input is the checkpoint, counted elsewhere
    assert chain.segment_peak(0, 2) == max(5 + 100, (5 + 10) + 1)
    assert chain.segment_peak(0, 3) == max(5 + 100, (5 + 10) + 0 + 7 + 2)
    assert chain.peak_bytes([]) == 1 + 105
    assert chain.peak_bytes([2]) == max(1 + 105, 1 + 20 + 7 + 2)
    assert chain.first_peak_bytes([2]) == 1 + 20 + 105
    assert chain.recompute_cost([2]) == 2


@pytest.mark.parametrize("segment", [(-1, 2), (1, 1), (2, 1), (0, 4)])
def test_segments_off_the_chain_are_refused(segment: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="not a segment"):
        Chain.from_arrays(a=[1] * 4).segment_peak(*segment)


@pytest.mark.parametrize(
    ("checkpoints", "message"), [([0], "0 is not"), ([3], "3 is not"), ([1, 1], "twice"), ([1.5], "1.5")]
)
def test_checkpoints_off_the_chain_are_refused(checkpoints: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Chain.from_arrays(a=[1] * 4).peak_bytes(checkpoints)


@given(chains(longest=7))
def test_the_formulas_agree_with_the_rehearsal(chain: Chain) -> None:
    for checkpoints in checkpoint_sets(chain.n):
        played = rehearse_checkpoints(chain, checkpoints)
        assert chain.peak_bytes(checkpoints) == played.peak_bytes
        assert chain.recompute_cost(checkpoints) == played.recompute_cost
        assert chain.first_peak_bytes(checkpoints) == rehearse_checkpoints(chain, checkpoints, revised=False).peak_bytes
        assert chain.floor_bytes <= played.peak_bytes


def test_levels_are_the_segment_peaks() -> None:
    rng = random.Random(5)
    for _ in range(100):
        chain = random_chain(rng, rng.randint(1, 12))
        for c in range(chain.n):
            for j in range(c + 1, chain.n + 1):
                assert chain.segment_peak(c, j) == max(chain.levels[c:j]) - chain.stored[c]


def test_repr_fits_a_screen() -> None:
    text = repr(random_chain(random.Random(0), 500))
    assert text.startswith("Chain of 500 stages")
    assert len(text.splitlines()) < 25
    assert max(map(len, text.splitlines())) <= 100
    assert "conv" in repr(Chain.from_arrays(a=[1, 2], names=["conv"]))
