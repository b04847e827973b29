"""Random expressions and pushed metrics, processed without a broker."""

from __future__ import annotations

import random

from barnabas.record.compression import decompress
from barnabas.record.record import CorruptBatchError
from barnabas.server.metrics.client_telemetry import LoggingReceiver
from barnabas.server.metrics.otlp import OtlpError
from barnabas.settings.pattern import CHARACTERS_MAX, Pattern, PatternError
from fuzz.patterns import random_pattern
from fuzz.pushed_metrics import random_push
from steps import Loop, counted

COUNT = 1_000
PUSHES = 100
LIMIT = 1 << 20


def test_random_patterns_are_compiled_or_refused() -> None:
    rng = random.Random(1)
    compiled = refused = 0
    for _ in range(COUNT):
        text = random_pattern(rng)
        try:
            pattern = Pattern(text)
        except PatternError:
            refused += 1
            continue
        pattern.matches("a" * 249)
        # A longer pattern is a text that matches itself only.
        assert len(text) <= CHARACTERS_MAX or pattern.matches(text)
        compiled += 1
    assert min(compiled, refused) > COUNT // 10


def test_random_metrics_are_logged_in_steps_or_refused() -> None:
    rng = random.Random(1)
    loop = Loop()
    receiver = LoggingReceiver(loop)
    steps, refused = [], 0
    for _ in range(PUSHES):
        loop.now_ms += 20_000
        code, packed = random_push(rng)
        try:
            metrics = decompress(code, packed, LIMIT)
            steps.append(counted(receiver.receive({}, False, bytes(metrics)))[1])
        except (CorruptBatchError, OtlpError):
            refused += 1
    assert refused > PUSHES // 10
    assert max(steps) > 10
