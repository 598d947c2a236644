"""What other readings of the times of Jin et al. (2018) give: at which pace, what an iteration is, what is copied."""

from dataclasses import replace
from statistics import fmean

from vdnnsim.claims.layrub2018.metrics import overhead, two_nodes_speedup
from vdnnsim.claims.layrub2018.pace import TABLE_5, at_paper_pace
from vdnnsim.claims.layrub2018.reading import Reading
from vdnnsim.claims.layrub2018.runs import Case, LayrubRuns
from vdnnsim.claims.layrub2018.tables import HYBRID


def time_readings(runs: LayrubRuns) -> tuple[Reading, ...]:
    """Return the alternatives."""
    return (*_overheads(runs), *_speeds(runs), *_two_nodes(runs))


def _overheads(runs: LayrubRuns) -> tuple[Reading, ...]:
    cases = [Case("k40m", network, batch_size) for network, batch_size in TABLE_5]
    taken = fmean(overhead(runs, case, HYBRID, "caffe", paper_pace=True) for case in cases)
    one_pass = [at_paper_pace(runs, case, "caffe", passes={}) for case in cases]
    paced = [at_paper_pace(runs, case, "caffe") for case in cases]
    alternatives = {
        "kernels take as long as they do here, not as Caffe took": fmean(
            overhead(runs, case, HYBRID, "caffe") for case in cases
        ),
        "the seconds that are added at the pace of the kernels here, over those of the paper's Caffe": fmean(
            (runs.iteration_s(own, HYBRID) - runs.iteration_s(own, "caffe")) / runs.iteration_s(case, "caffe")
            for own, case in zip(cases, paced, strict=True)
        ),
        "an iteration of ResNet-34 and ResNet-50 is one pass": fmean(
            overhead(runs, case, HYBRID, "caffe") for case in one_pass
        ),
        "the temporary maps of batch normalizations are not copied": fmean(
            _without_temporary_maps(runs, case) / runs.iteration_s(case, "caffe") - 1 for case in paced
        ),
    }
    return tuple(
        Reading("t-5.mean.layrub", question, "24.1%", f"{taken:.1%}", f"{alternative:.1%}")
        for question, alternative in alternatives.items()
    )


def _without_temporary_maps(runs: LayrubRuns, case: Case) -> float:
    plan = runs.plan(case, HYBRID)
    buffers = (replace(each, nbytes=0) if each.name.startswith("temporary maps of") else each for each in plan.buffers)
    return runs.replay(case, replace(plan, buffers=tuple(buffers))).iteration_s


def _speeds(runs: LayrubRuns) -> tuple[Reading, ...]:
    vgg16, on_k40m = Case("titan_x_maxwell", "vgg16", 64), Case("k40m", "vgg_d_13conv", 64)
    kept = [1 / (1 + overhead(runs, on_k40m, HYBRID, "caffe", paper_pace=pace)) for pace in (False, True)]
    own, over_caffe = (
        1 / (1 + overhead(runs, case, "vdnn_all(m)", base)) for case, base in ((vgg16, "base(p)"), (on_k40m, "caffe"))
    )
    return (
        Reading("l-15.layrub", "kernels take as long as Caffe took", "83.0%", *(f"{share:.1%}" for share in kept)),
        Reading(
            "l-15.vdnn", "vDNN(m) is measured over Caffe on the K40M", "at most 50%", f"{own:.1%}", f"{over_caffe:.1%}"
        ),
    )


def _two_nodes(runs: LayrubRuns) -> tuple[Reading, ...]:
    return tuple(
        Reading(
            claim,
            f"{network}: two nodes at the pace of the replay, whose kernels are faster than the paper's Caffe",
            f"{speedup:.2f}",
            *(
                f"{two_nodes_speedup(runs, Case('k40m_x2_ethernet', network, batch_size), HYBRID, paper_pace=pace):.2f}"
                for pace in (True, False)
            ),
        )
        for claim, network, batch_size, speedup in (
            ("l-17", "alexnet", 256, 1.98),
            ("l-18", "resnet50", 32, 1.98),
            ("l-19", "resnet1001", 32, 1.97),
        )
    )
