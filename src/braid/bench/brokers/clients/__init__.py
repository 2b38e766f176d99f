"""How is each rival spoken to? One module per protocol, each with its contender."""

from __future__ import annotations

from braid.bench.brokers.clients.amqp import Amqp
from braid.bench.brokers.clients.mqtt import Mqtt
from braid.bench.brokers.clients.nats import Nats
from braid.bench.brokers.clients.stomp import Stomp

__all__ = ["Amqp", "Mqtt", "Nats", "Stomp"]
