"""The OpenAPI document, made from the wire types, so that it cannot say anything else than they do."""

from functools import cache
from typing import Any

import msgspec

from decided.contract.types import (
    BatchLine,
    BatchLineProblem,
    BatchRequest,
    BatchResponse,
    Health,
    ModelList,
    OutcomesReceipt,
    OutcomesRequest,
    Problem,
    Ready,
    SingleRequest,
    SingleResponse,
    encode,
)
from decided.version import VERSION

ERRORS = {
    400: "The body is not valid JSON, or not a JSON object.",
    401: "Missing or wrong API key.",
    404: "No such path, or a request that is not, or no longer, known.",
    413: "The body is larger than the body limit.",
    415: "A content encoding or a media type that is not read.",
    422: "Read and refused: `detail` names the question and the problem.",
    500: "Inference failed.",
    503: "At capacity (then with `Retry-After: 1`), or the model cannot answer.",
    504: "No answer within the time limit.",
}
EXPLAIN_HEADER = "`1` says the same as the field `explain`; anything else is ignored."
_POST_ERRORS = tuple(status for status in ERRORS if status != 404)


@cache
def document(asks_for_key: bool, takes_outcomes: bool) -> bytes:
    """OpenAPI 3.1, as JSON, for a server that is run like this."""
    types = (
        SingleRequest, SingleResponse, BatchRequest, BatchResponse, BatchLine, BatchLineProblem, ModelList, Health,
        Ready, Problem, OutcomesRequest, OutcomesReceipt,
    )  # fmt: skip
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    of: dict[type, dict[str, Any]] = dict(zip(types, schemas, strict=True))
    key: list[dict[str, list[str]]] = [{"key": []}] if asks_for_key else []

    def post(summary: str, request: type, response: type, said: str, *more: int) -> dict[str, Any]:
        body = {"required": True, "content": {"application/json": {"schema": of[request]}}}
        replies = _replies(of[response], said, (*_POST_ERRORS, *more))
        return {"post": {"summary": summary, "security": key, "requestBody": body, "responses": replies}}

    def get(summary: str, schema: dict[str, Any], *errors: int) -> dict[str, Any]:
        return {"get": {"summary": summary, "responses": _replies(schema, summary, errors)}}

    header = {"name": "x-explain", "in": "header", "schema": {}, "description": EXPLAIN_HEADER}
    single = post("Answer questions about one state.", SingleRequest, SingleResponse, "The answers.")
    batch = post("Answer questions about many states.", BatchRequest, BatchResponse, "The answers.")
    single["post"]["parameters"] = batch["post"]["parameters"] = [header]
    batch["post"]["responses"]["200"]["description"] += " As x-ndjson: a line per state, as each is decided."
    batch["post"]["responses"]["200"]["content"]["application/x-ndjson"] = {
        "schema": {"anyOf": [of[BatchLine], of[BatchLineProblem]]}
    }
    outcomes = post("Tell what turned out to be right.", OutcomesRequest, OutcomesReceipt, "Taken.", 404)
    itself = get("This document.", {"type": "object"}, 401)
    itself["get"]["security"] = key
    text = {
        "200": {"description": "Prometheus text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    }
    return encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "decided", "version": VERSION, "description": "Typed decisions over HTTP."},
            "paths": {
                "/v1/systemone": single,
                "/v1/systemone/batch": batch,
                **({"/v1/outcomes": outcomes} if takes_outcomes else {}),
                "/v1/models": get("The model that is served.", of[ModelList]),
                "/health": get("What runs, and how busy it is.", of[Health]),
                "/ready": get("Whether a request would be answered now.", of[Ready], 503),
                "/metrics": {"get": {"summary": "Metrics.", "responses": text}},
                "/openapi.json": itself,
            },
            "components": {
                "schemas": components,
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _replies(schema: dict[str, Any], description: str, errors: tuple[int, ...]) -> dict[str, Any]:
    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    replies: dict[str, Any] = {"200": {"description": description, "content": {"application/json": {"schema": schema}}}}
    return replies | {str(status): {"description": ERRORS[status], "content": problem} for status in errors}
