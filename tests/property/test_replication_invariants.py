"""The invariants of a leader hold for all actions of followers, the controller and clients."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.isr import AlterPartitionResult
from unit.replication.replica_set import LEADER, ReplicaSet

FOLLOWERS = st.sampled_from([2, 3])

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), st.sampled_from([0, 1, -1])),
        st.tuples(st.just("fetch"), FOLLOWERS, st.integers(0, 12)),
        st.tuples(st.just("consume"), st.integers(0, 12)),
        st.tuples(st.just("answer"), st.booleans()),
        st.tuples(st.just("isr"), st.sampled_from([(1,), (1, 2), (1, 3), (1, 2, 3)])),
        st.tuples(st.just("epoch")),
        st.tuples(st.just("wait"), st.sampled_from([1, 200, 20_000])),
    ),
    max_size=30,
)


class Leader:
    """Drives a leader and checks its invariants."""

    def __init__(self) -> None:
        self.replicas = ReplicaSet((1, 2, 3), min_insync_replicas=2)
        self.replicas.manager.start()
        self.asked = 0
        self.high_watermark = 0

    def step(self, kind: str, *values: object) -> None:
        replicas = self.replicas
        match kind, values:
            case "produce", (acks,):
                self.asked += 1
                replicas.produce(b"x", acks=acks, timeout_ms=100)
            case "fetch", (follower, offset):
                replicas.follow(follower, min(offset, replicas.log.log_end_offset))
            case "consume", (offset,):
                replicas.consume(offset, max_wait_ms=50)
            case "answer", (accepted,):
                self.answer(accepted)
            case "isr", (isr,):
                replicas.change(isr=list(isr))
            case "epoch", ():
                replicas.change(leader=LEADER)
            case "wait", (duration_ms,):
                replicas.world.run_for(duration_ms)

    def answer(self, accepted: bool) -> None:
        if not self.replicas.sender.sent:
            return
        proposal, on_done = self.replicas.sender.sent.pop()
        if accepted:
            epochs = (proposal.leader_epoch, proposal.broker_ids, proposal.partition_epoch + 1)
            on_done(AlterPartitionResult(ErrorCode.NONE, LEADER, *epochs))
        else:
            on_done(AlterPartitionResult(ErrorCode.INELIGIBLE_REPLICA))

    def check(self) -> None:
        log, partition = self.replicas.log, self.replicas.partition
        assert self.high_watermark <= log.high_watermark, "HighWatermarkMonotonic"
        assert log.log_start_offset <= log.last_stable_offset
        assert log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        assert LEADER in partition.leader.isr_state.isr, "LeaderInIsr"
        assert set(partition.leader.isr_state.maximal_isr) <= set(partition.replicas), "IsrSubset"
        assert set(partition.leader.isr_state.isr) <= set(partition.leader.isr_state.maximal_isr)
        if log.high_watermark > self.high_watermark:
            assert len(partition.leader.isr_state.isr) >= 2, "committed below min ISR"
        self.high_watermark = log.high_watermark
        for results in self.replicas.answers.fetched:
            for _, result in results:
                assert result.high_watermark <= log.high_watermark


@settings(max_examples=60)
@given(STEPS)
def test_a_leader_keeps_its_invariants_and_answers_every_request_once(steps: list) -> None:
    leader = Leader()
    for step in steps:
        leader.step(*step)
        leader.check()
    leader.replicas.world.run_for(200)
    assert len(leader.replicas.answers.produced) == leader.asked, "EveryRequestAnsweredOnce"
    assert not any(leader.replicas.manager.waiting().values())
