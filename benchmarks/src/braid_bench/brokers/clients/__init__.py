"""How is each rival spoken to? One module per protocol, each with its contender."""

from __future__ import annotations

from braid_bench.brokers.clients.amqp import Amqp
from braid_bench.brokers.clients.mqtt import Mqtt
from braid_bench.brokers.clients.nats import Nats
from braid_bench.brokers.clients.stomp import Stomp

__all__ = ["Amqp", "Mqtt", "Nats", "Stomp"]
