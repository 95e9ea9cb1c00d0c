"""The routes of one topic: its settings, and its records with the rights of the viewer.

Records are read on a thread. A key to search for is a header and not a part of the address, so that no proxy logs it;
responses are not stored by browsers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from rotunda.web.facts.records import ShownRecords, records_shown
from rotunda.web.http.access import CHALLENGES, basic_credentials
from rotunda.web.sources import Login, RecordsRejected, RecordsWanted

if TYPE_CHECKING:
    from rotunda.web.sources import Sources

MOST_RECORDS = 200

_JSON = "application/json"
_MOST_OFFSET = 2**63 - 1
_OFF = "status.records.enable is off: this page shows no records\n"
_PLAIN: dict[str, Any] = {"content": {"text/plain": {}}}
_NO_TOPIC: dict[int | str, dict[str, Any]] = {404: {"description": "There is no such topic or partition.", **_PLAIN}}
_NO_RECORDS: dict[int | str, dict[str, Any]] = {
    **_NO_TOPIC,
    401: {"description": "Log in as a user who may read the topic.", **_PLAIN},
    403: {"description": "The user may not read the topic, or the page shows no records.", **_PLAIN},
    503: {"description": "Another viewer reads records, or the broker is unreachable.", **_PLAIN},
}
TopicName = Annotated[str, Path(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]
#: Offsets by partition, as in a response.
_PLACES = r"^([0-9]{1,10}:[0-9]{1,18}(,[0-9]{1,10}:[0-9]{1,18})*)?$"
RecordKey = Annotated[str | None, Header(description="Only records with this key, percent-encoded.")]


class RecordsQuery(BaseModel):
    """The wanted records; `time` is in ms. With `committed` those that consumers with read_committed get."""

    partition: int | None = Field(None, ge=0, le=2**31 - 1)
    offset: int | None = Field(None, ge=0, le=_MOST_OFFSET)
    time: int | None = Field(None, ge=0, le=_MOST_OFFSET)
    older: str = Field("", pattern=_PLACES)
    newer: str = Field("", pattern=_PLACES)
    count: int = Field(50, ge=1, le=MOST_RECORDS)
    committed: bool = True


class TopicSetting(BaseModel):
    """A setting of a topic."""

    name: str
    value: str
    origin: str
    is_default: bool
    doc: str


def create_topic_router(sources: Sources) -> APIRouter:
    """Return the routes over the sources."""
    router = APIRouter(prefix="/topics/{topic}")

    @router.get("/settings.json", response_model=list[TopicSetting], responses=_NO_TOPIC)
    async def settings(topic: TopicName) -> Response:
        """Return the settings of a topic in force."""
        found = sources.topic_settings(topic)
        if found is None:
            return PlainTextResponse("no such topic\n", status_code=404)
        return Response(json.dumps([each._asdict() for each in found]), media_type=_JSON)

    @router.get("/records.json", response_model=ShownRecords, responses=_NO_RECORDS)
    def records(
        request: Request, topic: TopicName, query: Annotated[RecordsQuery, Query()], record_key: RecordKey = None
    ) -> Response:
        """Return records: the newest, from an offset or a time on, or `older` or `newer` than in a response."""
        if sources.records is None:
            return PlainTextResponse(_OFF, status_code=403)
        wanted = RecordsWanted(
            topic=topic,
            partition=query.partition,
            offset=query.offset,
            time_ms=query.time,
            older=_offsets(query.older),
            newer=_offsets(query.newer),
            key=None if record_key is None else unquote_to_bytes(record_key),
            count=query.count,
            read_committed=query.committed,
        )
        try:
            found = sources.records(wanted, _login(request))
        except RecordsRejected as rejection:
            return _rejected(rejection)
        body = json.dumps(records_shown(found), separators=(",", ":"))
        return Response(body, media_type=_JSON, headers={"cache-control": "no-store"})

    return router


def _login(request: Request) -> Login | None:
    name, password = basic_credentials(request.headers.get("authorization", "").encode("latin-1"))
    return Login(name, password) if name and password else None


def _rejected(rejection: RecordsRejected) -> Response:
    response = PlainTextResponse(f"{rejection}\n", status_code=rejection.status)
    if rejection.status == 401:
        response.raw_headers.append(CHALLENGES[0])
    return response


def _offsets(places: str) -> dict[int, int]:
    pairs = (each.split(":") for each in places.split(",") if each)
    return {int(partition): int(offset) for partition, offset in pairs}
