"""STS of the local account: who am I?"""

from __future__ import annotations

from ..wire import names
from . import callers, iam_calls, query
from .query import Action, Call
from .xml_documents import Child

SERVICE = "sts"
NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"


def service(known: callers.Callers) -> query.Service:
    """What answers requests."""
    actions = {"GetCallerIdentity": Action((), _identity)}
    return query.Service(SERVICE, namespace=NAMESPACE, known=known, actions=actions)


def _identity(call: Call) -> list[Child]:
    return [("Arn", iam_calls.USER_ARN), ("UserId", iam_calls.USER_ID), ("Account", names.LOCAL_ACCOUNT)]
