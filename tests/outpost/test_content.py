"""One home, one cluster, all models; whatever the order in which it was heard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterllm_mqtt.models import MAX_BYTES, Info, ModelInfo, State
from clusterllm_mqtt.outpost import ClusterCapacity, RegistryModel
from clusterllm_mqtt.outpost.content import Content, content_of
from clusterllm_mqtt.outpost.roster import Running

if TYPE_CHECKING:
    from random import Random


def running(
    key: str = "a",
    *models: ModelInfo,
    vram: int = 0,
    members: int = 1,
    backend: str = "llamacpp",
    bridge: str = "home",
) -> Running:
    info = Info(State.RUNNING, backend, "", "", members, vram, models)
    return Running(bridge, key, info)


def test_nothing_runs_so_there_is_no_cluster_and_no_model() -> None:
    assert content_of([]) == Content((), None)


def test_the_cluster_is_the_one_with_the_most_memory() -> None:
    one, other = running("a", members=9), running("b", vram=5, backend="gpustack")
    assert content_of([one, other]).cluster == ClusterCapacity(5, 1, "gpustack")


def test_then_the_one_with_the_most_members_then_the_first_by_bridge_and_key() -> None:
    few, many = running("a", backend="x"), running("b", members=2, backend="y")
    assert content_of([few, many]).cluster == ClusterCapacity(0, 2, "y")
    first, last = running("z", bridge="a", backend="x"), running("a", bridge="b", backend="y")
    assert content_of([last, first]).cluster == ClusterCapacity(0, 1, "x")


def test_models_of_all_endpoints_are_merged_by_name_and_the_largest_known_size_counts() -> None:
    one = running("a", ModelInfo("m"), ModelInfo("z", 3))
    other = running("b", ModelInfo("m", 7), ModelInfo("m", 5))
    content = content_of([one, other])
    assert content.models == (RegistryModel("m", size=7), RegistryModel("z", size=3))


def test_local_models_are_the_base() -> None:
    local = (RegistryModel("m", digest="d", size=1), RegistryModel("b", digest="e"))
    content = content_of([running("a", ModelInfo("m", 9), ModelInfo("b", 4))], local)
    assert content.models == (
        RegistryModel("b", digest="e", size=4),
        RegistryModel("m", digest="d", size=1),
    )


def test_local_models_are_told_without_any_cluster() -> None:
    local = (RegistryModel("m", digest="d", size=1),)
    assert content_of([], local) == Content(local, None)


@given(
    st.lists(
        st.builds(
            running,
            st.sampled_from("abc"),
            st.builds(ModelInfo, st.sampled_from(["m", "n", " "]), st.integers(0, 3)),
            vram=st.sampled_from([0, 1, MAX_BYTES]),
            members=st.integers(1, 3),
            bridge=st.sampled_from(["one", "two"]),
        ),
        unique_by=lambda r: (r.bridge, r.key),
        max_size=5,
    ),
    st.randoms(use_true_random=False),
)
def test_equal_states_have_equal_contents(
    found: list[Running],
    dice: Random,
) -> None:
    shuffled = found[:]
    dice.shuffle(shuffled)
    assert content_of(found) == content_of(shuffled)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (Content(), "0 models, no cluster"),
        (Content((RegistryModel("m"),)), "1 model, no cluster"),
        (
            Content((), ClusterCapacity(3 * 2**29, 2, "gpustack")),
            "0 models, cluster gpustack of 2, 1.5 GiB",
        ),
        (
            Content((), ClusterCapacity(0, 1, "\x1b[31mx")),
            "0 models, cluster [31mx of 1, unknown size",
        ),
    ],
)
def test_people_read_one_short_line(content: Content, text: str) -> None:
    assert str(content) == text
