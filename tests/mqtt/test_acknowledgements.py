"""What the broker still owes."""

from __future__ import annotations

import asyncio

import pytest

from clusterllm_mqtt.errors import PublishError
from clusterllm_mqtt.mqtt.acknowledgements import Acknowledgements, AcknowledgementTimeoutError


def acknowledgements(timeout_s: float = 5.0) -> Acknowledgements[str]:
    return Acknowledgements("box:1883", timeout_s=timeout_s)


async def test_answers_come_in_the_order_asked_for() -> None:
    acks = acknowledgements()
    waiting = asyncio.create_task(acks.wait([1, 2]))
    await asyncio.sleep(0)
    acks.acknowledge(2, ["b"])
    acks.acknowledge(1, ["a"])
    assert await waiting == [["a"], ["b"]]


async def test_what_nobody_waits_for_is_ignored() -> None:
    acks = acknowledgements()
    acks.acknowledge(1, ["late"])
    assert await acks.wait([]) == []


async def test_what_does_not_come_is_told() -> None:
    acks = acknowledgements(timeout_s=0.05)
    with pytest.raises(AcknowledgementTimeoutError, match=r"box:1883: .* within 0\.05 s"):
        await acks.wait([1])
    acks.acknowledge(1, ["too late"])


async def test_a_long_batch_may_take_long_while_it_advances() -> None:
    acks = acknowledgements(timeout_s=0.2)
    waiting = asyncio.create_task(acks.wait(range(8)))
    for packet_id in range(8):
        await asyncio.sleep(0.05)
        acks.acknowledge(packet_id, ["ok"])
    assert len(await waiting) == 8


async def test_the_end_of_the_connection_ends_every_wait() -> None:
    acks = acknowledgements()
    waiting = [asyncio.create_task(acks.wait([n, n + 10])) for n in range(3)]
    await asyncio.sleep(0)
    acks.give_up()
    for task in waiting:
        with pytest.raises(PublishError, match="ended before"):
            await task
    with pytest.raises(PublishError, match="ended before"):
        await acks.wait([99])


async def test_a_packet_that_was_never_sent_is_not_waited_for() -> None:
    with pytest.raises(PublishError, match="ended before"):
        await acknowledgements().wait([None])


async def test_who_stops_waiting_disturbs_nobody() -> None:
    acks = acknowledgements()
    gone, staying = (asyncio.create_task(acks.wait([n])) for n in (1, 2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    acks.acknowledge(1, ["nobody"])
    acks.acknowledge(2, ["ok"])
    assert await staying == [["ok"]]
