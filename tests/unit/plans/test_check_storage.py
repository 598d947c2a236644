"""Buffers that lie in the bytes of others."""

from tests.plan_writer import PlanWriter
from tests.toy import touching
from tests.unit.plans.hand_written import W, finished, name, read, refusal, take, write
from vdnnsim.dnn.layers import Stage
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.training_plan import BufferKind


def test_a_buffer_may_be_laid_into_another_and_taken_out_again(writer: PlanWriter) -> None:
    storage, inside = take(writer, "storage"), name(writer, "inside")
    writer.alias(inside, storage)
    write(writer, inside)
    read(writer, inside)
    writer.release(inside)
    writer.alias(inside, storage)
    writer.release(inside)
    writer.release(storage)

    check_plan(finished(writer))


def test_storage_must_outlive_what_lies_in_it(writer: PlanWriter) -> None:
    storage, inside = take(writer, "storage"), name(writer, "inside")
    writer.alias(inside, storage)
    writer.release(storage)

    assert refusal(finished(writer)) == ("hand: operation 2 (release storage): storage is used while inside lies in it")


def test_storage_holds_one_buffer_at_a_time(writer: PlanWriter) -> None:
    storage, first, second = take(writer, "storage"), name(writer, "first"), name(writer, "second")
    writer.alias(first, storage)
    writer.alias(second, storage)

    assert refusal(finished(writer)) == (
        "hand: operation 2 (lay second into storage): storage is used while first lies in it"
    )


def test_a_buffer_must_fit_into_its_storage(writer: PlanWriter) -> None:
    """11 B do not fit into 10 B."""
    storage = take(writer, "storage")
    large = writer.buffer("large", BufferKind.GRADIENT_MAP, 11, Stage.FEATURES)
    writer.alias(large, storage)

    assert refusal(finished(writer)) == (
        "hand: operation 1 (lay large into storage): large is larger than storage, in which it is to lie"
    )


def test_storage_is_covered_only_after_its_copy(writer: PlanWriter) -> None:
    """What is on its way to the host must have left before something else is laid over it."""
    storage, inside = take(writer, "storage", given=True), name(writer, "inside")
    writer.offload(storage, 0)
    writer.alias(inside, storage)

    assert refusal(finished(writer)) == (
        "hand: operation 2 (lay inside into storage): storage is covered before the compute stream waited for its copy"
    )


def test_nothing_is_left_of_what_was_in_storage_before(writer: PlanWriter) -> None:
    """A given buffer is covered and uncovered; reading it then is reading nothing."""
    storage, inside = take(writer, "storage", given=True), name(writer, "inside")
    writer.alias(inside, storage)
    writer.release(inside)
    read(writer, storage)

    assert refusal(finished(writer)).endswith("storage is read before anything was written to it")


def test_a_buffer_cannot_be_laid_into_storage_that_is_not_there(writer: PlanWriter) -> None:
    storage, inside = name(writer, "storage"), name(writer, "inside")
    writer.alias(inside, storage)

    assert refusal(finished(writer)) == (
        "hand: operation 0 (lay inside into storage): storage is used while it is not allocated"
    )


def test_a_buffer_cannot_be_laid_into_storage_while_it_is_allocated(writer: PlanWriter) -> None:
    storage, other = take(writer, "storage"), take(writer, "other")
    writer.alias(other, storage)

    assert refusal(finished(writer)) == "hand: operation 2 (lay other into storage): other is allocated twice"


def test_what_lies_in_storage_starts_without_content(writer: PlanWriter) -> None:
    storage, inside = take(writer, "storage", given=True), name(writer, "inside")
    writer.alias(inside, storage)
    read(writer, inside)

    assert refusal(finished(writer)) == (
        "hand: operation 2 (backward weights of conv1 (only)): inside is read before anything was written to it"
    )


def test_a_kernel_may_read_what_it_is_the_first_to_cover(writer: PlanWriter) -> None:
    """As a batch normalization that writes dX over X."""
    storage, inside = take(writer, "storage"), name(writer, "inside")
    write(writer, storage)
    writer.alias(inside, storage)
    writer.compute(0, W, "only", touching(reads=(storage,), writes=(inside,)))
    writer.release(inside)
    writer.release(storage)

    check_plan(finished(writer))


def test_what_a_kernel_has_covered_is_gone_for_the_next(writer: PlanWriter) -> None:
    storage, inside = take(writer, "storage"), name(writer, "inside")
    write(writer, storage)
    writer.alias(inside, storage)
    write(writer, inside)
    writer.compute(0, W, "only", touching(reads=(storage,), writes=(inside,)))

    assert refusal(finished(writer)).endswith("storage is read before anything was written to it")
