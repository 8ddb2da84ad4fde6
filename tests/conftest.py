"""Fixtures of all tests live in ``tests/support``; this file only names them."""

pytest_plugins = [
    "tests.support.ambient",
    "tests.support.agent",
    "tests.support.authority",
    "tests.support.browser",
    "tests.support.cells",
    "tests.support.building",
    "tests.support.cli",
    "tests.support.clock",
    "tests.support.account",  # after the clock
    "tests.support.agent_client",  # after the clock, which it moves
    "tests.support.cloud",
    "tests.support.forward",  # after the authority
    "tests.support.generated",
    "tests.support.infra",  # after the clock
    "tests.support.sandbox_yaml",
    "tests.support.live",
    "tests.support.peers",
    "tests.support.costs",  # after the peers
    "tests.support.cutting",
    "tests.support.minimal",
    "tests.support.control",  # after those that it imports, or pytest cannot rewrite their assertions
    "tests.support.emulated",
    "tests.support.scripted_aws",  # after the peers
    "tests.support.log_plane",  # after the control
    "tests.support.logs",  # after the plane
    "tests.support.fleet",  # after the peers
    "tests.support.notes",
    "tests.support.planes",
    "tests.support.figures",  # after the planes
    "tests.support.mcp_process",
    "tests.support.mcp_tools",  # after the cloud
    "tests.support.processes",
    "tests.support.relay_peers",  # after the agent
    "tests.support.sites",
    "tests.support.skips",
    "tests.support.sound_agent",
]
