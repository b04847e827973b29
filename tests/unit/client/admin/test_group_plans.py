"""Groups of all types are described by the requests of their types."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest

from barnabas.client.admin import group_descriptions
from barnabas.client.admin.group_descriptions import GroupDescription, describe_groups
from barnabas.client.errors import BrokerError, broker_error
from barnabas.protocol.errors import ErrorCode

MISSING = broker_error(ErrorCode.GROUP_ID_NOT_FOUND, "g")
DEAD = GroupDescription("g", "classic", "Dead", "", "", ())


class TypedSender:
    """Returns one result for each kind of request."""

    def __init__(self, **results: object) -> None:
        self._results = {
            group_descriptions.describe_consumer: results.get("consumer", MISSING),
            group_descriptions.describe_classic: results.get("classic", DEAD),
            group_descriptions.describe_streams: results.get("streams", MISSING),
            group_descriptions.describe_share: results.get("share", MISSING),
        }

    def send_to_coordinators(
        self, names: Sequence[str], call: Callable[..., Any], *, once: bool
    ) -> Generator[None, None, dict[str, object]]:
        yield from ()
        return dict.fromkeys(names, self._results[call])


def described(**results: object) -> object:
    sender: Any = TypedSender(**results)
    plan = describe_groups(sender, ["g"], once=True)
    with pytest.raises(StopIteration) as done:
        next(plan)
    return done.value.value["g"]


@pytest.mark.parametrize("kind", ["consumer", "classic", "streams", "share"])
@pytest.mark.parametrize(
    "code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED]
)
def test_a_group_that_a_user_may_not_see_is_not_missing(kind: str, code: ErrorCode) -> None:
    found = described(**{kind: broker_error(code, "g")})
    assert isinstance(found, BrokerError)
    assert found.error_code == code


def test_a_group_that_no_type_has_is_dead() -> None:
    assert described() == DEAD


@pytest.mark.parametrize("kind", ["consumer", "streams", "share"])
def test_a_type_that_the_cluster_does_not_support_has_no_group(kind: str) -> None:
    assert described(**{kind: broker_error(ErrorCode.UNSUPPORTED_VERSION, "g")}) == DEAD
