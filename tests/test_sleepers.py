"""Threads that wait: each call wakes one, none is lost, and none is kept for later."""

import threading
from queue import SimpleQueue

from decided.serving.sleepers import Sleepers


def test_a_call_wakes_one_and_a_call_for_nobody_is_not_kept() -> None:
    lock, sleepers, woken = threading.Lock(), Sleepers(), SimpleQueue[int]()
    sleepers.wake()  # nobody is there: whoever comes later looks for work before it sleeps

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
        sleepers.wake()
    woken.get(timeout=10)
    assert woken.empty()
    with lock:
        sleepers.wake_all()
    for thread in threads:
        thread.join(10)
    assert woken.qsize() == 2
