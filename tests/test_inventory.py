"""Which service is which endpoint, the cap, and forgetting."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from rig.samples import at, browsed, configured, down, service, up

from clusterllm_mqtt.inventory import Inventory, mdns_identity
from clusterllm_mqtt.models import Endpoint, Info, Reason, Source, State
from clusterllm_mqtt.mqtt.topics import endpoint_key

DAY_S = 24 * 3600.0


def recall(inventory: Inventory, endpoint: Endpoint, state: State, *, days_ago: float = 0) -> bool:
    info = Info(state, endpoint=endpoint.config.endpoint)
    since = at(-days_ago * DAY_S)
    return inventory.recall(endpoint, info, since, now=at(0), now_s=0)


def state_of(inventory: Inventory, endpoint: Endpoint) -> State:
    return next(s.info.state for s in inventory.states if s.endpoint.key == endpoint.key)


def test_a_service_becomes_an_endpoint_with_a_key_that_survives_a_new_address() -> None:
    inventory = Inventory()
    first = inventory.found(service(url="http://192.168.1.5:8080"))
    moved = inventory.found(service(url="http://192.168.1.77:8080"))
    assert first is not None
    assert moved is not None
    assert moved.key == first.key == endpoint_key("box", "mdns:box._llamacpp._tcp.local.")
    assert [e.config.endpoint for e in inventory.watched] == ["http://192.168.1.77:8080"]


def test_dns_names_know_no_case() -> None:
    assert mdns_identity("Box._LLM._tcp.local.") == mdns_identity("box._llm._tcp.local.")


def test_two_services_at_one_address_are_one_endpoint() -> None:
    inventory = Inventory()
    first = inventory.found(service())
    assert inventory.found(service("other", service_type="_openai._tcp.local.")) == first
    assert inventory.lost("box._llamacpp._tcp.local.", now_s=0) == first.key if first else None
    assert len(inventory.watched) == 1


def test_a_renamed_service_keeps_the_endpoint_that_it_was() -> None:
    inventory = Inventory()
    endpoint = inventory.found(service("old name"))
    inventory.lost("old name._llamacpp._tcp.local.", now_s=0)
    assert inventory.found(service("new name")) == endpoint


def test_the_configured_endpoint_wins_over_a_browsed_duplicate() -> None:
    mine = configured(url="http://box.lan:8080")
    inventory = Inventory([mine])
    found = inventory.found(service(hosts=frozenset({"192.168.1.5", "box.lan"})))
    assert found == mine
    assert inventory.watched == (mine,)


def test_a_recalled_duplicate_of_a_configured_endpoint_is_dropped() -> None:
    mine = configured(url="http://box.lan:8080")
    inventory = Inventory([mine])
    assert recall(inventory, browsed(), State.RUNNING)
    inventory.found(service(hosts=frozenset({"box.lan"})))
    assert inventory.watched == (mine,)
    assert inventory.take_replaced() == {browsed().key: mine.key}
    assert inventory.take_replaced() == {}
    assert not recall(inventory, browsed(url="http://box.lan:8080"), State.RUNNING)
    assert inventory.take_replaced() == {browsed().key: mine.key}


def test_a_neighbour_cannot_take_over_an_endpoint_by_listing_its_address() -> None:
    inventory = Inventory()
    victim = inventory.found(service("victim", "http://192.168.1.5:8080"))
    inventory.found(service("rogue", "http://192.168.1.66:8080", frozenset({"192.168.1.5"})))
    assert victim in inventory.watched
    assert len(inventory.watched) == 2


def test_a_default_port_is_the_same_as_a_written_one() -> None:
    mine = configured(url="http://box.lan/")
    inventory = Inventory([mine])
    assert inventory.found(service(url="http://box.lan:80")) == mine


def test_a_machine_that_inherits_an_address_does_not_answer_for_the_one_that_is_off() -> None:
    inventory = Inventory()
    old, new = browsed("old"), browsed("new", "http://192.168.1.6:8080")
    inventory.found(service("old"))
    inventory.found(service("new", "http://192.168.1.6:8080"))
    inventory.record(up(old))
    inventory.found(service("new", old.config.endpoint))
    inventory.record(up(old, 1))
    assert state_of(inventory, old) is State.RUNNING  # still advertised there: both claim it
    inventory.lost(service("old").instance, now_s=2)
    inventory.record(up(old, 3))
    inventory.record(up(old, 4))
    assert state_of(inventory, old) is State.NOT_REACHABLE
    inventory.found(service("new", "http://192.168.1.6:8080"))
    inventory.record(up(old, 5))
    assert state_of(inventory, old) is State.RUNNING
    assert new.key in {e.key for e in inventory.watched}


def test_a_recalled_endpoint_is_unprobed_and_not_believed() -> None:
    inventory = Inventory()
    endpoint = browsed()
    assert recall(inventory, endpoint, State.RUNNING)
    assert not recall(inventory, endpoint, State.RUNNING)
    assert inventory.unprobed == {endpoint.key}
    assert inventory.states == ()
    inventory.record(down(endpoint))
    assert inventory.unprobed == frozenset()
    assert state_of(inventory, endpoint) is State.NOT_REACHABLE


def test_an_endpoint_is_forgotten_when_unadvertised_and_unreachable_for_long_enough() -> None:
    inventory = Inventory(forget_after_s=100)
    endpoint = inventory.found(service())
    assert endpoint is not None
    inventory.record(up(endpoint, 0))
    inventory.lost(service().instance, now_s=10)
    assert inventory.forget(now_s=1000) == ()  # reachable
    inventory.record(down(endpoint, 1000, Reason.TIMEOUT))
    inventory.record(down(endpoint, 1001, Reason.TIMEOUT))
    assert inventory.forget(now_s=1100) == ()
    assert inventory.forget(now_s=1101) == (endpoint.key,)
    assert inventory.watched == ()


def test_a_goodbye_of_an_unreachable_endpoint_starts_the_clock() -> None:
    inventory = Inventory(forget_after_s=100)
    endpoint = inventory.found(service())
    assert endpoint is not None
    inventory.record(down(endpoint, 0))
    assert inventory.forget(now_s=500) == ()
    inventory.lost(service().instance, now_s=500)
    assert inventory.forget(now_s=600) == (endpoint.key,)
    assert inventory.lost(service().instance, now_s=601) is None


def test_forget_after_zero_never_forgets() -> None:
    inventory = Inventory(forget_after_s=0)
    recall(inventory, browsed(), State.NOT_REACHABLE, days_ago=1000)
    assert inventory.forget(now_s=1e9) == ()


def test_being_away_counts_over_restarts_but_a_wrong_clock_alone_forgets_nothing() -> None:
    inventory = Inventory(forget_after_s=7 * DAY_S)
    endpoint = browsed()
    recall(inventory, endpoint, State.NOT_REACHABLE, days_ago=6.5)
    inventory.record(down(endpoint, 0))
    assert inventory.forget(now_s=0.4 * DAY_S) == ()
    assert inventory.forget(now_s=0.6 * DAY_S) == (endpoint.key,)
    leapt = Inventory(forget_after_s=7 * DAY_S)
    recall(leapt, endpoint, State.NOT_REACHABLE, days_ago=20_000)
    leapt.record(down(endpoint, 0))
    assert leapt.forget(now_s=3000) == ()


def test_the_cap_holds_and_what_is_gone_longest_makes_room() -> None:
    inventory = Inventory([configured("own", "http://10.0.0.1:1")], max_browsed=2)
    one = inventory.found(service("one", "http://10.0.0.2:1"))
    inventory.found(service("two", "http://10.0.0.3:1"))
    assert inventory.found(service("three", "http://10.0.0.4:1")) is None
    assert inventory.refused == 1
    assert one is not None
    inventory.record(down(one, 0))
    inventory.lost(service("one").instance, now_s=1)
    assert inventory.found(service("three", "http://10.0.0.4:1")) is not None
    assert {e.name for e in inventory.watched} == {"own", "two", "three"}


def test_results_of_unknown_endpoints_are_ignored() -> None:
    assert Inventory().record(up(browsed())) == ()


class Lan(RuleBasedStateMachine):
    """Any mix of services, losses and probes: the promises below hold."""

    services = Bundle("services")

    @initialize()
    def start(self) -> None:
        self.now_s = 0.0
        self.inventory = Inventory(
            [configured("own", "http://10.0.0.9:1")], max_browsed=4, forget_after_s=50
        )

    @rule(target=services, name=st.sampled_from("abcdef"), host=st.integers(1, 9))
    def found(self, name: str, host: int) -> str:
        found = service(name, f"http://10.0.0.{host}:1")
        self.inventory.found(found)
        return found.instance

    @rule(instance=services)
    def lost(self, instance: str) -> None:
        self.inventory.lost(instance, now_s=self.now_s)

    @rule(data=st.data(), is_up=st.booleans())
    def probed(self, data: st.DataObject, is_up: bool) -> None:  # noqa: FBT001
        endpoint = data.draw(st.sampled_from(self.inventory.watched))
        self.now_s += 1
        self.inventory.record((up if is_up else down)(endpoint, self.now_s))

    @rule(name=st.sampled_from("abcdef"), host=st.integers(1, 9))
    def recalled(self, name: str, host: int) -> None:
        recall(self.inventory, browsed(name, f"http://10.0.0.{host}:1"), State.RUNNING)

    @rule()
    def time_passes(self) -> None:
        self.now_s += 30
        self.inventory.forget(now_s=self.now_s)

    @invariant()
    def keys_are_unique_and_capped(self) -> None:
        watched = self.inventory.watched
        assert len({e.key for e in watched}) == len(watched)
        assert sum(e.source is Source.MDNS for e in watched) <= 4

    @invariant()
    def the_configured_endpoint_stays(self) -> None:
        assert "own" in {e.name for e in self.inventory.watched}

    @invariant()
    def what_is_advertised_is_watched(self) -> None:
        watched = {e.key for e in self.inventory.watched}
        assert {s.endpoint.key for s in self.inventory.states} <= watched
        for entry in self.inventory._by_instance.values():
            assert entry.endpoint.key in watched


TestLan = Lan.TestCase
TestLan.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


X, Y, Z = (f"http://192.168.1.{number}:8080" for number in (5, 6, 7))


def test_one_server_that_is_found_before_its_memory_is_one_endpoint() -> None:
    """The services of a host may be heard of before the broker was read."""
    inventory = Inventory()
    inventory.found(service("new", X))
    assert recall(inventory, browsed("old", X), State.NOT_REACHABLE)
    for seconds in (11, 26, 41):
        inventory.record(up(browsed("old", X), seconds))
        inventory.record(up(browsed("new", X), seconds))
    assert [s.info.state for s in inventory.states].count(State.RUNNING) == 1


def test_an_address_that_is_free_again_goes_back_to_who_had_it() -> None:
    inventory = Inventory()
    inventory.found(service("b", Y))
    inventory.found(service("alias", Y))
    inventory.found(service("a", X))
    inventory.lost(service("a").instance, now_s=1)
    inventory.found(service("b", X))  # which displaces a
    inventory.lost(service("b").instance, now_s=2)
    inventory.found(service("alias", Z))  # nobody is named at X any more
    for seconds in (10, 20, 30):
        inventory.record(up(browsed("a", X), seconds))
    assert state_of(inventory, browsed("a", X)) is State.RUNNING
