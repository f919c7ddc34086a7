// The tape of autograd in native code: how a primitive that ran is recorded, and the walk back over what was. What a node is, and all that
// is rare (hooks, lists of tensors, other classes' tensors, anomaly mode), is Python: flambeau/autograd/graph.py and engine.py.
#include "tape.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <queue>
#include <utility>

#include "module.h"
#include "recorder.h"
#include "state.h"
#include "tensors.h"

namespace {

// A reference that is given back at the end.
struct Ref {
    PyObject* object;
    Ref(PyObject* taken = nullptr) : object(taken) {}
    Ref(Ref&& other) noexcept : object(std::exchange(other.object, nullptr)) {}
    Ref& operator=(Ref&& other) noexcept { return std::swap(object, other.object), *this; }
    ~Ref() { Py_XDECREF(object); }
    operator PyObject*() const { return object; }
    PyObject* give() { return std::exchange(object, nullptr); }
    static Ref to(PyObject* borrowed) { return Ref(Py_XNewRef(borrowed)); }
};

// The classes of the tape, told by `know_tape`, and where their slots lie.
struct Slots {
    const char* names[8];
    Py_ssize_t at[8] = {};

    bool learn(PyTypeObject* type) {
        for (int i = 0; i < 8 && names[i] != nullptr; i++)
            if ((at[i] = slot_offset(type, names[i])) < 0) return false;
        return true;
    }
    PyObject*& operator()(PyObject* object, int slot) const { return *(PyObject**)((char*)object + at[slot]); }
};
Slots node_slots = {{"edges", "output_specs", "sequence"}};
enum { edges, output_specs, sequence };
Slots primitive_slots = {{"prim", "needs", "plan", "list_sizes", "saved", "released"}};
enum { prim_of, needs_of, plan_of, list_sizes, saved_of, released };
Slots saved_slots = {{"tensor", "version", "unpack", "output"}};
enum { saved_tensor, saved_version, saved_unpack, saved_output };
Slots plan_slots = {{"derivative", "kind", "rules", "saves", "vjp"}};
enum { plan_derivative, plan_kind, plan_rules, plan_saves, plan_vjp };
Slots rule_slots = {{"fn", "names"}};
enum { rule_fn, rule_names };
Slots sink_slots = {{"variable"}};
enum { variable };

PyTypeObject *primitive_node, *sink, *saved, *edge_type, *spec_type;
PyObject *gone, *zero, *one, *earliest;     // `gone`: stands where a saved tensor was; `earliest`: a sink's place, so that hooks and
                                        // communication have gradients as soon as they are there
PyObject* python;               // what is left to Python, by name: a dict

constexpr long first_differentiable = 2;     // category of floating-point dtypes
PyObject *category_name, *positions_name, *plans_name, *derivative_name, *pre_hooks, *post_hooks, *knows_last, *last_name, *node_name, *g_name,
    *grad_dtype_name, *wanted_name, *answers_views_name;

void put(PyObject*& slot, PyObject* value) { Py_XSETREF(slot, Py_NewRef(value)); }

template <class... Args>
PyObject* ask(const char* function, Args... args) {
    PyObject* found = PyDict_GetItemString(python, function);
    if (found == nullptr) return PyErr_Format(PyExc_RuntimeError, "the tape was not told of %s", function);
    PyObject* given[] = {args...};
    return PyObject_Vectorcall(found, given, sizeof...(args), nullptr);
}

PyObject* named_tuple(PyTypeObject* type, std::initializer_list<PyObject*> values) {
    PyObject* made = type->tp_alloc(type, (Py_ssize_t)values.size());
    Py_ssize_t i = 0;
    for (PyObject* value : values)
        if (made != nullptr) PyTuple_SET_ITEM(made, i++, Py_NewRef(value));
    return made;
}

bool holds_tensors(PyObject* value) {
    if (!PyList_Check(value) && !PyTuple_Check(value)) return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); i++)
        if (is_tensor(PySequence_Fast_GET_ITEM(value, i))) return true;
    return false;
}

// ------------------------------------------------------------------------------------------------------------ recording
bool traced = false;    // nodes remember where they were made

// A tensor as it is kept for backward; null without an error where Python has to.
PyObject* keep(PyObject* tensor, PyObject* output) {
    Ref alias(output != Py_None ? alias_of(tensor) : Py_NewRef(tensor));
    PyObject* version = alias != nullptr ? version_of_memory(alias) : nullptr;
    PyObject* made = version != nullptr ? saved->tp_alloc(saved, 0) : nullptr;
    if (made == nullptr) return nullptr;
    put(saved_slots(made, saved_tensor), alias), put(saved_slots(made, saved_version), version);
    put(saved_slots(made, saved_unpack), Py_None), put(saved_slots(made, saved_output), output);
    return made;
}

// A list with `of(item)` in the places of a list's items; null where one of them is null.
template <class Of>
PyObject* mapped(PyObject* list, Of of) {
    Ref made(PyList_New(PySequence_Fast_GET_SIZE(list)));
    for (Py_ssize_t i = 0; made != nullptr && i < PyList_GET_SIZE(made.object); i++) {
        PyObject* item = of(PySequence_Fast_GET_ITEM(list, i));
        if (item == nullptr) return nullptr;
        PyList_SET_ITEM(made.object, i, item);
    }
    return made.give();
}

// How a plan's value comes about, as flambeau.autograd.graph.KEPT counts it.
enum How { of_input, of_output, of_shape, of_dtype };

// One of the values that a node keeps, where that is simple; null without an error where it is not.
PyObject* plain_value(PyObject* how, Py_ssize_t index, PyObject* args, PyObject* outs) {
    if (!keeps_plainly()) return nullptr;
    if (PyLong_AsLong(how) == of_output) {
        PyObject* out = PyTuple_GET_ITEM(outs, index);
        Ref number(PyLong_FromSsize_t(index));
        return is_plain_tensor(out) && number != nullptr ? keep(out, number) : nullptr;
    }
    PyObject* value = index < PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, index) : nullptr;
    if (value == nullptr) return nullptr;
    switch (PyLong_AsLong(how)) {
        case of_input:
            if (holds_tensors(value)) return mapped(value, [](PyObject* item) { return is_tensor(item) ? keep(item, Py_None) : Py_NewRef(item); });
            return is_tensor(value) ? keep(value, Py_None) : Py_NewRef(value);
        case of_shape: return is_tensor(value) ? shape_of(value) : nullptr;
        case of_dtype: return is_tensor(value) ? Py_NewRef(read_slot(value, known_slots().dtype)) : nullptr;
        default: return nullptr;
    }
}

PyObject* value_to_keep(PyObject* save, PyObject* prim, PyObject* args, PyObject* outs) {
    PyObject *how = PyTuple_GET_ITEM(save, 1), *index = PyTuple_GET_ITEM(save, 2);
    PyObject* made = plain_value(how, PyLong_AsSsize_t(index), args, outs);
    return made != nullptr || PyErr_Occurred() ? made : ask("keep", how, prim, args, outs, index);
}

// What the node of an output must know of it.
PyObject* spec_of(PyObject* tensor) {
    PyObject* layout = layout_of(tensor);
    if (layout == nullptr) return PyErr_Occurred() ? nullptr : ask("spec", tensor);
    return named_tuple(spec_type, {PyTuple_GET_ITEM(layout, 0), read_slot(tensor, known_slots().dtype), read_slot(tensor, known_slots().device)});
}

// A sink for a leaf, kept as long as somebody else does.
PyObject* sink_of(PyObject* leaf) {
    Ref spec(spec_of(leaf)), none(PyList_New(0));
    Ref specs(spec != nullptr ? PyTuple_Pack(1, spec.object) : nullptr);
    Ref node(specs != nullptr && none != nullptr ? sink->tp_alloc(sink, 0) : nullptr);
    if (node == nullptr) return nullptr;
    put(node_slots(node, edges), none), put(node_slots(node, output_specs), specs), put(node_slots(node, sequence), earliest);
    put(sink_slots(node, variable), leaf);
    Ref weak(PyWeakref_NewRef(node, nullptr));
    return weak != nullptr && set_sink(leaf, weak) ? node.give() : nullptr;
}

// The same as leaves with a wish of their own have it.
PyObject* ask_of_leaf(PyObject* leaf) {
    Ref attributes(PyObject_GenericGetDict(leaf, nullptr));
    if (attributes == nullptr) return nullptr;
    PyObject* made = PyDict_GET_SIZE(attributes.object) == 0 || !PyDict_Contains(attributes, grad_dtype_name) ? sink_of(leaf) : nullptr;
    return made != nullptr || PyErr_Occurred() ? made : ask("accumulator", leaf);
}

// Adds the edge that leads into a value's history to a list, None where there is none; and says whether there is. -1 with an error set.
int add_edge(PyObject* value, PyObject* found) {
    PyObject *node, *output;
    int needed = is_tensor(value) ? history_of(value, &node, &output) : 0;
    Ref made(needed > 0 && node == nullptr ? ask_of_leaf(value) : nullptr), edge;
    if (needed > 0 && node == nullptr && (node = made) == nullptr) return -1;
    if (needed < 0) edge = Ref(ask("edge_of", value));
    else edge = needed > 0 ? Ref(named_tuple(edge_type, {node, output})) : Ref::to(Py_None);
    return edge == nullptr || PyList_Append(found, edge) < 0 ? -1 : edge != Py_None;
}

// The edges that lead into the tensors among the arguments, the positions of those that need a gradient, and {position: length} of lists.
struct Found {
    Ref edges{PyList_New(0)}, needs{PyList_New(0)}, sizes{Py_NewRef(Py_None)};

    bool look(PyObject* positions, PyObject* args) {
        if (edges == nullptr || needs == nullptr) return false;
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(positions); k++) {
            PyObject *position = PyTuple_GET_ITEM(positions, k), *value = PyTuple_GET_ITEM(args, PyLong_AsSsize_t(position));
            int needed = holds_tensors(value) ? look_into(value, position) : add_edge(value, edges);
            if (needed < 0 || (needed > 0 && PyList_Append(needs, position) < 0)) return false;
        }
        return true;
    }

    int look_into(PyObject* list, PyObject* position) {
        Ref length(PyLong_FromSsize_t(PySequence_Fast_GET_SIZE(list)));
        if (sizes == Py_None) sizes = Ref(PyDict_New());
        if (sizes == nullptr || length == nullptr || PyDict_SetItem(sizes, position, length) < 0) return -1;
        int any = 0;
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list); i++) {
            int needed = add_edge(PySequence_Fast_GET_ITEM(list, i), edges);
            if (needed < 0) return -1;
            any |= needed;
        }
        return any;
    }
};

// The plan for these needs.
PyObject* find_plan(PyObject* prim, PyObject* needs, PyObject* derivative) {
    Ref plans(PyObject_GetAttr(prim, plans_name));
    PyObject* plan = plans != nullptr && PyDict_Check(plans) ? PyDict_GetItem(plans, needs) : nullptr;
    PyErr_Clear();
    return plan != nullptr && plan_slots(plan, plan_derivative) == derivative ? Py_NewRef(plan) : ask("plan", prim, needs);
}

// What the node must know of its outputs: a tuple with a spec, or None, for each.
PyObject* specs_of(PyObject* outs) {
    Ref made(PyTuple_New(PyTuple_GET_SIZE(outs)));
    for (Py_ssize_t i = 0; made != nullptr && i < PyTuple_GET_SIZE(outs); i++) {
        PyObject *out = PyTuple_GET_ITEM(outs, i), *spec = is_tensor(out) ? spec_of(out) : Py_NewRef(Py_None);
        if (spec == nullptr) return nullptr;
        PyTuple_SET_ITEM(made.object, i, spec);
    }
    return made.give();
}

// A node of the plan with all that it keeps.
PyObject* new_node(PyObject* prim, PyObject* plan, PyObject* needs, const Found& to, PyObject* args, PyObject* outs) {
    Ref kept(PyDict_New()), number(next_node()), specs(specs_of(outs));
    PyObject* saves = plan_slots(plan, plan_saves);
    if (kept == nullptr || number == nullptr || specs == nullptr) return nullptr;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(saves); i++) {
        PyObject* save = PyList_GET_ITEM(saves, i);
        Ref value(value_to_keep(save, prim, args, outs));
        if (value == nullptr || PyDict_SetItem(kept, PyTuple_GET_ITEM(save, 0), value) < 0) return nullptr;
    }
    Ref told(plan_slots(plan, plan_kind) == Py_None ? ask("kind", prim, args) : Py_NewRef(plan_slots(plan, plan_kind)));
    PyTypeObject* kind = (PyTypeObject*)told.object;
    Ref node(kind != nullptr ? kind->tp_alloc(kind, 0) : nullptr);
    if (node == nullptr) return nullptr;
    put(node_slots(node, edges), to.edges), put(node_slots(node, output_specs), specs), put(node_slots(node, sequence), number);
    put(primitive_slots(node, prim_of), prim), put(primitive_slots(node, needs_of), needs), put(primitive_slots(node, plan_of), plan);
    put(primitive_slots(node, list_sizes), to.sizes), put(primitive_slots(node, saved_of), kept), put(primitive_slots(node, released), Py_False);
    return !traced || Ref(ask("trace", node.object)) != nullptr ? node.give() : nullptr;
}

// Whether gradients flow through a tensor of its dtype; -1 with an error set.
int is_differentiable(PyObject* tensor) {
    Ref category(PyObject_GetAttr(read_slot(tensor, known_slots().dtype), category_name));
    return category == nullptr ? -1 : PyLong_AsLong(category) >= first_differentiable;
}

bool attach_all(PyObject* node, PyObject* outs, bool are_views) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(outs); i++) {
        PyObject* out = PyTuple_GET_ITEM(outs, i);
        if (!is_tensor(out)) continue;
        int flows = is_differentiable(out);
        Ref number(PyLong_FromSsize_t(i));
        if (flows < 0 || number == nullptr || (flows > 0 && !attach(out, node, number)) || (are_views && !mark_one_of_many(out))) return false;
    }
    return true;
}

}  // namespace

bool hang(PyObject* prim, PyObject* args, PyObject* out) {
    if (python == nullptr) return PyErr_SetString(PyExc_RuntimeError, "flambeau.autograd is not loaded; import flambeau"), false;
    int flows = is_plain_tensor(out) ? is_differentiable(out) : 1;
    if (flows <= 0) return flows == 0;
    Ref positions(PyObject_GetAttr(prim, positions_name)), derivative(PyObject_GetAttr(prim, derivative_name));
    if (positions == nullptr || derivative == nullptr || derivative == Py_None) return derivative == Py_None;
    Found found;
    if (!found.look(positions, args)) return false;
    if (PyList_GET_SIZE(found.needs.object) == 0) return true;
    Ref needs(PyList_AsTuple(found.needs)), plan(needs != nullptr ? find_plan(prim, needs, derivative) : nullptr);
    if (plan == nullptr) return false;
    if (PyList_GET_SIZE(plan_slots(plan, plan_rules)) == 0 && plan_slots(plan, plan_vjp) == Py_None) return true;
    bool several = PyTuple_CheckExact(out);
    Ref outs(several ? Py_NewRef(out) : PyTuple_Pack(1, out)), node(outs != nullptr ? new_node(prim, plan, needs, found, args, outs) : nullptr);
    if (node == nullptr) return false;
    Ref views(several ? PyObject_GetAttr(prim, answers_views_name) : Py_NewRef(Py_False));
    if (views == nullptr) PyErr_Clear();    // primitives don't say
    return attach_all(node, outs, views == Py_True);
}

namespace {

// ------------------------------------------------------------------------------------------------------------ the walk back
// A saved tensor, or another value that a node keeps; null without an error where Python has to.
PyObject* value_of(PyObject* value) {
    if (value == gone) return nullptr;
    if (PyList_CheckExact(value)) return mapped(value, value_of);
    if (!Py_IS_TYPE(value, saved)) return Py_NewRef(value);
    PyObject* tensor = saved_slots(value, saved_tensor);
    if (saved_slots(value, saved_unpack) != Py_None || !is_tensor(tensor)) return nullptr;
    if (saved_slots(value, saved_output) != Py_None && dispatch_state.grad_enabled) return nullptr;
    PyObject* version = version_of_memory(tensor);
    int same = version == nullptr ? 0 : PyObject_RichCompareBool(version, saved_slots(value, saved_version), Py_EQ);
    return same > 0 ? Py_NewRef(tensor) : nullptr;
}

// What a rule of the node's comes to; null without an error where Python has to.
PyObject* run_rule(PyObject* node, PyObject* rule, PyObject* gs) {
    constexpr Py_ssize_t most = 12;
    PyObject *names = rule_slots(rule, rule_names), *kept = primitive_slots(node, saved_of), *values[most] = {};
    Py_ssize_t count = PyTuple_GET_SIZE(names), have = 0;
    for (; count <= most && have < count; have++) {
        PyObject *name = PyTuple_GET_ITEM(names, have), *value = PyDict_GetItem(kept, name);
        values[have] = value != nullptr ? value_of(value) : name == g_name ? Py_NewRef(PyList_GET_ITEM(gs, 0)) : nullptr;
        if (values[have] == nullptr) break;
    }
    Ref fn(Ref::to(rule_slots(rule, rule_fn)));
    PyObject* answer = have == count ? PyObject_Vectorcall(fn, values, count, nullptr) : nullptr;
    while (have > 0) Py_DECREF(values[--have]);
    return answer;
}

// g times a factor, conjugated.
PyObject* times(PyObject* g, PyObject* factor) {
    if (factor == one || (PyFloat_CheckExact(factor) && PyFloat_AS_DOUBLE(factor) == 1)) return Py_NewRef(g);
    PyArrayObject* array = cpu_array(factor);
    int type = array != nullptr ? PyArray_TYPE(array) : NPY_BOOL;
    return PyTypeNum_ISFLOAT(type) ? PyNumber_Multiply(g, factor) : ask("times", g, factor);
}

// Whether anyone asks for a node's gradient along an edge: `wanted` is a list of booleans, or null, which is all.
bool is_wanted(PyObject* wanted, Py_ssize_t edge) { return wanted == nullptr || PyList_GetItem(wanted, edge) == Py_True; }

// The gradients of a primitive's tensor arguments, a list; null without an error where Python has to.
PyObject* answers_of(PyObject* node, PyObject* gs, PyObject* wanted) {
    PyObject* sizes = primitive_slots(node, list_sizes);
    if (primitive_slots(node, released) != Py_False || (wanted != nullptr && sizes != Py_None)) return nullptr;
    Ref plan(Ref::to(primitive_slots(node, plan_of)));
    PyObject* vjp = plan_slots(plan, plan_vjp);
    if (vjp != Py_None) {
        Ref answer(run_rule(node, vjp, gs));
        return answer == nullptr ? nullptr : PyTuple_Check(answer) ? PySequence_List(answer) : Py_BuildValue("[O]", answer.object);
    }
    Ref positions(PyObject_GetAttr(primitive_slots(node, prim_of), positions_name));
    Ref answers(positions != nullptr ? PyList_New(PyTuple_GET_SIZE(positions.object)) : nullptr);
    PyObject* rules = plan_slots(plan, plan_rules);
    for (Py_ssize_t i = 0; answers != nullptr && i < PyList_GET_SIZE(answers.object); i++) PyList_SET_ITEM(answers.object, i, Py_NewRef(Py_None));
    for (Py_ssize_t i = 0; answers != nullptr && i < PyList_GET_SIZE(rules); i++) {
        PyObject* rule = PyList_GET_ITEM(rules, i);     // (which, rule, whether its answer is the gradient and not a factor of it)
        if (!is_wanted(wanted, PyLong_AsSsize_t(PyTuple_GET_ITEM(rule, 0)))) continue;
        Ref answer(run_rule(node, PyTuple_GET_ITEM(rule, 1), gs));
        if (answer != nullptr && PyTuple_GET_ITEM(rule, 2) != Py_True) {
            Ref g(Ref::to(PyList_GET_ITEM(gs, 0)));
            answer = Ref(times(g, answer));
        }
        if (answer == nullptr) return nullptr;
        PyList_SetItem(answers, PyLong_AsSsize_t(PyTuple_GET_ITEM(rule, 0)), answer.give());
    }
    return answers.give();
}

// Gradients of lists, which are lists or None, one after another with the others.
PyObject* flattened(PyObject* node, PyObject* answers) {
    Ref made(PyList_New(0)), positions(PyObject_GetAttr(primitive_slots(node, prim_of), positions_name));
    for (Py_ssize_t k = 0; made != nullptr && positions != nullptr && k < PyList_GET_SIZE(answers); k++) {
        PyObject* answer = PyList_GET_ITEM(answers, k);
        PyObject* size = k < PyTuple_GET_SIZE(positions.object) ? PyDict_GetItem(primitive_slots(node, list_sizes), PyTuple_GET_ITEM(positions.object, k)) : nullptr;
        if (size == nullptr) {
            if (PyList_Append(made, answer) < 0) return nullptr;
            continue;
        }
        Ref items(answer != Py_None ? PySequence_Fast(answer, "the gradients of a list are a list or a tuple") : nullptr);
        if (answer != Py_None && items == nullptr) return nullptr;
        Py_ssize_t count = items != nullptr ? PySequence_Fast_GET_SIZE(items.object) : PyLong_AsSsize_t(size);
        for (Py_ssize_t i = 0; i < count; i++)
            if (PyList_Append(made, items != nullptr ? PySequence_Fast_GET_ITEM(items.object, i) : Py_None) < 0) return nullptr;
    }
    return positions != nullptr ? made.give() : nullptr;
}

// The gradients that a primitive's node passes on along its edges, a list; null without an error where Python has to.
PyObject* gradients(PyObject* node, PyObject* gs, PyObject* wanted) {
    if (Py_TYPE(node)->tp_base != primitive_node) return nullptr;
    Ref answers(answers_of(node, gs, wanted));
    return answers == nullptr || primitive_slots(node, list_sizes) == Py_None ? answers.give() : flattened(node, answers);
}

PyObject* apply(PyObject* node, PyObject* gs, bool plainly, PyObject* wanted) {
    if (!plainly || is_watched()) return ask("apply", node, gs);
    PyObject* made = gradients(node, gs, wanted);
    if (made != nullptr) return made;
    if (!PyErr_Occurred()) return ask("apply", node, gs);
    if (PyErr_ExceptionMatches(PyExc_Exception)) {
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        Ref told(ask("explain", node));
        if (told == nullptr) return Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace), nullptr;     // a warning that is an error
        PyErr_Restore(type, value, trace);
    }
    return nullptr;
}

// `grad` in the shape and dtype of what it belongs to.
PyObject* fit(PyObject* grad, PyObject* edge, PyObject* node) {
    PyObject* specs = node_slots(PyTuple_GET_ITEM(edge, 0), output_specs);
    Py_ssize_t output = PyLong_AsSsize_t(PyTuple_GET_ITEM(edge, 1));
    if (PyTuple_Check(specs) && output < PyTuple_GET_SIZE(specs) && is_plain_tensor(grad)) {
        PyObject *spec = PyTuple_GET_ITEM(specs, output), *layout = layout_of(grad);
        if (layout == nullptr && PyErr_Occurred()) return nullptr;
        if (spec == Py_None) return Py_NewRef(grad);
        if (layout != nullptr && read_slot(grad, known_slots().dtype) == PyTuple_GET_ITEM(spec, 1)) {
            int same = PyObject_RichCompareBool(PyTuple_GET_ITEM(layout, 0), PyTuple_GET_ITEM(spec, 0), Py_EQ);
            if (same != 0) return same < 0 ? nullptr : Py_NewRef(grad);
        }
    }
    return ask("fit", grad, edge, node);
}

// Adds a gradient, whose reference is taken over, to what an edge's node was sent.
bool add(PyObject* buffers, PyObject* edge, Ref grad) {
    PyObject* node = PyTuple_GET_ITEM(edge, 0);
    Py_ssize_t output = PyLong_AsSsize_t(PyTuple_GET_ITEM(edge, 1));
    Ref have(Ref::to(PyDict_GetItemWithError(buffers, node)));
    if (have == nullptr) {
        if (PyErr_Occurred()) return false;
        Py_ssize_t outputs = std::max<Py_ssize_t>(PySequence_Size(node_slots(node, output_specs)), 1);
        have = Ref(PyList_New(outputs));
        for (Py_ssize_t i = 0; have != nullptr && i < outputs; i++) PyList_SET_ITEM(have.object, i, Py_NewRef(Py_None));
        if (have == nullptr || PyDict_SetItem(buffers, node, have) < 0) return false;
    }
    if (output >= PyList_GET_SIZE(have.object)) return PyErr_SetString(PyExc_IndexError, "list index out of range"), false;
    if (PyList_GET_ITEM(have.object, output) != Py_None) {
        Ref before(Ref::to(PyList_GET_ITEM(have.object, output)));
        bool alike = is_plain_tensor(before) && is_plain_tensor(grad) && read_slot(before, known_slots().dtype) == read_slot(grad, known_slots().dtype);
        grad = Ref(alike ? PyNumber_Add(before, grad) : ask("plus", before.object, grad.object));
        if (grad == nullptr) return false;
    }
    return PyList_SetItem(have, output, grad.give()) == 0;
}

bool any_given(PyObject* gs) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(gs); i++)
        if (PyList_GET_ITEM(gs, i) != Py_None) return true;
    return false;
}

// Runs one node and passes its gradients on along the edges that are wanted.
bool send(PyObject* node, PyObject* gs, PyObject* buffers, bool plainly, PyObject* wanted) {
    if (!any_given(gs)) return true;
    Ref grads(apply(node, gs, plainly, wanted)), hooks(grads != nullptr ? PyObject_GetAttr(node, post_hooks) : nullptr);
    if (hooks == nullptr) return false;
    if (hooks != Py_None) grads = Ref(ask("run_post_hooks", node, grads.object, gs));
    grads = Ref(grads != nullptr ? PySequence_Fast(grads, "the gradients of a node are a list or a tuple") : nullptr);
    Ref to(grads != nullptr ? PySequence_Fast(node_slots(node, edges), "edges are a list or a tuple") : nullptr);
    if (to == nullptr) return false;
    for (Py_ssize_t i = 0; i < std::min(PySequence_Fast_GET_SIZE(to.object), PySequence_Fast_GET_SIZE(grads.object)); i++) {
        PyObject *edge = PySequence_Fast_GET_ITEM(to.object, i), *grad = PySequence_Fast_GET_ITEM(grads.object, i);
        if (edge == Py_None || grad == Py_None || !is_wanted(wanted, i)) continue;
        Ref fitted(fit(grad, edge, node));
        if (PyList_CheckExact(grads)) PyList_SetItem(grads, i, Py_NewRef(Py_None));     // it is passed on, not kept
        if (fitted == nullptr || !add(buffers, edge, std::move(fitted))) return false;
    }
    return true;
}

// Lets go of what the node kept.
bool release_node(PyObject* node) {
    if (Py_TYPE(node)->tp_base != primitive_node) return Ref(ask("release", node)) != nullptr;
    put(primitive_slots(node, released), Py_True);
    PyObject *kept = primitive_slots(node, saved_of), *name, *value;
    for (Py_ssize_t at = 0; PyDict_Next(kept, &at, &name, &value);) {
        bool holds = Py_IS_TYPE(value, saved);
        for (Py_ssize_t i = 0; !holds && PyList_CheckExact(value) && i < PyList_GET_SIZE(value); i++) holds = Py_IS_TYPE(PyList_GET_ITEM(value, i), saved);
        if (holds && PyDict_SetItem(kept, name, gone) < 0) return false;
    }
    return true;
}

struct Ready {
    int64_t number;
    PyObject* node;     // a reference
    bool operator<(const Ready& other) const { return number < other.number; }     // the last recorded comes first, leaves before all
};

struct Walk {
    PyObject *current, *counts, *buffers, *targets, *accumulate, *useful, *captured;
    bool retain, plainly, own;  // own: `accumulate` is the engine's
    std::priority_queue<Ready> ready;

    ~Walk() {
        for (; !ready.empty(); ready.pop()) Py_DECREF(ready.top().node);
    }

    bool push(PyObject* node) {
        int64_t number = PyLong_AsLongLong(node_slots(node, sequence));
        if (number == -1 && PyErr_Occurred()) return false;
        return ready.push({number, Py_NewRef(node)}), true;
    }

    bool all() {
        while (!ready.empty()) {
            Ref node(ready.top().node);
            ready.pop();
            if (!visit(node) || !count_down(node)) return false;
            if (PyErr_CheckSignals() < 0) return false;
        }
        return true;
    }

    bool count_down(PyObject* node) {
        Ref to(PySequence_Fast(node_slots(node, edges), "edges are a list or a tuple"));
        if (to == nullptr) return false;
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(to.object); i++) {
            PyObject* edge = PySequence_Fast_GET_ITEM(to.object, i);
            if (edge == Py_None) continue;
            PyObject *child = PyTuple_GET_ITEM(edge, 0), *count = PyDict_GetItemWithError(counts, child);
            if (count == nullptr) return PyErr_Occurred() ? false : (PyErr_SetObject(PyExc_KeyError, child), false);
            long left = PyLong_AsLong(count) - 1;
            Ref now(PyLong_FromLong(left));
            if (now == nullptr || PyDict_SetItem(counts, child, now) < 0 || (left == 0 && !push(child))) return false;
        }
        return true;
    }

    // Whether one of the node's edges leads to something useful; which do, if not all.
    int leads_on(PyObject* node, Ref& wanted) {
        Ref to(PySequence_Fast(node_slots(node, edges), "edges are a list or a tuple"));
        Ref which(to != nullptr ? PyList_New(PySequence_Fast_GET_SIZE(to.object)) : nullptr);
        if (which == nullptr) return -1;
        bool some = false, all = true;
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(to.object); i++) {
            PyObject* edge = PySequence_Fast_GET_ITEM(to.object, i);
            int found = edge == Py_None ? 0 : PySet_Contains(useful, PyTuple_GET_ITEM(edge, 0));
            if (found < 0) return -1;
            some = some || found;
            all = all && (found || edge == Py_None);
            PyList_SET_ITEM(which.object, i, Py_NewRef(found ? Py_True : Py_False));
        }
        if (some && !all) wanted = std::move(which);
        return some;
    }

    // Runs a node for the gradients that are wanted, which Python reads in the node.
    bool run(PyObject* node, PyObject* gs, PyObject* wanted) {
        if (wanted != nullptr && PyObject_SetAttr(node, wanted_name, wanted) < 0) return false;
        bool sent = tell(node) &&
                    (is_watched() ? Ref(ask("send_watched", node, gs, buffers)) != nullptr : send(node, gs, buffers, plainly, wanted));
        if (wanted == nullptr) return sent;
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        bool whole = PyObject_SetAttr(node, wanted_name, Py_None) == 0;
        if (whole) PyErr_Restore(type, value, trace);
        return sent && whole;
    }

    bool visit(PyObject* node) {
        Ref gs(Ref::to(PyDict_GetItemWithError(buffers, node)));
        if (gs == nullptr) return !PyErr_Occurred();
        if (PyDict_DelItem(buffers, node) < 0) return false;
        Ref hooks(PyObject_GetAttr(node, pre_hooks));
        if (hooks == nullptr) return false;
        if (hooks != Py_None) gs = Ref(ask("run_pre_hooks", node, gs.object));
        PyObject* numbers = gs != nullptr && targets != nullptr ? PyDict_GetItemWithError(targets, node) : nullptr;
        if (gs == nullptr || (numbers == nullptr && PyErr_Occurred())) return false;
        if (numbers != nullptr && Ref(ask("capture", captured, node, numbers, gs.object)) == nullptr) return false;
        if (Py_IS_TYPE(node, sink)) return accumulate == nullptr || (targets != nullptr && numbers == nullptr) || arrive(node, std::move(gs));
        Ref wanted;
        int leads = useful == nullptr ? 1 : leads_on(node, wanted);
        if (leads <= 0) return leads == 0;
        return run(node, gs, wanted) && (retain || release_node(node));
    }

    // Which node runs now; and, where it asks, whether it is the last time.
    bool tell(PyObject* node) {
        if (PyObject_SetAttr(current, node_name, node) < 0) return false;
        if (Py_TYPE(node)->tp_base == primitive_node) return true;
        Ref knows(PyObject_GetAttr(node, knows_last));
        return knows != nullptr && (knows != Py_True || PyObject_SetAttr(node, last_name, retain ? Py_False : Py_True) == 0);
    }

    // The gradient of a leaf. Nobody else holds it, if it is nobody's: it may become the leaf's own.
    bool arrive(PyObject* node, Ref gs) {
        Ref hooks(PyObject_GetAttr(node, post_hooks));
        Ref taken(hooks != nullptr && hooks != Py_None ? PyList_AsTuple(gs) : nullptr);
        Ref g(Ref::to(PyList_GET_ITEM(gs.object, 0)));
        if (hooks == nullptr || (hooks != Py_None && taken == nullptr)) return false;
        gs = Ref();
        bool stored = own && !is_watched() && !dispatch_state.grad_enabled && take_first_gradient(sink_slots(node, variable), g);
        if (!stored && is_watched()) {
            Ref box(PyList_New(1));
            if (box == nullptr) return false;
            PyList_SET_ITEM(box.object, 0, g.give());
            stored = Ref(ask("accumulate_watched", accumulate, node, box.object)) != nullptr;
        } else if (!stored) {
            PyObject* given[] = {node, g};
            stored = Ref(PyObject_Vectorcall(accumulate, given, 2, nullptr)) != nullptr;
        }
        return stored && (taken == nullptr || Ref(ask("run_post_hooks", node, Ref(PyList_New(0)).object, taken.object)) != nullptr);
    }
};

PyObject* or_none(PyObject* object) { return object == Py_None ? nullptr : object; }

// walk(start, counts, buffers, targets, accumulate, useful, captured, retain_graph, plainly, current)
PyObject* walk(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 10 || !PyList_Check(args[0]) || !PyDict_Check(args[1]) || !PyDict_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "expected walk(start, counts, buffers, targets, accumulate, useful, captured, retain_graph, plainly, current)");
    bool own = args[4] == PyDict_GetItemString(python, "accumulate");
    Walk walk{args[9], args[1], args[2], or_none(args[3]), or_none(args[4]), or_none(args[5]), args[6], args[7] == Py_True, args[8] == Py_True, own, {}};
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[0]); i++)
        if (!walk.push(PyList_GET_ITEM(args[0], i))) return nullptr;
    return walk.all() ? Py_NewRef(Py_None) : nullptr;
}

// dependencies(roots) -> ({node: how many edges lead into it}, the nodes)
PyObject* dependencies(PyObject*, PyObject* roots) {
    Ref counts(PyDict_New()), order(PySequence_List(roots)), one_edge(PyLong_FromLong(1));
    Ref reached(order != nullptr ? PySet_New(roots) : nullptr);
    if (counts == nullptr || reached == nullptr || one_edge == nullptr) return nullptr;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(order.object); at++) {
        Ref to(PySequence_Fast(node_slots(PyList_GET_ITEM(order.object, at), edges), "edges are a list or a tuple"));
        for (Py_ssize_t i = 0; to != nullptr && i < PySequence_Fast_GET_SIZE(to.object); i++) {
            PyObject* edge = PySequence_Fast_GET_ITEM(to.object, i);
            if (edge == Py_None) continue;
            PyObject *child = PyTuple_GET_ITEM(edge, 0), *count = PyDict_GetItemWithError(counts, child);
            Ref more(count == nullptr ? one_edge.give() : PyLong_FromLong(PyLong_AsLong(count) + 1));
            if (count == nullptr) {
                one_edge = Ref::to(more);
                int known = PyErr_Occurred() ? -1 : PySet_Contains(reached, child);
                if (known < 0 || (known == 0 && (PySet_Add(reached, child) < 0 || PyList_Append(order, child) < 0))) return nullptr;
            }
            if (more == nullptr || PyDict_SetItem(counts, child, more) < 0) return nullptr;
        }
        if (to == nullptr) return nullptr;
    }
    return PyTuple_Pack(2, counts.object, order.object);
}

PyObject* send_on(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 3 || !PyList_Check(args[1]) || !PyDict_Check(args[2])) return PyErr_Format(PyExc_TypeError, "expected send(node, gs, buffers)");
    Ref wanted(PyObject_GetAttr(args[0], wanted_name));
    return wanted != nullptr && send(args[0], args[1], args[2], false, or_none(wanted)) ? Py_NewRef(Py_None) : nullptr;
}

PyObject* add_to(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 3 || !PyDict_Check(args[0]) || !PyTuple_Check(args[1])) return PyErr_Format(PyExc_TypeError, "expected add_gradient(buffers, edge, grad)");
    return add(args[0], args[1], Ref::to(args[2])) ? Py_NewRef(Py_None) : nullptr;
}

PyObject* hang_on(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 3 || !PyTuple_Check(args[1])) return PyErr_Format(PyExc_TypeError, "expected hang(prim, args, out)");
    return hang(args[0], args[1], args[2]) ? Py_NewRef(Py_None) : nullptr;
}

PyObject* new_sink(PyObject*, PyObject* leaf) {
    return is_tensor(leaf) ? sink_of(leaf) : PyErr_Format(PyExc_TypeError, "expected a Tensor, got %R", (PyObject*)Py_TYPE(leaf));
}

PyObject* trace_nodes(PyObject*, PyObject* flag) {
    int told = PyObject_IsTrue(flag);
    if (told < 0) return nullptr;
    traced = told;
    Py_RETURN_NONE;
}

PyObject* know_tape(PyObject*, PyObject* args) {
    PyTypeObject *node, *kept, *plan, *rule;
    PyObject* functions;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!O!O!O!OO!", &PyType_Type, &node, &PyType_Type, &primitive_node, &PyType_Type, &sink, &PyType_Type, &kept,
                          &PyType_Type, &plan, &PyType_Type, &rule, &PyType_Type, &edge_type, &PyType_Type, &spec_type, &gone, &PyDict_Type, &functions))
        return nullptr;
    if (!node_slots.learn(node) || !primitive_slots.learn(primitive_node) || !saved_slots.learn(kept) || !plan_slots.learn(plan) ||
        !rule_slots.learn(rule) || !sink_slots.learn(sink) || !PyType_IsSubtype(edge_type, &PyTuple_Type) || !PyType_IsSubtype(spec_type, &PyTuple_Type))
        return PyErr_Format(PyExc_TypeError, "these classes do not have the slots of the tape's");
    saved = kept;
    for (PyObject* held : {(PyObject*)primitive_node, (PyObject*)sink, (PyObject*)saved, (PyObject*)edge_type, (PyObject*)spec_type, gone}) Py_INCREF(held);
    zero = PyLong_FromLong(0), one = PyLong_FromLong(1), earliest = PyLong_FromLongLong(1LL << 62);
    const std::pair<PyObject**, const char*> names[] = {
        {&category_name, "category"}, {&positions_name, "tensor_positions"}, {&plans_name, "plans"}, {&derivative_name, "derivative"}, {&pre_hooks, "pre_hooks"},
        {&post_hooks, "post_hooks"}, {&knows_last, "knows_last"}, {&last_name, "last"}, {&node_name, "node"}, {&g_name, "g"}, {&grad_dtype_name, "_grad_dtype"},
        {&wanted_name, "wanted"}, {&answers_views_name, "answers_views"},
    };
    for (const auto& [name, text] : names)
        if ((*name = PyUnicode_InternFromString(text)) == nullptr) return nullptr;
    python = Py_NewRef(functions);
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"know_tape", know_tape, METH_VARARGS,
     "know_tape(Node, PrimitiveNode, AccumulateGrad, Saved, Plan, Rule, Edge, Output, RELEASED, functions)\n\nOnce, before anything is recorded: "
     "the classes of the tape, and what is left to Python by name."},
    {"hang", (PyCFunction)(void*)hang_on, METH_FASTCALL,
     "hang(prim, args, out)\n\nRecord that `prim` made `out`, a tensor or a tuple, of `args`, if one of them needs a gradient."},
    {"new_sink", new_sink, METH_O, "new_sink(leaf)\n\nThe node that adds what arrives to the gradient of a leaf, which knows it from now on."},
    {"trace_nodes", trace_nodes, METH_O, "trace_nodes(flag)\n\nWhether nodes remember where they were made, from here on."},
    {"walk", (PyCFunction)(void*)walk, METH_FASTCALL,
     "walk(start, counts, buffers, targets, accumulate, useful, captured, retain_graph, plainly, current)\n\nA backward pass from the nodes in "
     "`start` on (flambeau/autograd/engine.py)."},
    {"dependencies", dependencies, METH_O,
     "dependencies(roots)\n\nHow many edges lead into each node that can be reached, {node: count}; and a list of them with the roots."},
    {"send", (PyCFunction)(void*)send_on, METH_FASTCALL, "send(node, gs, buffers)\n\nRun one node and pass its gradients on along the edges."},
    {"add_gradient", (PyCFunction)(void*)add_to, METH_FASTCALL, "add_gradient(buffers, edge, grad)\n\nAdd a gradient to what an edge's node was sent."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyObject* expanded(PyObject* tensor, PyObject* sizes) { return ask("expand", tensor, sizes); }

void add_tape(PyObject* module) { PyModule_AddFunctions(module, methods); }
