"""How an append says that it cannot be done in one turn of the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.storage.batch_inspection import Inspection


class InspectionNeededError(Exception):
    """The records of an append must be looked into first, which takes more than one turn.

    Attributes:
        inspection: the work; it has a copy of the records.
    """

    def __init__(self, inspection: Inspection) -> None:
        super().__init__("the records have to be looked into first")
        self.inspection = inspection
