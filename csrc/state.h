// What dispatch must know beside the arguments, for each thread: flambeau.core.dispatch.state.
#pragma once
#include <Python.h>

struct DispatchState {
    long word = 0;  // number of active modes
    long overrides = 0;
    bool grad_enabled = true, inference = false, fake = false;
    bool asked = false;  // in inference mode, where nothing is recorded: what the user's scopes say of grad mode
    PyObject* modes = nullptr;  // a tuple; null means ()
    PyObject* saved_hooks = nullptr;  // a list, innermost last; null means []
};

extern thread_local DispatchState dispatch_state;
