"""A server with profiles: what they change on the wire, and what they leave alone."""

import math
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from decided.errors import InputError
from decided.profiles.profile import Head, Profile, Threshold, read_profile
from decided.profiles.shelf import read_profiles
from tests.profiles.shelf import TOPIC, made, written
from tests.spec.checks import eventually
from tests.support.server import Server, running_server, start

OTHER = {"type": "noul", "instructions": "Is it late?"}
TURNED = {**TOPIC, "criteria": {"bill": "payments", "parcel": None}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("profiles") / "p").parent


@pytest.fixture(scope="module")
def taught(folder: Path) -> Iterator[Server]:
    with running_server("--profiles", str(folder)) as server:
        yield server


def answer(server: Server, state: Any, question: Any = TOPIC) -> Any:
    return server.ask(state, {"q": question}).json["answers"]["q"]


def test_what_was_learnt_decides(taught: Server) -> None:
    """Scale 0: nothing of the model's own opinion is left, only the head and the bias."""
    money, parcel = answer(taught, "my money"), answer(taught, "my box")
    assert (money["choice"], parcel["choice"]) == ("bill", "parcel")
    share = 1 / (1 + math.exp(2 - 8 + 2))
    assert money["probabilities"]["bill"] == pytest.approx(share)
    assert list(money["probabilities"]) == ["parcel", "bill"]
    assert sum(money["probabilities"].values()) == pytest.approx(1)
    assert re.fullmatch(r"topic@[0-9a-f]{6}", money["profile"])
    assert money["decided"] is True
    assert money["set"] == ["parcel", "bill"]  # 0.018 is more than the floor of 0.01


def test_the_order_of_options_is_nobodys_choice(taught: Server) -> None:
    turned = answer(taught, "my money", TURNED)
    assert list(turned["probabilities"]) == ["bill", "parcel"]
    assert turned["choice"] == "bill"


def test_other_questions_are_left_as_they_were(taught: Server) -> None:
    described = {**TOPIC, "criteria": {"parcel": "a box", "bill": "payments"}}
    with running_server() as plain:
        for question in (OTHER, described, {**TOPIC, "instructions": "What else?"}):
            assert taught.ask("my money", {"q": question}).body == plain.ask("my money", {"q": question}).body


def test_beside_another_question(taught: Server) -> None:
    both = taught.ask("my money", {"a": OTHER, "b": TOPIC}).json["answers"]
    assert "profile" not in both["a"]
    assert both["b"]["choice"] == "bill"


def test_a_cut_text_keeps_its_warning(taught: Server) -> None:
    reply = taught.ask("money " * 1100, {"q": TOPIC}).json
    assert reply["answers"]["q"]["truncated"] is True
    assert reply["answers"]["q"]["choice"] == "bill"
    assert len(reply["warnings"]) == 1


def test_batches_and_streams_too(taught: Server) -> None:
    states = ["my box", "my money", "a box"]
    expected = ["parcel", "bill", "parcel"]
    results = taught.batch(states, {"q": TOPIC}).json["results"]
    assert [one["answers"]["q"]["choice"] for one in results] == expected
    body = {"states": states, "questions": {"q": TOPIC}}
    reply = taught.request("POST", "/v1/systemone/batch", body, {"Accept": "application/x-ndjson"})
    lines = [line for line in reply.body.splitlines() if b'"bill"' in line]
    assert len(lines) == 3
    assert sum(b'"choice":"bill"' in line for line in lines) == 1


def test_evidence_is_about_what_was_learnt(taught: Server) -> None:
    state = "A box came. It costs money. That is all."
    (found,) = taught.ask(state, {"q": TOPIC}, explain=True).json["answers"]["q"]["evidence"]
    assert state[found["start"] : found["end"]] == "It costs money."
    shares = [answer(taught, text)["probabilities"]["bill"] for text in (state, "A box came. That is all.")]
    assert found["effect"] == pytest.approx(shares[0] - shares[1])


def test_models_and_log_name_them(taught: Server) -> None:
    (entry,) = taught.get("/v1/models").json["models"]
    (name,) = entry["profiles"]
    assert name == answer(taught, "my money")["profile"]
    assert f"profiles loaded: {name}" in taught.log()


def test_read_again_on_a_signal_all_or_nothing(tmp_path: Path) -> None:
    folder = written(tmp_path / "p").parent
    with running_server("--profiles", str(folder)) as server:
        first = answer(server, "my money")["profile"]
        written(folder, made(scale=1.0))
        server.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: answer(server, "my money")["profile"] != first)
        second = answer(server, "my money")["profile"]
        written(folder, made(model="other", name="other"), "other.json")
        server.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: "keeping the current profiles" in server.log())
        assert answer(server, "my money")["profile"] == second
        (folder / "other.json").unlink()
        (folder / "topic.json").unlink()
        server.process.send_signal(signal.SIGHUP)
        assert eventually(lambda: "profile" not in answer(server, "my money"))
        assert server.stop() == 0


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**30)


def not_finite(path: Path) -> None:
    written(path.parent, made(head=Head.of([[0.0, math.nan], [0.0, 0.0]])))


def reworded(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"What is it about?", b"What is it?"))


def not_base64(path: Path) -> None:
    written(path.parent, made(head=Head(2, "*" * 24)))


def too_short(path: Path) -> None:
    written(path.parent, made(bias=[1.0]))


def twice(path: Path) -> None:
    written(path.parent, None, "again.json")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (cut, "is not a profile that can be used"),
        (huge, "larger than 32 MiB"),
        (not_finite, "not finite"),
        (not_base64, "its head is damaged"),
        (too_short, "does not fit its question"),
        (reworded, "teach it anew for the question as it is now"),
        (twice, "keep one of the two"),
        (lambda path: written(path.parent, made(model="decided-small-0")), "not on fake: teach it anew"),
        (lambda path: written(path.parent, made(format="decided-profile-9")), "this version reads"),
        (lambda path: path.write_bytes(b"\x80\x04K\x01."), "is not a profile that can be used"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_bad_file_ends_the_start_in_one_sentence(tmp_path: Path, spoil: Callable[[Path], None], said: str) -> None:
    path = written(tmp_path / "p")
    spoil(path)
    server = start("--model", "fake", "--host", "127.0.0.1", "--port", "0", "--profiles", str(path.parent))
    assert server.process.wait(60) == 2
    (line,) = server.log().splitlines()
    assert line.startswith("decided: ")
    assert said in line


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        (made(scale=1e300), "far too large"),
        (made(head=Head.of([[0.0, 1e30], [0.0, 0.0]])), "far too large"),
        (made(threshold=Threshold(7.0, 0.95, (0.95, 0.9, 0.99), 0.5)), "is not a probability"),
    ],
)
def test_numbers_that_make_no_answer(tmp_path: Path, profile: Profile, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_profile(written(tmp_path / "p", profile))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(InputError, match="it is not a file"):
        read_profiles(tmp_path, "fake", "", True)


@pytest.mark.parametrize(("weights", "said"), [("b2", "other weights of fake"), ("", "is not known: teach it anew")])
def test_a_profile_of_other_weights(tmp_path: Path, weights: str, said: str) -> None:
    folder = written(tmp_path / "p", made(weights="a1")).parent
    assert len(read_profiles(folder, "fake", "a1", True)) == 1
    with pytest.raises(InputError, match=said):
        read_profiles(folder, "fake", weights, True)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    server = start("--model", "fake", "--port", "0", "--profiles", str(tmp_path / "none"))
    assert server.process.wait(60) == 2
    assert "there is no such folder" in server.log()


def test_a_folder_without_a_profile_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "labels.csv").touch()
    assert len(read_profiles(tmp_path, "fake", "", True)) == 0
    assert "there is no profile" in caplog.text


def test_below_the_threshold_it_is_not_decided(tmp_path: Path) -> None:
    profile = made(threshold=Threshold(0.999, 0.95, (0.95, 0.9, 0.99), 0.5), sets=None, head=None, recipe="bias")
    with running_server("--profiles", str(written(tmp_path / "p", profile).parent)) as server:
        said = answer(server, "my money")
        assert said["decided"] is False
        assert said["choice"] == "parcel"
        assert "set" not in said
