"""What is heard of names comes in any order and number; what is told stays true and little."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from rig.mosquitto import eventually

from clusterllm_mqtt.errors import RecordError
from clusterllm_mqtt.mdns.service_table import ServiceTable
from clusterllm_mqtt.models import EndpointFound, EndpointLost, Service

if TYPE_CHECKING:
    import pytest

PAUSE_S = 0.02


class Rig:
    """A table, what it told, and records that a test can change, spoil or hold back."""

    def __init__(self, *, max_services: int = 64, pause_s: float = PAUSE_S) -> None:
        self.told: list[str] = []
        self.looks = 0
        self.port = 1
        self.trouble = ""
        self.answers = asyncio.Event()
        self.answers.set()
        self.table = ServiceTable(
            self._resolve, self._tell, max_services=max_services, pause_s=pause_s
        )

    async def _resolve(self, instance: str, before: Service | None) -> Service:
        assert before is None or before.instance == instance
        self.looks += 1
        await self.answers.wait()
        if self.trouble:
            raise RecordError(self.trouble)
        return Service(instance, instance, f"http://10.0.0.1:{self.port}")

    def _tell(self, event: EndpointFound | EndpointLost) -> None:
        if isinstance(event, EndpointFound):
            self.told.append(f"+{event.service.instance}:{event.service.url.rpartition(':')[2]}")
        else:
            self.told.append(f"-{event.instance}")

    def named(self, instance: str = "a") -> None:
        self.table.note(instance, is_named=True)

    def gone(self, instance: str = "a") -> None:
        self.table.note(instance, is_named=False)

    async def idle(self) -> None:
        await eventually(lambda: not self.table._looks)


async def test_a_name_is_told_once_however_often_it_is_heard() -> None:
    rig = Rig()
    for _ in range(100):
        rig.named()
    await rig.idle()
    assert rig.told == ["+a:1"]
    assert len(rig.table) == 1
    assert "a" in rig.table


async def test_a_changed_record_is_told_again_and_an_unchanged_one_is_not() -> None:
    rig = Rig()
    rig.named()
    await rig.idle()
    rig.named()
    await rig.idle()
    rig.port = 2
    rig.named()
    await rig.idle()
    assert rig.told == ["+a:1", "+a:2"]


async def test_what_is_heard_during_a_look_is_looked_at_after_it() -> None:
    rig = Rig()
    rig.named()
    await eventually(lambda: bool(rig.told))
    rig.port = 2
    rig.named()
    await rig.idle()
    assert rig.told == ["+a:1", "+a:2"]


async def test_what_was_replaced_within_the_last_second_is_seen_by_a_last_look() -> None:
    rig = Rig()
    rig.named()
    await eventually(lambda: bool(rig.told))
    rig.port = 2  # nobody says so
    await rig.idle()
    assert rig.told == ["+a:1", "+a:2"]


async def test_gone_and_back_is_told_in_that_order() -> None:
    rig = Rig()
    rig.named()
    await rig.idle()
    rig.gone()
    await rig.idle()
    rig.named()
    await rig.idle()
    assert rig.told == ["+a:1", "-a", "+a:1"]


async def test_gone_and_back_in_one_breath_is_no_news() -> None:
    rig = Rig()
    rig.named()
    await rig.idle()
    rig.gone()
    rig.named()
    await rig.idle()
    assert rig.told == ["+a:1"]


async def test_gone_while_it_is_being_asked_is_never_told() -> None:
    rig = Rig()
    rig.answers.clear()
    rig.named()
    await eventually(lambda: rig.looks == 1)
    rig.gone()
    rig.answers.set()
    await rig.idle()
    assert rig.told == []
    assert len(rig.table) == 0


async def test_the_goodbye_of_an_unknown_name_is_nothing() -> None:
    rig = Rig()
    rig.gone()
    assert rig.looks == 0
    assert not rig.table._looks


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.sampled_from([0, 0, 0.004]))))
def test_after_any_sequence_what_was_told_is_what_is_named(
    heard: list[tuple[str, bool, float]],
) -> None:
    async def run() -> None:
        rig = Rig(pause_s=0.001)
        for instance, is_named, pause_s in heard:
            rig.table.note(instance, is_named=is_named)
            await asyncio.sleep(pause_s)
        await rig.idle()
        told = {event[1]: event[0] == "+" for event in rig.told}
        last = {instance: is_named for instance, is_named, _ in heard}
        assert {i for i, is_there in told.items() if is_there} == {i for i in last if last[i]}
        assert all(rig.told[n] != rig.told[n + 1] for n in range(len(rig.told) - 1))

    asyncio.run(run())


async def test_who_flaps_is_heard_ever_less() -> None:
    rig = Rig()
    for _ in range(50):
        rig.named()
        await asyncio.sleep(0.005)
        rig.gone()
        await asyncio.sleep(0.005)
    assert len(rig.told) <= 6, "0.5 s hold pauses of 0.02, 0.04, 0.08 and so on"
    await rig.table.close()


async def test_no_more_names_than_allowed_and_who_left_keeps_its_place_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(max_services=2)
    for instance in "abcd":
        rig.named(instance)
    await rig.idle()
    assert rig.told == ["+a:1", "+b:1"]
    rig.gone("a")
    rig.named("c")
    await rig.idle()
    assert rig.told == ["+a:1", "+b:1", "-a"]

    rig.table.catch_up({"b", "c"})
    await rig.idle()
    assert rig.told == ["+a:1", "+b:1", "-a", "+c:1"]
    assert caplog.text.count("more are ignored") == 1


async def test_what_came_without_a_word_is_caught_up_with() -> None:
    rig = Rig()
    rig.named("a")
    await rig.idle()
    rig.table.catch_up({"a", "b"})
    await rig.idle()
    assert rig.told == ["+a:1", "+b:1"]
    rig.table.catch_up({"a", "b"})
    assert not rig.table._looks


async def test_who_is_no_longer_named_but_answers_stays() -> None:
    rig = Rig()
    rig.named()
    await rig.idle()
    rig.table.catch_up(set())
    await rig.idle()
    assert rig.told == ["+a:1"]
    rig.trouble = "it does not answer"
    rig.named()
    await rig.idle()
    assert rig.told == ["+a:1"], "it is doubted no more"


async def test_who_is_no_longer_named_and_does_not_answer_is_lost() -> None:
    rig = Rig()
    rig.named()
    await rig.idle()
    rig.trouble = "it does not answer"
    rig.table.catch_up(set())
    await rig.idle()
    assert rig.told == ["+a:1", "-a"]
    rig.table.catch_up(set())
    assert "a" not in rig.table._is_named, "its place is free again"


async def test_what_is_refused_is_logged_once_cleaned_and_not_asked_every_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    rig = Rig()
    rig.trouble = "port 0"
    for _ in range(3):
        rig.named("x\x1b[31m\ny")
        await rig.idle()
    assert [r.getMessage() for r in caplog.records] == ["mdns: x [31m y: ignored: port 0"]
    looks = rig.looks
    rig.table.catch_up({"x\x1b[31m\ny"})
    await rig.idle()
    assert rig.looks == looks

    rig.trouble = ""
    rig.named("x\x1b[31m\ny")
    await rig.idle()
    assert len(rig.told) == 1, "it mended its record"


async def test_the_refused_take_no_places_and_cannot_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    rig = Rig(max_services=400)
    rig.trouble = "bad"
    for number in range(400):
        rig.named(f"n{number}")
    await rig.idle()
    assert 200 < len(caplog.records) <= 256
    rig.trouble = ""
    rig.named("good")
    await rig.idle()
    assert rig.told == ["+good:1"]


async def test_a_known_service_stays_while_its_records_cannot_be_had(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    rig = Rig()
    rig.named()
    await rig.idle()
    rig.trouble = "it does not answer"
    rig.named()
    await rig.idle()
    assert rig.told == ["+a:1"]
    assert caplog.text == ""


async def test_closing_ends_the_looks() -> None:
    rig = Rig()
    rig.answers.clear()
    rig.named("asked")
    await eventually(lambda: rig.looks == 1)
    rig.named("about to be asked")
    await rig.table.close()
    assert rig.told == []
    assert len(asyncio.all_tasks()) == 1
