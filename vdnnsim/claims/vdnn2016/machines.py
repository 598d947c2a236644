"""What claims ask of many machines, or of one under many readings: answered network by network, on all cores."""

from collections.abc import Mapping, Sequence
from functools import partial

from vdnnsim.claims.claim import Claim, NetworkBatch
from vdnnsim.claims.vdnn2016.check import Answer, Answers, Question, answers_of, questions_of
from vdnnsim.claims.vdnn2016.runs import SharedPlans, VdnnRuns
from vdnnsim.errors import PolicyError
from vdnnsim.processes import on_all_cores

_Answered = Mapping[Question, Answer | PolicyError]


def answers_on(claims: Sequence[Claim], machines: Sequence[VdnnRuns]) -> list[Answers]:
    """Return what each machine says to all that the claims may ask.

    A network is planned and placed once for all machines that rank its algorithms alike, and forgotten before the next.
    """
    asked: dict[NetworkBatch, dict[Question, None]] = {}
    for claim in claims:
        for case, questions in questions_of(claim).items():
            asked.setdefault(case, {}).update(dict.fromkeys(questions))
    # The last are the deepest, which take longest and so begin first.
    work = [(case, tuple(questions)) for case, questions in reversed(asked.items())]
    found = dict(zip(reversed(asked), on_all_cores(partial(_of_network, machines), work), strict=True))
    return [
        partial(_look_up, {case: of_machine[number] for case, of_machine in found.items()})
        for number in range(len(machines))
    ]


def _of_network(machines: Sequence[VdnnRuns], work: tuple[NetworkBatch, Sequence[Question]]) -> list[_Answered]:
    case, questions = work
    shared = SharedPlans()
    return [_of_machine(each.sharing(shared), case, questions) for each in machines]


def _of_machine(runs: VdnnRuns, case: NetworkBatch, questions: Sequence[Question]) -> _Answered:
    answers, found = answers_of(runs), dict[Question, Answer | PolicyError]()
    for question in questions:
        try:
            found[question] = answers(case, question)
        except PolicyError as refusal:
            found[question] = refusal
    return found


def _look_up(found: Mapping[NetworkBatch, _Answered], case: NetworkBatch, question: Question) -> Answer:
    answer = found[case][question]
    if isinstance(answer, PolicyError):
        raise answer
    return answer
