"""Threads that wait: each call wakes one, none is lost, none is kept for later, and none is woken into a lock."""

import threading
from queue import SimpleQueue

from decided.serving.sleepers import CallingLock, Sleepers


def test_a_call_wakes_one_and_a_call_for_nobody_is_not_kept() -> None:
    lock, woken = CallingLock(), SimpleQueue[int]()
    sleepers = Sleepers(lock)
    with lock:
        assert not sleepers.wake()  # nobody is there: whoever comes later looks for work before it sleeps

    def wait(number: int) -> None:
        sleepers.sleep()
        woken.put(number)

    with lock:
        for _ in range(3):
            sleepers.enter()
    threads = [threading.Thread(target=wait, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    assert woken.empty()
    with lock:
        assert sleepers.wake()
    woken.get(timeout=10)
    assert woken.empty()
    with lock:
        sleepers.wake_all()
    for thread in threads:
        thread.join(10)
    assert woken.qsize() == 2
    sleepers.close()


def test_whoever_is_woken_finds_the_lock_free() -> None:
    lock, free = CallingLock(), SimpleQueue[bool]()
    sleepers = Sleepers(lock)

    def wait() -> None:
        sleepers.sleep()
        free.put(lock._lock.acquire(blocking=False))

    with lock:
        sleepers.enter()
    thread = threading.Thread(target=wait)
    thread.start()
    with lock:
        sleepers.wake()
    assert free.get(timeout=10)
    thread.join(10)
    lock._lock.release()
    sleepers.close()


def test_a_lock_is_let_go_and_its_calls_made_when_its_holder_fails() -> None:
    lock = CallingLock()
    sleepers = Sleepers(lock)
    try:
        with lock:
            sleepers.enter()
            sleepers.wake()
            raise ValueError
    except ValueError:
        pass
    sleepers.sleep()  # returns at once
    assert lock._lock.acquire(blocking=False)
    sleepers.close()
