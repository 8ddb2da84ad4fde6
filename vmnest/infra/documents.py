"""Policy documents: who may assume our roles, what these may do, who may use our bucket. Pure.

Each role gets what the service needs of it and no more (fact: the service's actions have the prefix ``lambda:``, and
its builds and MicroVMs use the role for their own logs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Document = Mapping[str, object]

VERSION = "2012-10-17"
SERVICE = "lambda.amazonaws.com"
LOG_GROUPS = "/aws/lambda-microvms/*"
CONNECTOR_OPERATOR = "network-connectors.lambda.amazonaws.com"
TLS_STATEMENT = "VmnestTlsOnly"
_LOG_ACTIONS = ("logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents")
# Members whose one value may stand alone or in a list, and whose lists have no order.
_SETS = frozenset({"Action", "NotAction", "Resource", "NotResource", "Service", "AWS", "Federated"})


def service_trust(*, account_id: str) -> Document:
    """The service may assume the role, for this account alone."""
    return _document(
        {
            "Effect": "Allow",
            "Principal": {"Service": SERVICE},
            "Action": ["sts:AssumeRole", "sts:TagSession"],
            "Condition": {"StringEquals": {"aws:SourceAccount": account_id}},
        }
    )


def operator_trust() -> Document:
    """The service may assume the role to make a connector's interfaces."""
    return _document({"Effect": "Allow", "Principal": {"Service": SERVICE}, "Action": ["sts:AssumeRole"]})


def sandbox_policy(
    *, partition: str, region: str, account_id: str, bucket: str, prefix: str, log_group: str | None
) -> Document:
    """A build reads its artifact; builds and MicroVMs write their logs."""
    groups = f"arn:{partition}:logs:{region}:{account_id}:log-group:"
    named = (LOG_GROUPS, *((log_group, f"{log_group}:*") if log_group else ()))
    return _document(
        {
            "Sid": "ReadArtifacts",
            "Effect": "Allow",
            "Action": ["s3:GetObject"],
            "Resource": [f"arn:{partition}:s3:::{bucket}/{prefix}*"],
        },
        {
            "Sid": "WriteLogs",
            "Effect": "Allow",
            "Action": list(_LOG_ACTIONS),
            "Resource": [groups + name for name in named],
        },
    )


def operator_policy(*, partition: str, region: str, account_id: str) -> Document:
    """The service makes a connector's interfaces, and tags what it made."""
    place = f"arn:{partition}:ec2:{region}:{account_id}:"
    return _document(
        {
            "Sid": "MakeInterfaces",
            "Effect": "Allow",
            "Action": ["ec2:CreateNetworkInterface"],
            "Resource": [f"{place}{kind}/*" for kind in ("network-interface", "subnet", "security-group")],
        },
        {
            "Sid": "TagInterfaces",
            "Effect": "Allow",
            "Action": ["ec2:CreateTags"],
            "Resource": [f"{place}network-interface/*"],
            "Condition": {"StringEquals": {"ec2:ManagedResourceOperator": CONNECTOR_OPERATOR}},
        },
    )


def tls_only(bucket: str, *, partition: str, present: Document) -> Document:
    """The policy that a bucket has, with the statement that refuses every request without TLS."""
    statement = {
        "Sid": TLS_STATEMENT,
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [f"arn:{partition}:s3:::{bucket}", f"arn:{partition}:s3:::{bucket}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    kept = [other for other in statements(present) if other.get("Sid") != TLS_STATEMENT]
    return {**present, **_document(*kept, statement)}


def statements(document: Document) -> Sequence[Document]:
    """The statements of a policy; one alone need not stand in a list."""
    found = document.get("Statement")
    listed = found if isinstance(found, list) else [found]
    return [statement for statement in listed if isinstance(statement, Mapping)]


def are_equal(one: Document, other: Document) -> bool:
    """Both say the same: AWS may answer a list of one as the one, and lists in another order."""
    return _normal(one) == _normal(other)


def _normal(value: object, *, name: str = "") -> object:
    if name in _SETS and not isinstance(value, Mapping):
        return sorted(map(str, value)) if isinstance(value, list) else [str(value)]
    if name == "Statement" and not isinstance(value, list):
        return [_normal(value)]
    if isinstance(value, Mapping):
        return {str(key): _normal(member, name=str(key)) for key, member in value.items()}
    return [_normal(item) for item in value] if isinstance(value, list) else value


def _document(*statements: Document) -> dict[str, object]:
    return {"Version": VERSION, "Statement": list(statements)}
