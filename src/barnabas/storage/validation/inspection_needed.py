"""The exception for an append that takes more than one turn of the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.storage.validation.batch_inspection import Inspection


class InspectionNeededError(Exception):
    """The records of an append must be inspected first, which takes more than one turn.

    Attributes:
        inspection: the pending inspection; it holds a copy of the records.
    """

    def __init__(self, inspection: Inspection) -> None:
        super().__init__("the records must be inspected first")
        self.inspection = inspection
