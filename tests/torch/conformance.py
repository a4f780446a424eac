"""What the tests of all in-process kinds do with a model."""

from decided.contract import Question
from decided.engine import Model


def decide(model: Model, states: list[str], questions: list[Question], together: bool) -> list[list[list[float]]]:
    """Probabilities by state and question, each piece alone or all in one batch."""
    found: list[list[list[float]]] = []
    readings = [model.read(model.prepare(questions), state) for state in states]
    items = [item for reading in readings for item in reading.items]
    answers = iter(model.run(items) if together else [model.run([item])[0] for item in items])
    for reading in readings:
        of_state: list[list[float]] = [[] for _ in questions]
        for item in reading.items:
            for number, weights in zip(item.questions, next(answers), strict=True):
                of_state[number] = list(weights)
        found.append(of_state)
    return found
