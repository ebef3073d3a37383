"""The whole table of what a customer can see and do."""

from __future__ import annotations

from common.customer import brain_operations, talk_operations
from common.customer.api import Operations

operations = Operations([*talk_operations.operations.table, *brain_operations.operations.table])
