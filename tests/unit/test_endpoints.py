"""The routes of a function."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from flask import Request
from werkzeug.routing import Map
from werkzeug.test import EnvironBuilder

from common import http
from common.http import Endpoints


def test_the_first_requests_at_once_compile_the_routes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    start = threading.Barrier(16)

    def counted(rules: Any, **options: Any) -> Map:
        made.append(rules)
        return Map(rules, **options)

    monkeypatch.setattr(http, "Map", counted)
    endpoints = Endpoints()
    for n in range(40):
        endpoints.route("GET", f"/things/{n}/<name>", gate="public")(
            lambda call: {"name": call.params["name"]}
        )

    def ask(n: int) -> str:
        request = Request(EnvironBuilder(path=f"/things/{n}/x").get_environ())
        start.wait()
        return str(endpoints.answer(request).get_json()["name"])

    with ThreadPoolExecutor(16) as threads:
        assert set(threads.map(ask, range(16))) == {"x"}
    assert len(made) == 1
