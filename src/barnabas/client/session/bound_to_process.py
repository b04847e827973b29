"""Objects with connections, which cannot be pickled or copied."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

__all__ = ["BoundToProcess"]


class BoundToProcess:
    """Base of the clients, and of the objects that use their connections."""

    __slots__ = ()

    def __reduce_ex__(self, _protocol: SupportsIndex) -> NoReturn:
        """Refuse to be pickled or copied.

        Spark and multiprocessing pickle the variables that a function uses.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied, because its connections belong "
            "to the process that created it: create it inside the function that another process "
            "runs (for Spark, inside the function of foreachPartition or mapPartitions), and pass "
            "only its configuration"
        )
