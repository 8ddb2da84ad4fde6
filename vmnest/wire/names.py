"""Names that travel between client, control plane, data plane and guest (facts of the Lambda MicroVMs service)."""

from __future__ import annotations

PROXY_AUTH_HEADER = "X-aws-proxy-auth"
PROXY_PORT_HEADER = "X-aws-proxy-port"
PROXY_ERROR_HEADER = "x-aws-proxy-error"
PROXY_HEADER_PREFIX = "x-aws-proxy-"  # reserved: every header of this prefix ends at the data plane
REQUEST_ID_HEADER = "x-amzn-requestid"
ERROR_TYPE_HEADER = "x-amzn-errortype"

SUBPROTOCOL_MARKER = "lambda-microvms"
SUBPROTOCOL_AUTH_PREFIX = "lambda-microvms.authentication."
SUBPROTOCOL_PORT_PREFIX = "lambda-microvms.port."

DEFAULT_APP_PORT = 8080

# The service's own shell in a MicroVM: a WebSocket, for which the path does not matter as far as is known.
SHELL_PATH = "/shell"
SHELL_PORT = 8022
# A line for ``sh -c`` that becomes a login shell: bash, or sh where there is none.
LOGIN_SHELL = "if command -v bash >/dev/null 2>&1; then exec bash -l; else exec sh -l; fi"

# What the AWS wire has no member for travels to the local cloud in this signed header, as JSON.
LOCAL_OPTIONS_HEADER = "vmnest-local-options"
LOCAL_DETAILS_MEMBER = "localDetails"
LOCAL_ACCOUNT = "000000000000"
LOCAL_REGION = "us-east-1"
LOCAL_IMAGE_NAME = "local"
IMAGE_NAME = "[a-zA-Z0-9_-]{1,64}"  # a pattern: what an image can be called

# The connectors that the service owns. Through all but those WITHOUT_HTTP requests reach a MicroVM's ports.
HTTP_INGRESS = "HTTP_INGRESS"
ALL_INGRESS = "ALL_INGRESS"
SHELL_INGRESS = "SHELL_INGRESS"
NO_INGRESS = "NO_INGRESS"
INTERNET_EGRESS = "INTERNET_EGRESS"
INGRESS_CONNECTORS = (HTTP_INGRESS, ALL_INGRESS, SHELL_INGRESS, NO_INGRESS)
EGRESS_CONNECTORS = (INTERNET_EGRESS,)
CONNECTORS_WITHOUT_HTTP = (SHELL_INGRESS, NO_INGRESS)

PENDING = "PENDING"
RUNNING = "RUNNING"
SUSPENDING = "SUSPENDING"
SUSPENDED = "SUSPENDED"
TERMINATING = "TERMINATING"
TERMINATED = "TERMINATED"
UNKNOWN = "UNKNOWN"  # no word of the service: what we say where it was not asked, or could not be
STATES = (PENDING, RUNNING, SUSPENDING, SUSPENDED, TERMINATING, TERMINATED)
SUSPENDED_STATES = (SUSPENDING, SUSPENDED)
ENDED_STATES = (TERMINATING, TERMINATED)
LONGEST_LIFE_SECONDS = 28_800  # a MicroVM's, suspended or not
SHORTEST_IDLE_SECONDS = 60  # that the service takes
DEFAULT_IDLE_SECONDS = 900  # our own
LONGEST_PAYLOAD_BYTES = 4096  # of the run hook

# x-aws-proxy-error values, and the bodies of refusals, as recorded from the live proxy.
APP_CONNECT_FAILED = "APP_CONNECT_FAILED"
MICROVM_CONNECT_FAILED = "MICROVM_CONNECT_FAILED"
UNAUTHORIZED = "UNAUTHORIZED"
BODY_NO_TOKEN = "Request missing authentication"  # noqa: S105 - a refusal's text
BODY_WRONG_TOKEN = "Token authentication failed"  # noqa: S105 - a refusal's text
BODY_WRONG_PORT = "Access to port denied"


def image_arn(*, region: str, account: str, name: str) -> str:
    """The ARN of an image (a colon stands before the name, not a slash)."""
    return f"arn:aws:lambda:{region}:{account}:microvm-image:{name}"


def managed_connector_arn(*, region: str, name: str) -> str:
    """The ARN of a connector that the service owns, for example ``INTERNET_EGRESS``."""
    return f"arn:aws:lambda:{region}:aws:network-connector:aws-network-connector:{name}"
