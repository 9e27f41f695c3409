"""A device's side of a service: reads the policy, acts, and sends what came of it, once.

    device = Client("http://127.0.0.1:8321", token)   # her own, for a receipt
    policy = device.policy()                      # before each episode: it takes a place for it
    action = policy.act(step, "idle", rng)        # see tacit.published
    device.send("", states, actions, rewards)     # {"status": "waiting", "accepted": True, ...}

Of a mixed policy ``policy`` draws the component that the episode follows, and ``send`` says which.
Under local DP ``send`` makes the report here, with exact noise, and only that leaves the device.
An answer that does not come is asked for again under the same event id: nobody is counted twice.
"""

from __future__ import annotations

import http.client
import json
import secrets
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from numpy.random import default_rng

from tacit import published
from tacit.privacy.errors import InvalidArgument, TacitError

_RETRIED = (408, 429, 503)
_UNASKED = "not sent: there was no place for an episode when the policy was read"


class Refused(TacitError):
    """The service answered that it does not do this; ``code`` and ``content`` say what it said."""

    def __init__(self, code: int, content: Mapping[str, Any]) -> None:
        super().__init__(f"{code}: {content.get('detail') or content.get('words') or ''}")
        self.code, self.content = code, content


class Client:
    """A connection to a service, of one token.

    Args:
        address: of the service, http:// or https://.
        token: that the service gave.
        tries: how often a request is sent, where no answer comes or it is behind.
        context: of TLS, where the machine's own authorities are not enough.
        keys: public keys, of which one must have signed every policy.
        fallback: policy that serves, without a place, when no policy comes that can be trusted.
    """

    def __init__(
        self,
        address: str,
        token: str,
        *,
        tries: int = 8,
        context: ssl.SSLContext | None = None,
        keys: Sequence[str] = (),
        fallback: Any = None,
    ) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidArgument(f"address={address!r} must be http://host:port or https://...")
        self._place = parts.hostname, parts.port
        self._tls, self._context, self._tries = parts.scheme == "https", context, tries
        self._keys, self._fallback = [*keys], fallback
        self._headers = {"Authorization": f"Bearer {token}"}
        self._connection: http.client.HTTPConnection | None = None
        self._read: Any = None  # and for one episode:
        self._policy: Any = None
        self._etag, self._task = "", dict[str, Any]()
        self._ticket, self._spent, self._until = "", True, 0.0
        self._made = "", list[float]()  # event of the last report, and the report

    def policy(self) -> Any:
        """The policy that serves now, as :mod:`tacit.published` reads it.

        Call it once per episode: it takes a place in a block for what is sent next, and a component
        of a mixed policy is drawn anew each time. An unused place is kept, while it is fresh.
        """
        try:
            self._policy = self._served()
        except (TacitError, ValueError):
            if self._fallback is None:
                raise
            self._ticket, self._spent, self._policy = "", True, self._fallback
        return self._policy

    def _served(self) -> Any:
        wanted = self._spent or time.monotonic() > self._until
        address = f"/v1/policy?place={int(wanted)}"
        code, headers, body = self.request("GET", address, {"If-None-Match": self._etag})
        if code == 200:
            if self._keys:
                published.signer(body, self._keys)
            self._read = published.load(body)
            self._etag = headers["ETag"]
        elif code != 304:
            raise Refused(code, _content(body))
        if code == 200 or wanted:
            self._ticket = headers.get("Tacit-Ticket", "")
            self._spent = not self._ticket
            # Of an old ticket too little of the window is left for another episode.
            self._until = time.monotonic() + float(headers["Tacit-Window"]) / 2.0
        read = self._read
        mixed = isinstance(read, published.PublishedMixed)
        return read.drawn(default_rng()) if mixed else read

    def task(self) -> dict[str, Any]:
        """Schema of the service: sizes, labels, the guarantee, the statistic that is reported."""
        self._task = self._task or self.get("/v1/task")
        return self._task

    def send(
        self,
        user: str,
        states: Sequence[Any],
        actions: Sequence[int | str],
        rewards: Sequence[float | None],
        event: str = "",
        propensities: Sequence[float] | None = None,
    ) -> dict[str, Any]:
        """An episode under the policy that was read last; the service's receipt.

        Args:
            user: Her id, of which the service keeps a keyed hash; "" where the token says it.
            states: One per step.
            actions: One per step.
            rewards: One per step.
            event: Id of the episode: give one if it may be sent again by another process.
            propensities: Of a trial: the chance of each action that was taken.
        """
        if self._policy is None:
            raise InvalidArgument("read the policy first: an episode says which it followed")
        component = getattr(self._policy, "component", None)
        if not self._ticket:
            return {"status": "unasked", "accepted": False, "words": _UNASKED}
        body: dict[str, Any] = {"ticket": self._ticket} | ({"user": user} if user else {})
        body["event"] = event or secrets.token_hex(16)
        self._spent = True
        if self.task()["model"] == "local":
            # What is reported depends on the version.
            self._task = self.get(f"/v1/task?version={self._policy.version}")
            if self._made[0] != body["event"]:  # sent again, it has the same noise
                report = self._report(states, actions, rewards, component)
                self._made = body["event"], report
            return self.post("/v1/reports", body | {"report": self._made[1]})
        raw = {"states": [*states], "actions": [*actions], "rewards": [*rewards]}
        more: dict[str, Any] = {} if component is None else {"component": component}
        more |= {} if propensities is None else {"propensities": [*propensities]}
        return self.post("/v1/episodes", body | raw | more)

    def decide(self, event: str, **values: Any) -> dict[str, Any]:
        """An action under the policy that was read last, whose reward comes later; the receipt.

        Values are ``step``, ``state``, ``action``, perhaps its ``probability``; ``user`` as ever.
        """
        if not self._ticket:
            return {"status": "unasked", "accepted": False, "words": _UNASKED}
        self._spent = True
        if (component := getattr(self._policy, "component", None)) is not None:
            values["component"] = component
        values |= {"event": event, "ticket": self._ticket}
        return self.post("/v1/decisions", values)

    def outcome(self, event: str, **values: Any) -> dict[str, Any]:
        """The ``reward`` of a ``step``, whenever it is known, perhaps its ``next_state``."""
        return self.post("/v1/outcomes", {"event": event} | values)

    def _report(
        self, states: Any, actions: Any, rewards: Any, component: int | None
    ) -> list[float]:
        """The noisy vector, made here; all that leaves is this."""
        import numpy as np

        from tacit.data.episodes import Episodes
        from tacit.privacy.local import report
        from tacit.privacy.models import LocalDP
        from tacit.tabular.visits import VisitCounts

        asked = self._task["report"]
        if asked["statistic"] != "VisitCounts":
            raise InvalidArgument(f"this client does not report {asked['statistic']}")
        fields = dict(asked["fields"])
        if fields["policy"] is not None:
            fields["policy"] = np.array(fields["policy"])
        named = {"states": self._task["states"], "actions": self._task["actions"]}
        coded = {
            name: [named[name].index(x) if isinstance(x, str) else x for x in values]
            for name, values in (("states", states), ("actions", actions))
        }
        version = [self._policy.version]
        drawn = None if component is None else [component]
        rows = Episodes([coded["states"]], [coded["actions"]], [rewards], version, components=drawn)
        budget = {key: asked[key] for key in ("epsilon", "delta", "mechanism", "episodes_per_user")}
        model = LocalDP(**budget)
        return [*map(float, report(VisitCounts(**fields), rows.block(), model))]

    # Requests.

    def get(self, path: str) -> dict[str, Any]:
        """An answer as JSON; anything but 200 is :class:`Refused`."""
        code, _, body = self.request("GET", path)
        if code != 200:
            raise Refused(code, _content(body))
        return _content(body)

    def post(self, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """An answer as JSON; a receipt whatever it says, and the rest as :class:`Refused`."""
        code, _, body = self.request("POST", path, {}, json.dumps(content).encode())
        found = _content(body)
        if code not in (200, 202) and "status" not in found:
            raise Refused(code, found)
        return found

    def request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Response to a request, which is repeated as often as was declared.

        Args:
            method: Of HTTP.
            path: Of the resource.
            headers: Besides the token.
            body: JSON bytes, if any.
        """
        sent = self._headers | {k: v for k, v in (headers or {}).items() if v}
        if body:
            sent["Content-Type"] = "application/json"
        pause, last = 0.05, None
        for _ in range(self._tries):
            try:
                connection = self._connection or self._connect()
                connection.request(method, path, body or None, sent)
                response = connection.getresponse()
                found = response.status, response.headers, response.read()
                if found[0] not in _RETRIED:
                    return found
                last = found
            except (OSError, http.client.HTTPException):
                self.close()
            time.sleep(pause)
            pause = min(2.0 * pause, 2.0)
        if last is None:
            raise TacitError(f"no answer from {self._place[0]} in {self._tries} tries")
        return last

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._place
        made = http.client.HTTPConnection(host, port, timeout=30.0)
        if self._tls:
            made = http.client.HTTPSConnection(host, port, timeout=30.0, context=self._context)
        self._connection = made
        return made

    def close(self) -> None:
        """Closes the connection; the next request makes one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _content(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
