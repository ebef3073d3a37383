"""What JSON from outside must look like: the one kind of pydantic model for bodies, answers and arguments."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    """A model whose checks are compiled when it first meets data: an instance meets a few of the fifty, and would start later for all."""

    model_config = ConfigDict(defer_build=True)
