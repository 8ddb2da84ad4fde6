"""The folder, locks, keys and address of the local daemon."""

import os
import stat
import subprocess
import sys
import threading

import pytest

from tests.support.paths import ROOT
from vmnest import deadline, errors, rendezvous


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


class TestFolder:
    def test_the_setting_wins(self, tmp_path):
        environ = {"AGENT_SANDBOX_LOCAL_DIR": str(tmp_path / "x"), "HOME": str(tmp_path)}
        assert rendezvous.folder(environ) == str(tmp_path / "x")

    def test_it_lies_in_the_home_folder(self, tmp_path):
        assert rendezvous.folder({"HOME": str(tmp_path)}) == f"{tmp_path}/.agent_sandbox/local"

    @pytest.mark.parametrize("home", ["", "/nonexistent", "relative"], ids=repr)
    def test_without_a_home_folder_it_lies_in_tmp(self, home):
        assert rendezvous.folder({"HOME": home}) == f"/tmp/vmnest-{os.geteuid()}"

    def test_where_users_have_no_numbers_the_home_folder_has_another_name(self, tmp_path, monkeypatch):
        monkeypatch.delattr(os, "geteuid")
        profile = {"USERPROFILE": str(tmp_path), "TEMP": "/temp"}
        assert rendezvous.state_folder(profile) == (f"{tmp_path}/.agent_sandbox", False)
        assert rendezvous.state_folder({**profile, "HOME": "/nowhere"}) == ("/temp/vmnest", True)
        rendezvous.prepare_folder(str(tmp_path))

    def test_preparing_makes_it_for_us_alone(self, tmp_path):
        path = rendezvous.folder({"HOME": str(tmp_path)}, prepare=True)
        assert mode(path) == 0o700
        assert mode(os.path.dirname(path)) == 0o700

    def test_preparing_closes_a_folder_that_was_open(self, tmp_path):
        path = tmp_path / "local"
        path.mkdir(mode=0o755)
        rendezvous.prepare_folder(str(path))
        assert mode(path) == 0o700

    def test_a_symbolic_link_is_refused(self, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        with pytest.raises(errors.LocalCloudError, match="symbolic link"):
            rendezvous.prepare_folder(str(tmp_path / "link"))

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
    def test_somebody_elses_folder_is_refused(self, tmp_path):
        path = tmp_path / "local"
        path.mkdir()
        os.chown(path, 12345, 12345)
        with pytest.raises(errors.LocalCloudError, match="belongs to uid 12345"):
            rendezvous.prepare_folder(str(path))

    def test_a_file_in_the_way_is_named(self, tmp_path):
        (tmp_path / "f").write_text("")
        with pytest.raises(errors.LocalCloudError, match=f"{tmp_path}/f"):
            rendezvous.prepare_folder(str(tmp_path / "f"))


class TestLocks:
    def test_nothing_is_alive_in_an_empty_folder(self, tmp_path):
        assert not rendezvous.is_alive(str(tmp_path))

    def test_a_folder_that_is_none_is_told_so(self, tmp_path):
        (tmp_path / "f").write_text("")
        with pytest.raises(errors.LocalCloudError, match=f"cannot look into .*{tmp_path}/f: Not a directory") as caught:
            rendezvous.is_alive(str(tmp_path / "f"))
        assert "AGENT_SANDBOX_LOCAL_DIR" in (caught.value.hint or "")

    def test_alive_is_who_holds_the_lock(self, tmp_path):
        lock = rendezvous.daemon_lock(str(tmp_path), deadline.Deadline(1))
        with lock:
            assert rendezvous.is_alive(str(tmp_path))
        assert not rendezvous.is_alive(str(tmp_path))

    def test_the_lock_ends_with_its_process(self, tmp_path):
        code = (
            "import sys; from vmnest import deadline, rendezvous;"
            "rendezvous.daemon_lock(sys.argv[1], deadline.Deadline(1)).take(); print('held', flush=True);"
            "sys.stdin.read()"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with child:
            assert child.stdout is not None
            child.stdout.readline()
            assert rendezvous.is_alive(str(tmp_path))
            child.kill()
        assert not rendezvous.is_alive(str(tmp_path))

    def test_a_second_starter_waits_for_the_first(self, tmp_path):
        path, entered = str(tmp_path), threading.Event()

        def second():
            with rendezvous.start_lock(path, deadline.Deadline(10)):
                entered.set()

        thread = threading.Thread(target=second)
        with rendezvous.start_lock(path, deadline.Deadline(1)):
            thread.start()
            assert not entered.wait(0.1)
        thread.join()
        assert entered.is_set()

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # a child of a threaded process is the case here
    def test_a_child_forked_while_the_lock_is_held_does_not_keep_it(self, tmp_path):
        reader, writer = os.pipe()
        with rendezvous.start_lock(str(tmp_path), deadline.Deadline(1)):
            child = os.fork()
            if child == 0:
                os.close(writer)
                os.read(reader, 1)  # until the parent is done
                os._exit(0)
        try:
            with rendezvous.start_lock(str(tmp_path), deadline.Deadline(0)):
                pass
        finally:
            os.close(writer)
            os.close(reader)
            os.waitpid(child, 0)

    def test_a_lock_whose_file_was_removed_is_orphaned(self, tmp_path):
        with rendezvous.daemon_lock(str(tmp_path), deadline.Deadline(1)) as lock:
            assert not lock.is_orphaned
            (tmp_path / rendezvous.DAEMON_LOCK).unlink()
            assert lock.is_orphaned
        assert not lock.is_orphaned

    def test_a_starter_gives_up_at_its_deadline(self, tmp_path):
        with rendezvous.start_lock(str(tmp_path), deadline.NEVER), pytest.raises(errors.WaitTimeoutError):
            rendezvous.start_lock(str(tmp_path), deadline.Deadline(0.05)).take()


class TestRecords:
    def test_the_daemon_is_read_as_it_was_written(self, tmp_path):
        daemon = rendezvous.Daemon(url="http://127.0.0.1:1", version="0.2", pid=7)
        rendezvous.write_daemon(str(tmp_path), daemon)
        read = rendezvous.read(str(tmp_path))
        assert read is not None
        assert (read.url, read.version, read.pid) == ("http://127.0.0.1:1", "0.2", 7)
        assert mode(tmp_path / "daemon.json") == 0o600

    def test_a_removed_daemon_is_none(self, tmp_path):
        rendezvous.write_daemon(str(tmp_path), rendezvous.Daemon(url="u", version="v", pid=1))
        rendezvous.remove_daemon(str(tmp_path))
        rendezvous.remove_daemon(str(tmp_path))
        assert rendezvous.read(str(tmp_path)) is None

    def test_what_it_was_started_with_is_read_too(self, tmp_path):
        daemon = rendezvous.Daemon(url="u", version="v", pid=7, started_with={"AGENT_SANDBOX_LOCAL_DISK": "1G"})
        rendezvous.write_daemon(str(tmp_path), daemon)
        read = rendezvous.read(str(tmp_path))
        assert read is not None
        assert read.started_with == {"AGENT_SANDBOX_LOCAL_DISK": "1G"}

    @pytest.mark.parametrize("more", ["", ', "started_with": 3'], ids=["without", "wrong"])
    def test_a_record_of_an_older_daemon_is_read(self, tmp_path, more):
        (tmp_path / "daemon.json").write_text(f'{{"url": "u", "version": "v", "pid": 1{more}}}')
        read = rendezvous.read(str(tmp_path))
        assert read is not None
        assert (read.url, read.started_with) == ("u", {})

    def test_a_folder_that_cannot_be_written_is_an_error_that_says_so(self, tmp_path):
        folder = str(tmp_path / "gone")
        with pytest.raises(errors.LocalCloudError, match=r"cannot write .*daemon\.json: No such file") as caught:
            rendezvous.write_daemon(folder, rendezvous.Daemon(url="u", version="v", pid=1))
        assert "AGENT_SANDBOX_LOCAL_DIR" in (caught.value.hint or "")
        with pytest.raises(errors.LocalCloudError, match=r"cannot write .*start\.lock"):
            rendezvous.start_lock(folder, deadline.Deadline(1)).take()

    @pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"url": 1, "version": "", "pid": 1}', "\xff"], ids=repr)
    def test_a_damaged_record_is_none(self, tmp_path, text):
        (tmp_path / "daemon.json").write_text(text, encoding="latin-1")
        assert rendezvous.read(str(tmp_path)) is None

    @pytest.mark.parametrize(("text", "port"), [("8123\n", 8123), ("", 0), ("99999", 0), ("-5", 0), ("x", 0)])
    def test_the_kept_port_is_a_port_or_0(self, tmp_path, text, port):
        (tmp_path / "control-port").write_text(text)
        assert rendezvous.kept_port(str(tmp_path)) == port

    def test_the_port_is_kept(self, tmp_path):
        rendezvous.keep_port(str(tmp_path), 4321)
        assert rendezvous.kept_port(str(tmp_path)) == 4321


@pytest.mark.parametrize(("made", "has"), [((), False), (("vms",), False), (("vms", "vms/microvm-1"), True)])
def test_microvms_have_folders(tmp_path, made, has):
    for name in made:
        (tmp_path / name).mkdir()
    assert rendezvous.has_vms(str(tmp_path)) is has


class TestKeys:
    def test_they_are_made_once(self, tmp_path):
        first, second = rendezvous.keys(str(tmp_path)), rendezvous.keys(str(tmp_path))
        assert tuple(first) == tuple(second)
        assert len(first.access_key) == 20
        assert first.access_key.isalnum()
        assert len(first.secret_key) == 40
        assert first.secret_key.isalnum()
        assert mode(tmp_path / "keys.json") == 0o600
        assert os.listdir(tmp_path) == ["keys.json"]

    def test_all_who_make_them_at_the_same_time_get_the_same(self, tmp_path):
        pairs = []
        threads = [
            threading.Thread(target=lambda: pairs.append(tuple(rendezvous.keys(str(tmp_path))))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(pairs) == 8
        assert len(set(pairs)) == 1

    def test_damaged_keys_are_not_replaced(self, tmp_path):
        (tmp_path / "keys.json").write_text("{}")
        with pytest.raises(errors.StateFileError, match=r"keys\.json is damaged"):
            rendezvous.keys(str(tmp_path))
        assert (tmp_path / "keys.json").read_text() == "{}"

    def test_the_secret_does_not_print(self):
        assert "hush" not in repr(rendezvous.Keys(access_key="a", secret_key="hush"))


class TestReadyLine:
    def test_a_ready_daemon_is_parsed(self):
        line = rendezvous.build_ready(rendezvous.Daemon(url="http://127.0.0.1:9", version="1", pid=3))
        daemon = rendezvous.parse_ready(line)
        assert (daemon.url, daemon.version, daemon.pid) == ("http://127.0.0.1:9", "1", 3)

    def test_the_error_comes_back_in_its_class(self):
        line = rendezvous.build_not_ready(errors.IsolationUnavailableError("no user namespaces", hint="sysctl"))
        with pytest.raises(errors.IsolationUnavailableError) as caught:
            rendezvous.parse_ready(line)
        assert (caught.value.message, caught.value.hint) == ("no user namespaces", "sysctl")

    @pytest.mark.parametrize("line", [b"", b"nonsense", b"[]", b"{}", b'{"ready": true}'], ids=repr)
    def test_anything_else_says_that_the_daemon_ended(self, line):
        with pytest.raises(errors.LocalDaemonError, match="ended before it was ready"):
            rendezvous.parse_ready(line)


class TestEnvironment:
    DAEMON = rendezvous.Daemon(url="http://127.0.0.1:8123", version="1", pid=1)
    KEYS = rendezvous.Keys(access_key="AK", secret_key="SK")

    def lines(self, **environ):
        return dict(rendezvous.environment(self.DAEMON, self.KEYS, environ=environ))

    def test_it_holds_endpoints_keys_and_region(self):
        assert self.lines() == {
            "AWS_ENDPOINT_URL_LAMBDA_MICROVMS": "http://127.0.0.1:8123",
            "AWS_ENDPOINT_URL_LAMBDA_CORE": "http://127.0.0.1:8123",
            "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:8123",
            "AWS_ENDPOINT_URL_IAM": "http://127.0.0.1:8123",
            "AWS_ENDPOINT_URL_STS": "http://127.0.0.1:8123",
            "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS": "http://127.0.0.1:8123",
            "AWS_ACCESS_KEY_ID": "AK",
            "AWS_SECRET_ACCESS_KEY": "SK",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1,localhost",
            "AWS_SESSION_TOKEN": None,
            "AWS_PROFILE": None,
        }

    def test_exceptions_from_the_proxy_are_kept(self):
        assert self.lines(NO_PROXY="corp, localhost")["NO_PROXY"] == "corp,localhost,127.0.0.1"

    def test_a_lower_case_name_is_set_too_where_it_would_win(self):
        lines = self.lines(no_proxy="corp")
        assert lines["no_proxy"] == lines["NO_PROXY"] == "corp,127.0.0.1,localhost"
