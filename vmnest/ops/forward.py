"""Ports of a sandbox on this machine."""

from __future__ import annotations

from . import sandboxes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..sandbox.forwarding import Forwarding

__all__ = ["describe", "open_forward"]


def open_forward(
    *,
    name: str,
    ports: Sequence[str | int],
    local_port: int | None = None,
    bind: str | None = None,
    direct: bool = False,
    allow_hosts: Sequence[str] = (),
    verify_tls: bool | None = None,
    poll_interval: float | None = None,
    local: bool | None = None,
    region: str | None = None,
    on_remark: Callable[[str], None] | None = None,
) -> Forwarding:
    """Forward ports of this machine to ports of a sandbox, until it is closed. A suspended sandbox is resumed.

    Args:
        name: The sandbox.
        ports: Ports in the sandbox: 8000, with a local one 8000:3000, or ranges 3000-3005.
        local_port: The local port, of a single one; 0: any that is free. By default it is the same number.
        bind: The address to listen on; loopback by default.
        direct: Do not use the agent's relay, by which the server sees requests for localhost.
        allow_hosts: Names of this machine by which it is asked, beside localhost and addresses.
        verify_tls: False: do not check the endpoint's certificate.
        poll_interval: Seconds between two looks at the sandbox's state.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
        on_remark: Told of problems, a line each.
    """
    from ..forward.ports import LOOPBACK, POLL_SECONDS
    from ..sandbox import forwarding

    record = sandboxes.require(name, local=local)
    # Not by way of Sandbox, which loads what else one can do with it.
    return forwarding.open_forwarding(
        forwarding.link_of(record, region=region, verify_tls=verify_tls),
        ports,
        local_port=local_port,
        bind=LOOPBACK if bind is None else bind,
        is_direct=direct,
        allow_hosts=allow_hosts,
        poll_interval=poll_interval or POLL_SECONDS,
        on_remark=on_remark,
    )


def describe(forwarding: Forwarding, *, name: str) -> dict[str, object]:
    """What is forwarded where, as ``--json`` and the MCP server show it."""
    urls = forwarding.urls
    forwards = [{"remote": remote, "local": local, "url": urls[remote]} for remote, local in forwarding.ports.items()]
    return {"name": name, "forwards": forwards}
