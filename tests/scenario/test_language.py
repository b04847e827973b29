"""The language of the stories: the meaning of lines, and errors of invalid lines."""

from __future__ import annotations

import pytest

from scenario.language import COMMANDS, StoryError, numbers, pairs, parse
from scenario.stage import _METHODS
from scenario.transactions.steps import TRANSACTION_METHODS

STORY = """
# A leader dies,
# and another one leads.

setting broker.session.timeout.ms = 2000
3 brokers 1 controllers
topic t replicas 1 2 3 min-isr 2
produce t 10  # all of them acknowledged
kill leader of t
expect leader of t in 2 3
expect isr of t = 2 3
"""


def test_a_story_has_a_description_and_steps() -> None:
    story = parse("death.txt", STORY)
    assert story.about == "A leader dies, and another one leads."
    assert [step.command for step in story.steps] == [
        "setting {word} = {rest}",
        "{n} brokers {m_n} controllers",
        "topic {topic} replicas {ids} min-isr {n}",
        "produce {topic} {n}",
        "kill {node}",
        "expect leader of {topic} in {ids}",
        "expect isr of {topic} = {ids}",
    ]
    produce, kill, leader, isr = story.steps[3:]
    assert produce.arguments == {"topic": "t", "n": "10"}
    assert produce.line == 8
    assert kill.arguments == {"node": "leader of t"}
    assert leader.arguments == {"topic": "t", "ids": "2 3"}
    assert isr.arguments == {"topic": "t", "ids": "2 3"}


def test_the_error_of_an_unknown_command_suggests_similar_commands() -> None:
    with pytest.raises(StoryError) as error:
        parse("death.txt", "# A story.\n3 brokers\nexpect the leader of t = 2")
    assert "death.txt:3: unknown command: expect the leader of t = 2" in str(error.value)
    assert "expect leader of {topic} = {ids}" in str(error.value)


@pytest.mark.parametrize(
    "line", ["kill t", "produce t many", "topic t replicas one", "cut x from y"]
)
def test_a_placeholder_accepts_only_valid_text(line: str) -> None:
    with pytest.raises(StoryError):
        parse("x.txt", f"# A story.\n3 brokers\n{line}")


def test_a_story_needs_a_description_and_a_broker_start() -> None:
    with pytest.raises(StoryError, match="begins with its description"):
        parse("x.txt", "3 brokers")
    with pytest.raises(StoryError, match="the story starts no brokers"):
        parse("x.txt", "# A story.\nheal")


def test_every_command_has_a_method_and_a_meaning() -> None:
    assert {*_METHODS, *TRANSACTION_METHODS} == set(COMMANDS)
    assert not _METHODS.keys() & TRANSACTION_METHODS.keys()
    assert all(COMMANDS.values())


def test_placeholders_are_parsed() -> None:
    assert numbers("1 2 3") == [1, 2, 3]
    assert numbers("none") == []
    assert pairs("a.b=1 c=d=e") == {"a.b": "1", "c": "d=e"}
