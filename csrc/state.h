// What dispatch must know beside the arguments, for each thread: flambeau.core.dispatch.state.
#pragma once
#include <Python.h>

struct DispatchState {
    long word = 0;  // number of active modes
    long overrides = 0;  // reasons for operators to ask before they run: function modes, proxies, autocast, watchers
    long proxies = 0, classes_off = 0;
    bool grad_enabled = true, inference = false, fake = false;
    bool asked = false;  // in inference mode, where nothing is recorded: what the user's scopes say of grad mode
    PyObject* modes = nullptr;  // a tuple; null means ()
    PyObject* saved_hooks = nullptr;  // a list, innermost last; null means []
    PyObject* function_modes = nullptr;  // a tuple; null means ()
    PyObject* autocast = nullptr;  // a tuple (settings, cache); null means off
    PyObject* watchers = nullptr;  // a tuple of recorders (profilers), which change nothing; null means ()
    PyObject* overwriting = nullptr;  // a tensor
    PyObject* devices = nullptr;  // a tuple: where factories make tensors, innermost block last; null: the CPU
};

extern thread_local DispatchState dispatch_state;

// The reasons among `overrides` that are no mere watchers: what a compiled function depends on.
inline long takes_over(const DispatchState& state) {
    return state.overrides - (state.watchers != nullptr ? (long)PyTuple_GET_SIZE(state.watchers) : 0);
}

// Whether what is kept for backward is kept as it is: there are no hooks, and nothing is being overwritten.
inline bool keeps_plainly() {
    PyObject* hooks = dispatch_state.saved_hooks;
    Py_ssize_t depth = hooks != nullptr ? PyList_GET_SIZE(hooks) : 0;
    return (depth == 0 || PyList_GET_ITEM(hooks, depth - 1) == Py_None) &&
           (dispatch_state.overwriting == nullptr || dispatch_state.overwriting == Py_None);
}

inline bool is_watched() { return dispatch_state.watchers != nullptr && PyTuple_GET_SIZE(dispatch_state.watchers) > 0; }

// Takes over a reference; null: nobody watches.
void set_watchers(PyObject* watchers);

// The settings of this thread's autocast, borrowed; null where nothing was set.
inline PyObject* autocast_settings() { return dispatch_state.autocast != nullptr ? PyTuple_GET_ITEM(dispatch_state.autocast, 0) : nullptr; }
