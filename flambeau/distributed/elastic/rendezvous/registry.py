"""The backends that there are."""

from __future__ import annotations

from . import RendezvousHandler, RendezvousParameters, rendezvous_handler_registry
from .c10d_rendezvous_backend import create_backend
from .dynamic_rendezvous import create_handler
from .static_tcp_rendezvous import create_rdzv_handler


def _dynamic(params: RendezvousParameters) -> RendezvousHandler:
    backend, store = create_backend(params)
    return create_handler(store, backend, params)


rendezvous_handler_registry.register("c10d", _dynamic)
rendezvous_handler_registry.register("static", create_rdzv_handler)


def get_rendezvous_handler(params: RendezvousParameters) -> RendezvousHandler:
    """A handler for these parameters: "c10d", "static", or a backend of the user's."""
    return rendezvous_handler_registry.create_handler(params)
