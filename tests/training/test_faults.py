"""Runs on several devices under attack: killed on eight devices, and one of two processes killed."""

import os
import pickle
import signal
import socket

import pytest

from dmlmc.training import checkpoint
from tests.helpers import killed
from tests.helpers.runs import assert_same_run


def result_of(file, process):
    process.join(300)
    assert process.exitcode == 0
    return pickle.loads(file.read_bytes())


def test_a_run_on_eight_devices_killed_ten_times_ends_as_if_never_interrupted(tmp_path):
    options, directory = {"devices": 8, "groups": 2, "steps": 150}, tmp_path / "killed"
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    uninterrupted = result_of(whole, killed.start(None, result=whole, **options))
    assert killed.kill_repeatedly(directory, times=10, **options) >= 7
    assert_same_run(result_of(resumed, killed.start(directory, result=resumed, **options)), uninterrupted)
    assert os.listdir(directory) == [checkpoint.FILE_NAME]


@pytest.fixture
def start_two(tmp_path):
    """Start a run on two processes that share every gradient. Results and logs go to ``tmp_path``."""
    started = []

    def start_two(directory, name, **timeouts):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        common = {"coordinator_address": address, "coordinator_bind_address": address, "num_processes": 2, **timeouts}
        for process in range(2):
            files = {"result": tmp_path / f"{name} {process}", "log": tmp_path / f"{name} {process}.log"}
            distributed = {"process_id": process, **common}
            started.append(killed.start(directory, steps=24, distributed=distributed, **files))
        return started[-2:]

    yield start_two
    for process in started:
        process.kill()


def test_when_one_of_two_processes_is_killed_the_other_ends_with_an_error_and_both_resume(tmp_path, start_two):
    whole, directory = [], tmp_path / "killed"
    for victim in (1, 0):  # process 0 coordinates, and writes the checkpoint
        before, processes = killed.written(directory), start_two(directory, "killed", heartbeat_timeout_seconds=5)
        killed.wait_for_checkpoint(directory, before, *processes)
        killed.kill(processes[victim])
        whole = whole or start_two(None, "whole")  # while the survivor waits for the other's heartbeat
        survivor, log = processes[1 - victim], tmp_path / f"killed {1 - victim}.log"
        survivor.join(90)  # less than the default heartbeat of 100 s
        assert survivor.exitcode == -signal.SIGABRT, log.read_text()  # as the docstring of dmlmc.mesh says
        assert "Terminating process because the JAX distributed service detected fatal errors" in log.read_text()
    resumed = start_two(directory, "resumed")
    for process in range(2):
        uninterrupted = result_of(tmp_path / f"whole {process}", whole[process])
        assert_same_run(result_of(tmp_path / f"resumed {process}", resumed[process]), uninterrupted)
