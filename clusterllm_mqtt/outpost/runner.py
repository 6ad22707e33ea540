"""Wires subscriber, local models, pusher and reporter into the long-running outpost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from clusterllm_mqtt._version import __version__
from clusterllm_mqtt.errors import first_of_ours
from clusterllm_mqtt.http_client import new_client
from clusterllm_mqtt.mqtt.broker_options import BrokerOptions
from clusterllm_mqtt.mqtt.messages import OutpostFacts, availability_message
from clusterllm_mqtt.mqtt.session import Session
from clusterllm_mqtt.mqtt.topics import OutpostTopics
from clusterllm_mqtt.outpost.content import Content, content_of
from clusterllm_mqtt.outpost.local_models import LocalModels
from clusterllm_mqtt.outpost.ollama import Ollama
from clusterllm_mqtt.outpost.pusher import COALESCE_S, Pusher
from clusterllm_mqtt.outpost.registry import Registry
from clusterllm_mqtt.outpost.reporter import Reporter
from clusterllm_mqtt.outpost.subscriber import Subscriber

if TYPE_CHECKING:
    from pydantic import SecretStr


@dataclass(frozen=True, slots=True)
class OutpostOptions:
    """What an outpost does; `cloudbox_url` is the registry's base URL."""

    cloudbox_url: str
    token: SecretStr = field(repr=False)
    topics: OutpostTopics = field(default_factory=OutpostTopics)
    broker: BrokerOptions = field(default_factory=BrokerOptions)
    ollama_url: str = ""
    ca_file: str = ""
    home_assistant: bool = True
    coalesce_s: float = COALESCE_S


class Outpost:
    """One outpost: `run` until cancelled."""

    def __init__(self, options: OutpostOptions) -> None:
        self._options = options
        self._started_at = datetime.now(UTC)

    async def run(self) -> None:
        """Follow the retained topics and push until cancelled, then say `offline`.

        Raises:
            RegistryRevokedError: the registry no longer accepts the token.
            BrokerRefusedError: the first connection was refused for good.
            TakenOverError: another client uses this outpost's name.
            ConfigError: a CA or certificate file cannot be read.
        """
        options = self._options
        session = Session(
            options.broker,
            client_id=f"clusterllm-outpost-{options.topics.agent}",
            will=availability_message(options.topics, online=False),
        )
        async with new_client(options.ca_file) as client, session:
            registry = Registry(client, options.cloudbox_url, options.token)
            ollama = Ollama(client, options.ollama_url) if options.ollama_url else None
            self._wire(session, registry, ollama)
            try:
                await self._run_together(session)
            finally:
                await self._reporter.goodbye()

    def _wire(self, session: Session, registry: Registry, ollama: Ollama | None) -> None:
        topics = self._options.topics
        self._registry = registry
        self._local = None if ollama is None else LocalModels(ollama, self._changed)
        self._subscriber = Subscriber(session, topics, self._changed)
        self._reporter = Reporter(
            session, topics, self._facts, home_assistant=self._options.home_assistant
        )
        self._pusher = Pusher(
            registry,
            self,
            topics.agent,
            told=self._reporter.changed,
            coalesce_s=self._options.coalesce_s,
        )

    async def _run_together(self, session: Session) -> None:
        """Raises the first error of ours bare: nobody outside should have to unpack groups."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pusher.run(), name="push")
                tasks.create_task(self._reporter.run(), name="report")
                if self._local is not None:
                    tasks.create_task(self._local.run(), name="local models")
                async for event in session.events():
                    self._subscriber.take(event, tasks)
                    self._reporter.take(event, tasks)
        except BaseExceptionGroup as group:
            raise first_of_ours(group) from None

    def _changed(self) -> None:
        self._pusher.changed()
        self._reporter.changed()

    # what the pusher asks

    def content(self) -> Content | None:
        """What the registry should hold now; None while it is not known."""
        running = self._subscriber.running()
        local = () if self._local is None else self._local.models
        if running is None or local is None:
            return None
        return content_of(running, local)

    def lapses_in_s(self) -> float:
        """In how many seconds that may change by itself."""
        return self._subscriber.lapses_in_s()

    # what the reporter asks

    def _facts(self) -> OutpostFacts:
        history = self._pusher.history
        content = history.content or Content()
        cluster = content.cluster
        reason, last_error = self._problem()
        return OutpostFacts(
            version=__version__,
            started_at=self._started_at,
            cloudbox=self._registry.host,
            pushes=history.pushes,
            last_push_at=history.last_push_at,
            models=len(content.models),
            member_count=cluster.member_count if cluster else 0,
            max_model_bytes=cluster.max_model_bytes if cluster else 0,
            reason=reason,
            last_error=last_error,
        )

    def _problem(self) -> tuple[str, str]:
        """A word and a sentence for what is wrong; the worst comes first."""
        if (error := self._pusher.history.error) is not None:
            return str(error.reason), str(error)
        if trouble := self._subscriber.trouble:
            return "incomplete", trouble
        if self._local is not None and self._local.trouble:
            return "local_models", self._local.trouble
        return "", ""
