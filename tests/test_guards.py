"""Which fake mode is entered, as libraries ask torch._guards."""

from __future__ import annotations

import threading

import flambeau as fl
from flambeau._guards import active_fake_mode, detect_fake_mode
from flambeau._subclasses.fake_tensor import FakeTensorMode


def test_the_innermost_mode_of_this_thread_is_active():
    seen = []
    assert active_fake_mode() is None and detect_fake_mode([fl.ones(2)]) is None
    with FakeTensorMode() as outer:
        with FakeTensorMode() as inner:
            assert active_fake_mode() is inner and detect_fake_mode() is inner
        made = fl.ones(2)
        assert active_fake_mode() is outer
        thread = threading.Thread(target=lambda: seen.append(active_fake_mode()))
        thread.start()
        thread.join()
    assert active_fake_mode() is None and seen == [None] and isinstance(detect_fake_mode([made]), FakeTensorMode)
