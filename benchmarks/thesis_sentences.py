"""What docs/thesis.md says about the results of `lowtide bench thesis`, made from them: no number is typed in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from lowtide.bench.result import Result, Row

EXACT = 0.1  # percent: what "the same" means between a prediction and a report
MB = 0.06  # peaks in tables are rounded to 0.1 MB


def said(names: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    items = list(names)
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def between(values: Iterable[float]) -> str:
    """The least and the greatest, without decimals."""
    low, high = round(min(values := list(values))), round(max(values))
    return f"{low}" if low == high else f"{low} to {high}"


def of(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """The rows with these entries."""
    return [r for r in rows if all(r[k] == v for k, v in wanted.items())]


def names_of(rows: Iterable[Row], key: str = "net") -> list[str]:
    """The networks, each once."""
    return list(dict.fromkeys(r[key] for r in rows))


def how(results: Mapping[str, Result]) -> str:
    """What the results were made on."""
    where = next(iter(results.values())).where
    minutes = sum(r.seconds[1] for r in results.values()) / 60
    device = where["gpu"] or f"{where['cores']} cores of a machine without a GPU"
    torch = where["versions"]["torch"].partition("+")[0]
    return (
        f"The figures and numbers below are from a run on {device} (PyTorch {torch}, float32; {minutes:.0f} minutes "
        "of processor time in all). MB are 2^20 bytes above what was allocated when the step began. All tables are "
        "in [thesis-results.md](thesis-results.md); `python -m benchmarks.thesis_page` writes both pages from the "
        "results."
    )


def prediction(result: Result) -> str:
    rows = result.tables[0].rows
    nets = names_of(rows)
    worst = {n: max(abs(r["off %"]) for r in of(rows, net=n)) for n in nets}
    good = [n for n in nets if worst[n] <= EXACT]
    bad = [f"{n} (off by up to {worst[n]:.1f} %)" for n in nets if n not in good]
    short = -min(r["shapes off %"] for r in rows)
    text = (
        f"{len(nets)} networks of small batches, run with data ({rows[0]['tensors']}), with no plan and under two "
        "plans. *From shapes* counts tensors alone; the CPU's kernels allocate scratch besides, and the sum is up "
        f"to {short:.0f} % short. *Predicted* adds the scratch, which is measured before, each kind of kernel in a "
        f"call of its own: then it is within {EXACT} % of the allocator's report on {len(good)} of the networks and "
        "their plans"
    )
    return text + (f"; the rest: {said(bad)}." if bad else ".")


def square_root(result: Result) -> str:
    rows = result.tables[0].rows
    nets = names_of(rows)

    def run(net: str, solver: str) -> float:
        return of(rows, net=net, solver=solver)[0]["run"]

    others = ("keep_all", "sqrt", "greedy", "cubic")
    beaten = [n for n in nets if min(run(n, s) for s in others) < run(n, "linear") - MB]
    cubic = max(run(n, "cubic") / run(n, "linear") for n in nets)
    text = "By the formula `linear` is never worse, as it must be. On the networks themselves "
    if beaten:
        text += f"another one is lower on {said(beaten)}, and none on the other {len(nets) - len(beaten)}. "
    else:
        text += f"no other one is lower on any of the {len(nets)} either. "
    text += (
        f"Checkpoints for the first objective (`cubic`) peak up to {100 * (cubic - 1):.0f} % above those for the "
        "revised one. "
    )
    tied = [n for n in ("vgg16", "vgg19") if n in nets]
    told = "; ".join(
        f"{run(n, 'linear'):.0f} MB on {n}, where the greedy walk ends at {run(n, 'greedy'):.0f}" for n in tied
    )
    text += (
        "Many sets can have the least peak by the formula, since one segment is as large however the rest is cut; "
        f"then `linear` takes the one that is best on the step: {told}. "
    )
    least, first = (of(rows, net="resnet50", solver=s)[0] for s in ("linear, least work", "linear"))
    text += (
        f"Asked for least work at that peak, it takes {least['checkpoints']} instead of {first['checkpoints']} on "
        'ResNet50 ("linear, least work"). On n equal stages the revised objective needs about sqrt(2n) units, '
        "the first about 2 sqrt(n)."
    )
    return text


def feng_huang(result: Result) -> str:
    rows, chains, times = (t.rows for t in result.tables)
    named = [r for r in rows if r["published OGC"] is not None]
    known = [r for r in named if r["OGC's own plan"] is not None]
    run = [r for r in known if r["run their way"] is not None]
    same = [r for r in run if abs(r["run their way"] - r["OGC's own plan"]) <= 0.55]
    lower = {r["net"]: 100 * (1 - r["Feng & Huang"] / r["OGC's own plan"]) for r in known}
    below = [f"{n} ({v:.0f} %)" for n, v in lower.items() if v > 1]
    above = [n for n, v in lower.items() if v < -1]
    gain = {r["net"]: 100 * (1 - r["Lowtide"] / r["Feng & Huang"]) for r in named}
    won = [n for n, v in gain.items() if v > 0.5]
    lost = [n for n, v in gain.items() if v < -0.5]
    less = [r for r in named if r["added FLOPs % "] < r["added FLOPs %"]]
    text = (
        "Their table's conditions, fake tensors, both plans run by the same executor. Run by the rules of their "
        "program, our plans of their algorithm have the peaks that their program's own plans had, to the MB, on "
        f"{len(same)} of {len(run)} networks ({len(known) - len(run)} could not be run that way). Run by Lowtide "
        "they are "
        + (f"lower on {said(below)}" if below else "the same")
        + (f", higher on {said(above)}" if above else "")
        + (", and the same on the rest: " if below else ": ")
        + "their program enters every vertex's output in a table and holds it until the segment has run, which "
        "shows where a segment is long. So part of what its plans cost is its way of running them.\n\n"
        + "Lowtide's plan with one recomputation per op is "
        + (f"higher on {said(lost)} and " if lost else "nowhere higher and ")
        + f"lower on {len(won)} of {len(named)}, by "
        f"{between(gain[n] for n in won)} %; it recomputes less on {len(less)}."
    )
    own = {r["net"]: r for r in rows}
    ratios = [r["Feng & Huang"] / own[n.partition(",")[0]]["Feng & Huang"] for n, r in own.items() if "as in" in n]
    if ratios:
        text += (
            " Their algorithm needs a DenseNet whose layers hand on one concatenated tensor, and so their program "
            "has it. torchvision's hands on a list, all of which every later layer reads: no vertex splits a block "
            f"then, a block is one segment or kept whole, and the peaks are {min(ratios):.1f} to {max(ratios):.1f} "
            "times as high."
        )
    ours, torchs = "linear, Lowtide runs it", "linear, torch runs it"
    apart = {r["net"]: 100 * (1 - r[ours] / r[torchs]) for r in chains}
    far = [n for n, v in apart.items() if v > 1]
    text += (
        "\n\nOn chains of whole stages the same checkpoints can also be run by `torch.utils.checkpoint`. With "
        f"`linear`'s checkpoints both executors reach the same peak to within 1 % on {len(apart) - len(far)} networks"
    )
    text += f"; on {said(far)} Lowtide's is {between(apart[n] for n in far)} % lower.\n\n" if far else ".\n\n"
    timed = [r for r in times if r["their solver s, published"]]
    table = ["| net | Feng & Huang, here | Lowtide | `linear` on modules | their solver, published |"]
    table += ["| --- | ---: | ---: | ---: | ---: |"]
    table += [
        f"| {r['net']} | {1000 * r['Feng & Huang s']:.0f} ms | {r['Lowtide s']:.2f} s | {r['linear ms']:.1f} ms | "
        f"{r['their solver s, published']} s |"
        for r in timed
    ]
    return text + "\n".join(table)


def models(result: Result) -> str:
    rows, batches, _ = (t.rows for t in result.tables)
    fake = [r for r in rows if r["tensors"].startswith("fake")]
    real = [r for r in rows if not r["tensors"].startswith("fake")]
    at_bound = [r["net"] for r in fake if r["planned"] <= r["bound"] + MB]
    above = max(r["planned"] / r["bound"] for r in fake)
    vgg = min(of(batches, net="vgg16"), key=lambda r: r["batch"])
    off = max(abs(r["predicted off %"]) for r in real)
    return (
        f"With one recomputation per op the planned peak is {between(r['of no plan %'] for r in fake)} % of the "
        "plain one at these sizes. It is at the bound, which no plan that keeps or recomputes can pass, for "
        f"{said(at_bound)}; elsewhere it is up to {above:.1f} times the bound. What a plan saves grows with batch "
        "and image: at small sizes gradients of parameters fill the peak, and VGG16 gains "
        f"{100 - vgg['of no plan %']:.0f} % at batch {vgg['batch']}. {len(real)} of the networks were also run with "
        f"data, in small batches: planned peaks were within {off:.1f} % of what had been predicted."
    )


def granularity(result: Result) -> str:
    rows = result.tables[0].rows
    layered = ("plain layers", "standalone pooling", "every op")

    def found(net: str, layers: str, fake: bool) -> float:
        return next(r["found"] for r in of(rows, net=net, layers=layers) if r["tensors"].startswith("fake") is fake)

    alex = [found("alexnet", name, True) for name in layered]
    vgg = [found("vgg16", name, True) for name in layered]
    front = found("vgg16", "frontier on ops", True)
    text = (
        f"AlexNet's least peak is the same ({alex[0]:.0f} MB)"
        if max(alex) - min(alex) <= MB
        else f"AlexNet's least peaks are {', '.join(f'{x:.0f}' for x in alex)} MB"
    )
    text += (
        " whether a layer is convolution, activation and pooling together, pooling is on its own, or every op is a "
        f"stage. VGG16's are {', '.join(f'{x:.0f}' for x in vgg)} MB at these granularities, and {front:.0f} MB "
        "where cuts are also allowed at values that an in-place activation overwrites (`frontier`). Run with data "
        "in small batches, scratch and parameter gradients fill more of the peak: VGG16 goes from "
        f"{found('vgg16', 'no checkpoints', False):.0f} to "
        f"{min(found('vgg16', name, False) for name in layered):.0f} MB on the best of the chains and "
        f"{found('vgg16', 'frontier on ops', False):.0f} MB on the step."
    )
    return text


SENTENCES: Mapping[str, Callable[[Result], str]] = {
    "5.2": prediction,
    "5.3": square_root,
    "5.4": feng_huang,
    "5.5": models,
    "5.6": granularity,
}
SECTIONS: Sequence[str] = tuple(SENTENCES)
