"""The index of what one party knows, from one answer to the next."""

from __future__ import annotations

from dataclasses import replace

from gputally.owners.pods import Pod, Pods

A = Pod("a", "ml", "train-0", {"1" * 64: "main"}, labels={"app": "train"})
B = Pod("b", "ml", "train-1")
A_AGAIN = replace(A, uid="a2", containers={"2" * 64: "main"})
LABELLED = replace(A, labels={"app": "other"})


def copied(*pods: Pod) -> list[Pod]:
    return [replace(pod) for pod in pods]


def test_the_same_answer_again_is_the_same_index_in_whatever_order() -> None:
    pods = Pods.of([A, B])
    assert pods.renewed(copied(B, A)) is pods


def test_a_pod_that_is_as_before_is_kept_beside_one_that_is_not() -> None:
    """Or each answer would leave another copy of all pods with those who hold them."""
    pods = Pods.of([A, B]).renewed(copied(LABELLED, B))
    assert pods.by_uid["b"] is B
    assert pods.by_uid["a"].labels == {"app": "other"}
    assert pods.by_container["1" * 64] is pods.by_uid["a"] is pods.by_name["ml", "train-0"]


def test_pods_come_change_and_go_one_by_one() -> None:
    pods = Pods().changed(A).changed(B)
    assert dict(pods.by_uid) == {"a": A, "b": B}
    assert pods.changed(LABELLED).by_name["ml", "train-0"] is LABELLED
    gone = pods.changed(replace(A), gone=True)
    assert (dict(gone.by_uid), dict(gone.by_container)) == ({"b": B}, {})
    assert gone.changed(A, gone=True) is gone


def test_news_of_an_old_pod_does_not_take_the_name_from_the_one_made_after_it() -> None:
    pods = Pods().changed(A).changed(A_AGAIN)
    assert pods.changed(LABELLED).by_name["ml", "train-0"] is A_AGAIN
