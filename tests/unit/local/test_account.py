"""Tags of the local account."""

import threading

import pytest

from vmnest.local import account, faults


def test_tags_merge_and_go(tmp_path):
    tags = account.Tags(str(tmp_path))
    tags.add("arn", {"a": "1", "b": "2"})
    tags.add("arn", {"b": "3"})
    tags.remove("arn", ["a", "not there"])
    assert tags.of("arn") == {"b": "3"}
    assert tags.of("other") == {}


def test_they_outlive_the_daemon(tmp_path):
    account.Tags(str(tmp_path)).add("arn", {"a": "ä"})
    assert account.Tags(str(tmp_path)).of("arn") == {"a": "ä"}
    assert (tmp_path / "tags.json").stat().st_mode & 0o777 == 0o600


def test_there_is_a_limit(tmp_path):
    tags = account.Tags(str(tmp_path))
    with pytest.raises(faults.Fault, match="at most 50 tags") as caught:
        tags.add("arn", {str(number): "" for number in range(51)})
    assert caught.value.error_type == "InvalidParameterValueException"
    assert tags.of("arn") == {}


class TestReplace:
    def test_a_new_resource_has_its_own_and_no_others(self, tmp_path):
        tags = account.Tags(str(tmp_path))
        tags.add("arn", {"old": "1"})
        tags.replace("arn", {"new": "2"})
        assert tags.of("arn") == {"new": "2"}
        tags.replace("arn", {})
        assert account.Tags(str(tmp_path)).of("arn") == {}

    def test_nothing_is_written_for_nothing(self, tmp_path):
        account.Tags(str(tmp_path)).replace("arn", {})
        assert list(tmp_path.iterdir()) == []

    def test_there_is_a_limit(self, tmp_path):
        tags = account.Tags(str(tmp_path))
        tags.add("arn", {"old": "1"})
        with pytest.raises(faults.Fault, match="at most 50 tags") as caught:
            tags.replace("arn", {str(number): "" for number in range(51)})
        assert caught.value.error_type == "ValidationException"
        assert tags.of("arn") == {"old": "1"}


def test_an_account_is_opened_with_all_its_parts(tmp_path):
    opened = account.open_account(str(tmp_path))
    opened.tags.add("arn", {"a": "1"})
    opened.objects.create("bucket", region="us-east-1", settings={})
    assert not opened.roles.exists("arn:aws:iam::000000000000:role/build")
    again = account.open_account(str(tmp_path))
    assert (again.tags.of("arn"), [bucket.name for bucket in again.objects.all()]) == ({"a": "1"}, ["bucket"])


def test_a_damaged_file_is_said_so_and_kept(tmp_path):
    (tmp_path / "tags.json").write_text("{")
    tags = account.Tags(str(tmp_path))
    assert tags.of("arn") == {}
    assert (tmp_path / "tags.json.bad").read_text() == "{"


def test_many_writers_lose_nothing(tmp_path):
    tags = account.Tags(str(tmp_path))
    threads = [threading.Thread(target=tags.add, args=("arn", {str(number): ""})) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(account.Tags(str(tmp_path)).of("arn")) == 20
