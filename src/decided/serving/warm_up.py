"""What a model is asked first, before anybody waits for it: a question of each type."""

from decided.contract.types import Choice, Noul, Question, Score

WARM_UP: tuple[Question, ...] = (
    Choice({"delivery": "a late or lost parcel", "billing": None}, "What is this about?"),
    Score(["calm", "annoyed", "angry"], "How upset is the writer?"),
    Noul("Is this a complaint?"),
)
