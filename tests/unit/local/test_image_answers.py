"""Client tokens of image operations."""

import pytest

from tests.support.image_stage import together
from vmnest import errors
from vmnest.local import faults, image_answers, image_store


@pytest.fixture
def store(tmp_path):
    return image_store.Store(str(tmp_path))


@pytest.fixture
def answers(store):
    return image_answers.Answers(store)


def refusal(call, *args):
    with pytest.raises(faults.Fault) as caught:
        call(*args)
    return caught.value.status, caught.value.message


class TestOnce:
    def test_the_same_token_is_the_same_answer_and_nothing_is_done(self, answers):
        calls = []
        params = {"name": "demo", "clientToken": "t"}
        for _ in range(2):
            assert answers.once("CreateMicrovmImage", params, lambda: calls.append(1) or {"a": 1}) == {"a": 1}
        assert calls == [1]

    def test_without_a_token_it_is_done_each_time(self, answers):
        calls = []
        for _ in range(2):
            answers.once("CreateMicrovmImage", {"name": "demo"}, lambda: calls.append(1) or {})
        assert calls == [1, 1]

    def test_other_parameters_are_a_conflict(self, answers):
        params = {"name": "demo", "clientToken": "t", "environmentVariables": {"A": "1"}}
        answers.once("CreateMicrovmImage", params, dict)
        other = {**params, "environmentVariables": {"A": "2"}}
        assert refusal(answers.once, "CreateMicrovmImage", other, dict)[0] == 409
        # Another operation's tokens are its own.
        assert answers.once("UpdateMicrovmImage", other, lambda: {"b": 2}) == {"b": 2}

    def test_a_refused_call_uses_no_token(self, answers):
        params = {"name": "demo", "clientToken": "t"}

        def refuse():
            raise faults.validation("no")

        assert refusal(answers.once, "CreateMicrovmImage", params, refuse) == (400, "no")
        assert answers.once("CreateMicrovmImage", {**params, "name": "other"}, lambda: {"a": 1}) == {"a": 1}

    def test_it_outlives_the_daemon(self, answers, tmp_path):
        params = {"name": "demo", "clientToken": "t"}
        answers.once("CreateMicrovmImage", params, lambda: {"a": 1})
        later = image_answers.Answers(image_store.Store(str(tmp_path)))
        assert later.once("CreateMicrovmImage", params, dict) == {"a": 1}

    def test_values_of_variables_are_not_noted_and_answered_all_the_same(self, answers, tmp_path):
        variables = {"KEY": "hunter2"}
        params = {"name": "demo", "clientToken": "t", "environmentVariables": variables}
        for _ in range(2):
            found = answers.once("CreateMicrovmImage", params, lambda: {"a": 1, "environmentVariables": variables})
            assert found == {"a": 1, "environmentVariables": variables}
        notes = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
        assert notes
        assert not any("hunter2" in note for note in notes)

    def test_an_answer_that_cannot_be_noted_is_given_all_the_same(self, answers, store, monkeypatch, caplog):
        def refuse(*args, **members):
            raise errors.LocalCloudError("full")

        monkeypatch.setattr(store, "keep_answer", refuse)
        assert answers.once("CreateMicrovmImage", {"clientToken": "t"}, lambda: {"a": 1}) == {"a": 1}
        assert "the answer to CreateMicrovmImage could not be noted" in caplog.text

    def test_many_at_once_do_it_once(self, answers):
        calls, found = [], []
        params = {"name": "demo", "clientToken": "t"}

        def act(number):
            calls.append(number)
            return {"by": number}

        together(20, lambda number: found.append(answers.once("CreateMicrovmImage", params, lambda: act(number))))
        assert len(calls) == 1
        assert found == [{"by": calls[0]}] * 20
