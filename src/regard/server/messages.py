"""Messages of the explorer's HTTP interface: types of request bodies, and error responses.

The fields of a route's body are the parameters of the explorer's method (`make_body_type`). If a body does not
match its type, the error names the field, its value and the expected value.
"""

import json
import re
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import msgspec
from msgspec import Meta, Struct, defstruct
from starlette.responses import Response

MAX_TEXT = 100_000  # characters of an input
MAX_ITEMS = 200  # interventions of a request, and heads of an intervention
MAX_TEXTS = 50  # texts of an examination
MAX_INDEX = 2**31 - 1
SHOWN_VALUE = 40  # characters of a value in an error
MAX_ERROR = 1000  # characters of an error

# Patterns of msgspec's error messages, which have no structured form.
PATH = re.compile(r" - at `\$?((?:\.\w+|\[\d+\])*)`")
UNKNOWN = re.compile(r"unknown field `(.*?)`(?: - at|$)", re.DOTALL)
MISSING = re.compile(r"missing required field `(\w+)`")
STEP = re.compile(r"\.(\w+)|\[(\d+)\]")

# A description completes the sentence "field ... does not fit: give ...".
Index = Annotated[int, Meta(ge=0, le=MAX_INDEX)]
HeadList = Annotated[list[Index], Meta(max_length=MAX_ITEMS)]
Share = Annotated[float, Meta(ge=0, le=1)]
LayerName = Annotated[str, Meta(description="the name of a layer")]
LayerNames = Annotated[
    Annotated[list[str], Meta(max_length=MAX_ITEMS)], Meta(description=f"at most {MAX_ITEMS} names of layers")
]
Heads = Annotated[HeadList | None, Meta(description=f"a list of at most {MAX_ITEMS} heads, from 0")]
Weight = Annotated[Literal["off", "uniform"] | Share, Meta(description="off, uniform, or a weight from 0 to 1")]
Step = Annotated[Index | None, Meta(description="a step, from 0")]
Number = Annotated[Index, Meta(description="a number, from 0")]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Input = Annotated[Text | None, Meta(description=f"a text of at most {MAX_TEXT:,} characters")]
Texts = Annotated[
    Annotated[tuple[Text, ...], Meta(max_length=MAX_TEXTS)],
    Meta(description=f"a list of at most {MAX_TEXTS} texts of at most {MAX_TEXT:,} characters"),
]
Seed = Annotated[int, Meta(ge=0, le=2**32 - 1, description="a whole number from 0 to 4294967295")]
Beam = Annotated[Annotated[int, Meta(ge=1, le=20)] | None, Meta(description="a whole number from 1 to 20")]
Flag = Annotated[bool, Meta(description="true or false")]
Temperature = Annotated[float, Meta(ge=0.01, le=100, description="a number from 0.01 to 100")]
Limit = Annotated[Annotated[int, Meta(ge=1, le=MAX_INDEX)] | None, Meta(description="a whole number from 1")]
Part = Annotated[Annotated[float, Meta(gt=0, le=1)] | None, Meta(description="a number above 0, up to 1")]
Count = Annotated[int, Meta(ge=1, le=100, description="a whole number from 1 to 100")]
DrawSeed = Annotated[Seed | None, Meta(description="a whole number from 0 to 4294967295")]
Name = Annotated[str, Meta(min_length=1, max_length=200, description="a name of 1 to 200 characters")]
Base64 = Annotated[bytes, Meta(description="the file in base64")]


class InterventionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A change of the weights of some heads, as in `regard.intervene`."""

    layer: LayerName
    heads: Heads = None
    to: Weight = "off"
    query: Step = None
    key: Step = None


Interventions = Annotated[
    list[InterventionRequest], Meta(max_length=MAX_ITEMS, description=f"a list of at most {MAX_ITEMS} interventions")
]


class Question(Struct, frozen=True, forbid_unknown_fields=True):
    """An input and interventions; without an input, an input is drawn with the seed."""

    input: Input = None
    seed: Seed = 0
    interventions: Interventions = []


def make_body_type(method: Callable[..., Any]) -> type[Struct] | None:
    """Return the type of a request's body: the fields of the parameter `question`, if there is one, and a field
    for each other parameter of the method. None for a method without parameters, which a GET request calls."""
    hints = get_type_hints(method, include_extras=True)
    parameters = list(signature(method).parameters.values())[1:]  # without `self`
    fields: list[Any] = [
        (item.name, hints[item.name], *([] if item.default is item.empty else [item.default]))
        for item in parameters
        if item.name != "question"
    ]
    if not parameters:
        return None
    bases = (Question,) if "question" in hints else ()
    return defstruct(method.__name__, fields, bases=bases, frozen=True, forbid_unknown_fields=True, kw_only=True)


def call_method(method: Callable[..., Any], explorer: object, body: Struct | None) -> Any:
    """Call a method of the explorer with the fields of a body of its type."""
    names = signature(method).parameters
    fields = {} if body is None else {name: getattr(body, name) for name in names if hasattr(body, name)}
    if isinstance(body, Question) and "question" in names:
        fields["question"] = body
    return method(explorer, **fields)


class RequestError(Exception):
    """A request that is rejected with an HTTP status and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def error_body(message: str) -> bytes:
    """Return the JSON of an error, as one line; lone surrogates are escaped.

    >>> error_body("two\\nlines")
    b'{"error": "two lines"}'
    """
    return json.dumps({"error": " ".join(message.split())[:MAX_ERROR]}).encode()


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(error_body(message), status, headers, "application/json")


Body = TypeVar("Body", bound=Struct)


def read_request(body: bytes, body_type: type[Body]) -> Body:
    """Parse the body of a request.

    Raises `RequestError`, with status 400 if the body is no JSON object, and 422 if it has another type.

    >>> read_request(b'{"input": "ABBA"}', Question)
    Question(input='ABBA', seed=0, interventions=[])
    """
    try:
        return msgspec.json.decode(body, type=body_type)
    except msgspec.ValidationError as error:
        raise _mismatch(body, body_type, str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(400, "body is not JSON: send an object such as {}") from error


def _mismatch(body: bytes, body_type: type[Struct], message: str) -> RequestError:
    """Rephrase a validation error of msgspec."""
    match = PATH.search(message)
    path = match[1] if match else ""
    field = path.lstrip(".") or "the request"
    names = [step[0] for step in STEP.findall(path) if step[0]]
    inner = InterventionRequest if names[:1] == ["interventions"] else body_type
    if unknown := UNKNOWN.search(message):
        fields = ", ".join(inner.__struct_fields__)
        return RequestError(422, f"{unknown[1][:SHOWN_VALUE]!r} is unknown in {field}: choose {fields}")
    if missing := MISSING.search(message):
        return RequestError(422, f"{missing[1]} is missing in {field}: give {_expected(inner, missing[1])}")
    if not path:
        return RequestError(400, "body is not a JSON object: send an object such as {}")
    if inner is InterventionRequest and len(names) == 1 and path.endswith("]"):
        return RequestError(422, f"{field} {_value(body, path)}is not an intervention: give an object with a layer")
    owner = body_type if len(names) == 1 else inner
    return RequestError(422, f"{field} {_value(body, path)}does not fit: give {_expected(owner, names[-1])}")


def _expected(body_type: type[Struct], field: str) -> str:
    meta: Meta = get_type_hints(body_type, include_extras=True)[field].__metadata__[0]
    return str(meta.description)


def _value(body: bytes, path: str) -> str:
    """Return the value at `path` of a body, shortened, and a space; empty if it cannot be displayed."""
    try:
        value: Any = msgspec.json.decode(body)
        for name, index in STEP.findall(path):
            value = value[name] if name else value[int(index)]
        text = repr(value)
    except (msgspec.DecodeError, ValueError, RecursionError, LookupError, TypeError):
        return ""
    return f"{text if len(text) <= SHOWN_VALUE else text[:SHOWN_VALUE] + '...'} "
