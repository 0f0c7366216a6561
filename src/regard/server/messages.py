"""What may be asked of the explorer: the shape of each request's body, and how a body is read against it.

The shapes are all that a route has to say of its body. What does not fit is refused with the field, its value and
what is taken instead.
"""

import re
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import msgspec
from msgspec import Meta, Struct

from regard.server.refusing import RequestError

LONGEST = 100_000
"""Characters of an input, at most."""
MOST = 200
"""Interventions at once, and heads of one, at most."""
FARTHEST = 2**31 - 1
"""The largest number of a head or a step that is looked for."""
SHOWN = 40
"""Characters of a value in an error, at most."""

FIELD = re.compile(r" - at `\$?((?:\.\w+|\[\d+\])*)`")
"""Where msgspec found what does not fit: `.interventions[0].to`."""
UNKNOWN = re.compile(r"unknown field `(.*?)`(?: - at|$)", re.DOTALL)
MISSING = re.compile(r"missing required field `(\w+)`")
PART = re.compile(r"\.(\w+)|\[(\d+)\]")

Text = Annotated[str, Meta(max_length=LONGEST)]
Index = Annotated[int, Meta(ge=0, le=FARTHEST)]
Heads = Annotated[list[Index], Meta(max_length=MOST)]


# What a field may be, and what is said of it where it is something else.
LayerName = Annotated[str, Meta(description="the name of a layer")]
SomeHeads = Annotated[Heads | None, Meta(description=f"a list of at most {MOST} heads, from 0")]
Share = Annotated[float, Meta(ge=0, le=1)]
Weight = Annotated[Literal["off", "uniform"] | Share, Meta(description="off, uniform, or a weight from 0 to 1")]
Step = Annotated[Index | None, Meta(description="a step, from 0")]
Input = Annotated[Text | None, Meta(description=f"a text of at most {LONGEST:,} characters")]
Seed = Annotated[int, Meta(ge=0, le=2**32 - 1, description="a whole number from 0 to 4294967295")]
Number = Annotated[Index, Meta(description="a number, from 0")]
Beam = Annotated[Annotated[int, Meta(ge=1, le=20)] | None, Meta(description="a whole number from 1 to 20")]
Flag = Annotated[bool, Meta(description="true or false")]
Temperature = Annotated[float, Meta(ge=0.01, le=100, description="a number from 0.01 to 100")]


Name = Annotated[str, Meta(min_length=1, max_length=200, description="a name of 1 to 200 characters")]
Base64 = Annotated[bytes, Meta(description="the file in base64")]


class Intervention(Struct, frozen=True, forbid_unknown_fields=True):
    """An intervention: what happens to the weights of some heads, as in `regard.intervene`."""

    layer: LayerName
    heads: SomeHeads = None
    to: Weight = "off"
    query: Step = None
    key: Step = None


Changes = Annotated[
    list[Intervention], Meta(max_length=MOST, description=f"a list of at most {MOST} interventions")
]


class PlaybackRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What `/api/playback` is asked; an input that is left out is drawn by the seed."""

    input: Input = None
    seed: Seed = 0


class AttendRequest(PlaybackRequest, frozen=True):
    """What `/api/attend` is asked."""

    interventions: Changes = []


class ExplainRequest(AttendRequest, frozen=True, kw_only=True):
    """What `/api/explain` is asked: which weight, and what the scores of its head are divided by."""

    layer: LayerName
    head: Number = 0
    output: Number = 0
    key: Step = None
    temperature: Temperature = 1.0


class SamplesRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What `/api/samples` is asked: of which head, and which key it is to look at; None: any."""

    layer: LayerName
    head: Number = 0
    token: Input = None
    wrong_first: Flag = False


class RowRequest(AttendRequest, frozen=True, kw_only=True):
    """What `/api/row` is asked: which row of a long input."""

    layer: LayerName
    head: Number = 0
    step: Number = 0


class PictureRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What `/api/picture` is given: a PNG or JPEG file, and its name."""

    name: Name
    content: Base64


class TreeRequest(AttendRequest, frozen=True):
    """What `/api/tree` is asked: how many prefixes are kept side by side; None: as many as is usual."""

    beam: Beam = None


Shape = TypeVar("Shape", bound=Struct)


def read_request(body: bytes, shape: type[Shape]) -> Shape:
    """Return a body as what it should be; raises `RequestError`, 400 for what is no JSON object, 422 for what is
    one and does not fit."""
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.ValidationError as error:
        raise _misfit(body, shape, str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(400, "body is not JSON: send an object such as {}") from error


def _misfit(body: bytes, shape: type[Struct], said: str) -> RequestError:
    """Say in our words what msgspec has found."""
    found = FIELD.search(said)
    path = found[1] if found else ""
    here = path.lstrip(".") or "the request"
    names = [part[0] for part in PART.findall(path) if part[0]]
    inner = Intervention if names[:1] == ["interventions"] else shape
    if unknown := UNKNOWN.search(said):
        return RequestError(
            422, f"{unknown[1][:SHOWN]!r} is unknown in {here}: choose {', '.join(inner.__struct_fields__)}"
        )
    if missing := MISSING.search(said):
        return RequestError(422, f"{missing[1]} is missing in {here}: give {_wanted(inner, missing[1])}")
    if not path:
        return RequestError(400, "body is not a JSON object: send one such as {}")
    if inner is Intervention and len(names) == 1 and path.endswith("]"):
        return RequestError(422, f"{here} {_value(body, path)}is no intervention: give an object with a layer")
    owner = shape if len(names) == 1 else inner
    return RequestError(422, f"{here} {_value(body, path)}does not fit: give {_wanted(owner, names[-1])}")


def _wanted(shape: type[Struct], field: str) -> str:
    """Return what a field's own words say of it."""
    meta: Meta = get_type_hints(shape, include_extras=True)[field].__metadata__[0]
    return str(meta.description)


def _value(body: bytes, path: str) -> str:
    """Return what stands at `path` in a body, short, and a blank; nothing where it cannot be shown."""
    try:
        found: Any = msgspec.json.decode(body)
        for name, index in PART.findall(path):
            found = found[name] if name else found[int(index)]
        shown = repr(found)
    except (msgspec.DecodeError, ValueError, RecursionError, LookupError, TypeError):
        return ""
    return f"{shown if len(shown) <= SHOWN else shown[:SHOWN] + '...'} "
