"""What has happened to a connection: the events of `ringloop.quic.events`."""

from ringloop.quic import events
from ringloop.quic.events import *  # noqa: F403

__all__ = events.__all__
