"""The examinations of `barnabas why` and `barnabas doctor`.

They measure for seconds, so a button starts them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.routing import Route

from barnabas.cli.doctor.commands import examine_addresses
from barnabas.cli.doctor.diagnosis import Diagnosis
from barnabas.cli.why.commands import WHY_DEFAULTS, Question, examine
from barnabas.cli.why.gather import gather_metrics
from barnabas.cli.why.group_reasons import NO_SUCH_GROUP
from barnabas.console.console import console_of
from barnabas.console.forms import query_fields
from barnabas.console.navigation import Entry

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.cli.doctor.diagnosis import Finding
    from barnabas.cli.why.reasons import Reason
    from barnabas.client.facade import Client

_MEASURED_S = 1.5
_WHY_LIMIT_MS = 15_000
_LATE = (
    f"the brokers did not answer all requests within {_WHY_LIMIT_MS // 1000} s; ask about one "
    f"topic or group"
)
_SUBJECTS_MAX = 200
# The order of the findings on the page.
_VERDICTS = ("wrong", "note", "ok")


async def show_why(request: Request) -> Response:
    """Explain why something waits."""
    console, query = console_of(request), query_fields(request)
    answers = None
    if query.has("ask"):
        kind = query.stripped("kind")
        question = Question(
            query.stripped("target") or None, is_group=kind == "group", is_topic=kind == "topic"
        )
        metrics = console.settings.metrics

        def explain(client: Client) -> list[tuple[str, list[Reason]]]:
            late = "the brokers did not answer all requests in time"
            return examine(client, question, _MEASURED_S, gather_metrics(metrics), late)

        async with console.examining:
            try:
                answers = await console.cluster.call_once(explain, WHY_DEFAULTS, _WHY_LIMIT_MS)
            except TimeoutError:
                raise HTTPException(504, _LATE) from None
        if _names_nothing(answers):
            kinds = "group" if question.is_group else "topic or group"
            raise HTTPException(404, f"This cluster has no {kinds} {question.target}.")
    return console.page(
        request,
        "why.html",
        answers=None if answers is None else answers[:_SUBJECTS_MAX],
        left_out=0 if answers is None else max(0, len(answers) - _SUBJECTS_MAX),
        target=query.stripped("target"),
        kind=query.stripped("kind"),
    )


def _names_nothing(answers: list[tuple[str, list[Reason]]]) -> bool:
    """Return whether the only answer is that there is no group of that name."""
    kinds = [reason.kind for _, reasons in answers for reason in reasons]
    return kinds == [NO_SUCH_GROUP]


async def show_doctor(request: Request) -> Response:
    """Show problems of the cluster, and their remedies."""
    console, query = console_of(request), query_fields(request)
    diagnosis = None
    if query.has("ask"):
        cluster = console.cluster

        def run() -> Diagnosis:
            made = Diagnosis()
            examine_addresses(cluster.bootstrap, cluster.config, made)
            return made

        async with console.examining:
            diagnosis = await asyncio.to_thread(run)
    findings = [] if diagnosis is None else sorted(diagnosis.findings, key=_by_harm)
    return console.page(request, "doctor.html", diagnosis=diagnosis, findings=findings)


def _by_harm(finding: Finding) -> int:
    return _VERDICTS.index(finding.verdict)


NAVIGATION = [
    Entry("Doctor", "Doctor", "/doctor"),
    Entry("Doctor", "Why", "/why"),
]
ROUTES = [
    Route("/why", show_why),
    Route("/doctor", show_doctor),
]
