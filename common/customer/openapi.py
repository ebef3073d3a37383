"""The OpenAPI 3.1 document, made from the table of operations."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from common.customer.api import Nothing, Operation
from common.shapes import Shape

_REF = "#/components/schemas/"
PATH_SCHEMAS = {
    "id": {"type": "string", "format": "uuid"},
    "kind": {"type": "string", "enum": ["soul", "bible"]},
}
ABOUT = """\
What a customer may see, correct and delete of what the advisor remembers of them.

Lists come in pages, newest first: give `next` back as `cursor`. A page stays stable while rows are added.
What can be edited carries its version in `ETag`. An edit with that tag in `If-Match` is refused with 412 when somebody
else edited meanwhile; an edit without `If-Match` applies to whatever is there.
What does not exist, what belongs to someone else and what is no id at all are the same 404.
Errors are problem documents (RFC 9457) with a stable `type`."""


class Problem(Shape):
    """Why a request was refused (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


def document(operations: list[Operation], *, version: str = "1") -> dict[str, Any]:
    """The document of these operations."""
    models: list[Any] = [(Problem, "serialization")]
    for operation in operations:
        models += [(operation.answer, "serialization")] if operation.answer else []
        models += [(operation.body, "validation")] if operation.body else []
    refs, schemas = models_json_schema(models, ref_template=_REF + "{model}")
    paths: dict[str, Any] = {}
    for operation in operations:
        path = operation.path.replace("<", "{").replace(">", "}")
        described = _described(operation, refs)
        if links := _links(operation, operations):
            described["responses"][str(operation.status)]["links"] = links
        paths.setdefault(path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "MemberIntel", "version": version, "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"customer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
        },
        "security": [{"customer": []}],
    }


def _described(operation: Operation, refs: Any) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.about,
        "parameters": _parameters(operation),
        "responses": _responses(operation, refs),
    }
    if operation.body:
        content = {"application/json": {"schema": refs[operation.body, "validation"]}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    found = [
        {"name": name, "in": "path", "required": True, "schema": PATH_SCHEMAS[name]}
        for name in operation.params
    ]
    query = operation.query if operation.query is not Nothing else None
    schema = query.model_json_schema() if query else {"properties": {}}
    for name, about in schema["properties"].items():
        described = {
            key: value for key, value in about.items() if key not in ("title", "description", "default")
        }
        found.append(
            {
                "name": name,
                "in": "query",
                "description": about.get("description", ""),
                "schema": _not_null(described),
            }
        )
    if operation.edits:
        about = "The ETag that the edit builds on. Without it the edit applies to whatever is there."
        found.append({"name": "If-Match", "in": "header", "description": about, "schema": {"type": "string"}})
    return found


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query parameter is given or left out; null cannot be written."""
    options = [one for one in schema.get("anyOf", []) if one.get("type") != "null"]
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**options[0], **rest} if len(options) == 1 else schema


def _responses(operation: Operation, refs: Any) -> dict[str, Any]:
    done: dict[str, Any] = {"description": "Done"}
    if operation.answer:
        done["content"] = {"application/json": {"schema": refs[operation.answer, "serialization"]}}
    if operation.versioned:
        done["headers"] = {"ETag": {"description": "The version", "schema": {"type": "string"}}}
    errors = {"401": "No valid token", "403": "Not for this account", "503": "Not available right now"}
    if operation.params:
        errors["404"] = "Not there, or not yours"
    if operation.body:
        errors |= {"400": "No JSON object", "413": "Too large", "415": "Not JSON"}
    if operation.body or operation.query is not Nothing:
        errors["422"] = "A field is missing or wrong"
    if operation.edits:
        errors["412"] = "Changed since it was read"
    problem = {"application/problem+json": {"schema": refs[Problem, "serialization"]}}
    return {
        str(operation.status): done,
        **{status: {"description": text, "content": problem} for status, text in sorted(errors.items())},
        "default": {"description": "Another problem", "content": problem},
    }


def _links(operation: Operation, operations: list[Operation]) -> dict[str, Any]:
    """What can be done with the things in an answer: a list and a creation lead to the operations on one thing."""
    found = dict(operation.links)
    listed = operation.method == "GET" and any(o.path == f"{operation.path}/<id>" for o in operations)
    if listed or operation.status == 201:
        of_one = [o.name for o in operations if f"{o.path}/".startswith(f"{operation.path}/<id>/")]
        found |= dict.fromkeys(of_one, "/items/0/id" if listed else "/id")
    return {
        name: {"operationId": name, "parameters": {"id": f"$response.body#{pointer}"}}
        for name, pointer in found.items()
    }
