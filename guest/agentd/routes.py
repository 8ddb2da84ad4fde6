"""Which function answers a request: paths, methods, and the one segment of a path that may be anything."""

from __future__ import annotations

from . import answers, wire
from .errors import RequestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .server import Request

    Methods = Mapping[str, Callable[[Request], answers.Answer]]  # method -> handler
    Routes = Mapping[str, Methods]  # path -> its methods

PLACE = "{id}"  # in a route's path: any one segment that is not empty


class Table:
    """Finds the handler of a request.

    Args:
        routes: Tables of path → method → handler. A path may hold ``{id}``, which the handler gets as
            ``request.parameter``. Where GET is served, HEAD is: the server leaves the body out.
    """

    def __init__(self, routes: Iterable[Routes]) -> None:
        self._exact: dict[str, Methods] = {}
        self._open: list[tuple[str, str, Methods]] = []
        for table in routes:
            for path, methods in table.items():
                before, place, after = path.partition(PLACE)
                if place:
                    self._open.append((before, after, methods))
                else:
                    self._exact[path] = methods

    def respond(self, request: Request) -> answers.Answer:
        """The answer to one request.

        Raises:
            RequestError: the request is refused.
            PeerGoneError: there is nobody to answer.
        """
        methods = self._find(request)
        method = request.head.method
        handler = methods.get("GET" if method == "HEAD" else method)
        if handler is None:
            allowed = sorted(methods)
            text = f"this route takes {' and '.join(allowed)} only"
            answer = answers.build_error(RequestError(405, wire.METHOD_NOT_ALLOWED, text))
            allowed += ["HEAD"] if "GET" in methods else []
            answer.headers += (("Allow", ", ".join(allowed)),)
            return answer
        return handler(request)

    def _find(self, request: Request) -> Methods:
        path = request.head.path
        methods = self._exact.get(path)
        if methods is not None:
            return methods
        for before, after, methods in self._open:
            segment = path[len(before) : len(path) - len(after)]
            if path.startswith(before) and path.endswith(after) and segment and "/" not in segment:
                request.parameter = segment
                return methods
        raise RequestError(404, wire.NO_SUCH_ROUTE, f"no such route: {path}")
