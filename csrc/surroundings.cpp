// Surroundings: is everything around a compiled function as it was when it was captured? Grad mode and modes of this thread, and what
// names are bound to: settings of the process, functions in modules and classes, which a program (a test, a profiler) may rebind.
//
// A call compares one version for each dict and class. Only where something was written since are the names looked up, and if they are
// bound to what they were, the new version is remembered.
#include "module.h"
#include "state.h"
#include "surroundings.h"
#include "versions.h"

#include <vector>

namespace {

enum class Kind { dict, list, type, function };

// What a name has to be bound to.
enum class Wanted {
    same,     // this very object
    equal,    // an equal one of its type
    absent,   // nothing
    no_other, // nothing, or this object: modules fill in names when they are first asked for
    plain,    // anything that isn't a descriptor; what it is, is guarded elsewhere
    present,  // anything
};
const char* wanted_names[] = {"same", "equal", "absent", "no_other", "plain", "present"};

struct Name {
    PyObject* key;  // a text; of a list, an index; of a function, None: its code
    Wanted wanted;
    PyObject* value;
};

struct Place {
    PyObject* owner;
    Kind kind;
    uint64_t version;
    std::vector<Name> names;
};

struct Surroundings {
    PyObject_HEAD
    long recording, overrides;
    PyObject *autocast, *devices;  // autocast's settings, and where factories make tensors; null: untouched
    std::vector<Place>* places;
    vectorcallfunc vectorcall;
};

// ------------------------------------------------------------------------------------------------------------- checking
uint64_t version_now(const Place& place) {
    if (place.kind == Kind::dict) return version_of(place.owner);
    return place.kind == Kind::type ? version_of_type(place.owner) : 0;
}

// Borrowed; null: nothing there, or an error is set.
PyObject* bound_to(const Place& place, const Name& name) {
    switch (place.kind) {
        case Kind::dict: return PyDict_GetItemWithError(place.owner, name.key);
        case Kind::type: return _PyType_Lookup((PyTypeObject*)place.owner, name.key);
        case Kind::function: return PyFunction_GET_CODE(place.owner);
        default: break;
    }
    Py_ssize_t index = PyLong_AsSsize_t(name.key);
    return index < PyList_GET_SIZE(place.owner) ? PyList_GET_ITEM(place.owner, index) : nullptr;
}

// 1, 0, or -1 with an error set.
int fits(const Name& name, PyObject* found) {
    switch (name.wanted) {
        case Wanted::absent: return found == nullptr;
        case Wanted::no_other: return found == nullptr || found == name.value;
        case Wanted::plain: return found != nullptr && Py_TYPE(found)->tp_descr_get == nullptr;
        case Wanted::present: return found != nullptr;
        default: break;
    }
    if (found == name.value) return 1;
    if (name.wanted == Wanted::same || found == nullptr || Py_TYPE(found) != Py_TYPE(name.value)) return 0;
    Py_INCREF(found);
    int equal = PyObject_RichCompareBool(found, name.value, Py_EQ);
    Py_DECREF(found);
    return equal;
}

// The first name that is bound to something else; null if there is none, or an error is set.
const Name* find_other(const Place& place) {
    for (const Name& name : place.names) {
        PyObject* found = bound_to(place, name);
        if (found == nullptr && PyErr_Occurred()) return nullptr;
        int good = fits(name, found);
        if (good < 0) return nullptr;
        if (good == 0) return &name;
    }
    return nullptr;
}

// 1, 0, or -1 with an error set.
int is_unchanged(Place& place) {
    uint64_t version = version_now(place);
    if (version != 0 && version == place.version) return 1;
    const Name* other = find_other(place);
    if (PyErr_Occurred()) return -1;
    // A class has got its version by being asked. Nothing was written to a dict by asking it.
    if (other == nullptr) place.version = version_now(place);
    return other == nullptr;
}

// Of two objects, which may be null.
int is_equal(PyObject* a, PyObject* b) {
    if (a == b) return 1;
    return a == nullptr || b == nullptr ? 0 : PyObject_RichCompareBool(a, b, Py_EQ);
}

// 1, 0, or -1 with an error set.
int same_state(const Surroundings* self) {
    const DispatchState& state = dispatch_state;
    long recording = state.grad_enabled | state.inference << 1 | state.asked << 2;
    if (state.word != 0 || recording != self->recording || takes_over(state) != self->overrides) return 0;
    int same = is_equal(autocast_settings(), self->autocast);
    return same == 1 ? is_equal(state.devices, self->devices) : same;
}

PyObject* surroundings_call(PyObject* object, PyObject* const*, size_t flags, PyObject* names) {
    Surroundings* self = (Surroundings*)object;
    if (PyVectorcall_NARGS(flags) != 0 || names != nullptr)
        return PyErr_SetString(PyExc_TypeError, "Surroundings are called without arguments"), nullptr;
    int same = same_state(self);
    if (same == 1) same = places_unchanged(object);
    return same < 0 ? nullptr : Py_NewRef(same == 1 ? Py_True : Py_False);
}

PyObject* surroundings_difference(PyObject* object, PyObject*) {
    Surroundings* self = (Surroundings*)object;
    int same = same_state(self);
    if (same < 0) return nullptr;
    if (same == 0) return PyUnicode_FromString("grad mode, inference mode, autocast, the default device or the active modes");
    for (const Place& place : *self->places) {
        const Name* other = find_other(place);
        if (PyErr_Occurred()) return nullptr;
        if (other != nullptr) return Py_BuildValue("(OO)", place.owner, other->key);
    }
    Py_RETURN_NONE;
}

// ------------------------------------------------------------------------------------------------------------- the type
// One name as Python gives it: (key, what is wanted, value).
bool read_name(Place& place, PyObject* tuple) {
    PyObject *key, *value;
    const char* wanted;
    if (!PyTuple_Check(tuple) || !PyArg_ParseTuple(tuple, "OsO", &key, &wanted, &value)) return false;
    bool good_key = place.kind == Kind::list ? PyLong_CheckExact(key) && PyLong_AsSsize_t(key) >= 0
                                             : place.kind == Kind::function || PyUnicode_CheckExact(key);
    for (size_t i = 0; good_key && i < std::size(wanted_names); i++) {
        if (strcmp(wanted, wanted_names[i]) != 0) continue;
        place.names.push_back({Py_NewRef(key), (Wanted)i, Py_NewRef(value)});
        return true;
    }
    return false;
}

// One place: (dict, list, class or function, names).
bool read_place(std::vector<Place>& places, PyObject* tuple) {
    PyObject *owner, *names;
    if (!PyTuple_Check(tuple) || !PyArg_ParseTuple(tuple, "OO!", &owner, &PyTuple_Type, &names)) return false;
    Kind kind = Kind::function;
    if (PyDict_CheckExact(owner)) kind = Kind::dict;
    else if (PyList_CheckExact(owner)) kind = Kind::list;
    else if (PyType_Check(owner)) kind = Kind::type;
    else if (!PyFunction_Check(owner)) return false;
    places.push_back({Py_NewRef(owner), kind, 0, {}});
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++)
        if (!read_name(places.back(), PyTuple_GET_ITEM(names, i))) return false;
    return true;
}

PyObject* surroundings_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
    static const char* argument_names[] = {"recording", "overrides", "autocast", "devices", "places", nullptr};
    long recording, overrides;
    PyObject *autocast, *devices, *places;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "llOOO!:Surroundings", (char**)argument_names, &recording, &overrides, &autocast,
                                     &devices, &PyTuple_Type, &places))
        return nullptr;
    Surroundings* self = (Surroundings*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->recording = recording, self->overrides = overrides;
    self->autocast = autocast == Py_None ? nullptr : Py_NewRef(autocast);
    self->devices = devices == Py_None ? nullptr : Py_NewRef(devices);
    self->places = new std::vector<Place>;
    self->vectorcall = surroundings_call;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(places); i++) {
        if (read_place(*self->places, PyTuple_GET_ITEM(places, i))) continue;
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "Surroundings(): place %zd can't be read: %R", i, PyTuple_GET_ITEM(places, i));
        Py_DECREF(self);
        return nullptr;
    }
    return (PyObject*)self;
}

int surroundings_traverse(PyObject* object, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Surroundings*)object)->autocast);
    Py_VISIT(((Surroundings*)object)->devices);
    for (const Place& place : *((Surroundings*)object)->places) {
        Py_VISIT(place.owner);
        for (const Name& name : place.names) {
            Py_VISIT(name.key);
            Py_VISIT(name.value);
        }
    }
    return 0;
}

int surroundings_clear(PyObject* object) {
    std::vector<Place> places;
    places.swap(*((Surroundings*)object)->places);
    Py_CLEAR(((Surroundings*)object)->autocast);
    Py_CLEAR(((Surroundings*)object)->devices);
    for (Place& place : places) {
        Py_DECREF(place.owner);
        for (Name& name : place.names) {
            Py_DECREF(name.key);
            Py_DECREF(name.value);
        }
    }
    return 0;
}

void surroundings_dealloc(PyObject* object) {
    PyObject_GC_UnTrack(object);
    surroundings_clear(object);
    delete ((Surroundings*)object)->places;
    free_object(object);
}

PyMethodDef surroundings_methods[] = {
    {"difference", surroundings_difference, METH_NOARGS,
     "difference() -> str | tuple | None\n\nThe first thing that is another: of this thread's state, in words; or the place and the name."},
    {nullptr},
};

const char surroundings_doc[] =
    "Surroundings(recording, overrides, autocast, devices, places)\n--\n\n"
    "Whether everything around a compiled function is as it was: `surroundings() -> bool`. `recording` and `overrides` as in the\n"
    "dispatch state, with no mode active; `autocast`: its settings or None; `devices`: as there. `places`: tuples of (owner, names), the owner a dict, a list, a class (with what it\n"
    "inherits) or a function; names: tuples of (key, wanted, value). The key is a text, of a list an index, of a function None, for\n"
    "its code. wanted: 'same', this object; 'equal', an equal one of its type; 'absent', nothing; 'no_other', nothing or this object;\n"
    "'plain', anything that isn't a descriptor; 'present', anything.";

PyType_Slot surroundings_slots[] = {
    {Py_tp_doc, (void*)surroundings_doc},         {Py_tp_new, (void*)surroundings_new},
    {Py_tp_dealloc, (void*)surroundings_dealloc}, {Py_tp_traverse, (void*)surroundings_traverse},
    {Py_tp_clear, (void*)surroundings_clear},     {Py_tp_call, (void*)PyVectorcall_Call},
    {Py_tp_methods, surroundings_methods},        {Py_tp_members, vectorcall_alone<Surroundings>},
    {0, nullptr},
};

PyType_Spec surroundings_spec = {
    "flambeau._C.Surroundings", sizeof(Surroundings), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, surroundings_slots,
};

}  // namespace

int places_unchanged(PyObject* surroundings) {
    for (Place& place : *((Surroundings*)surroundings)->places)
        if (int good = is_unchanged(place); good != 1) return good;
    return 1;
}

void add_surroundings(PyObject* module) { add_type(module, surroundings_spec); }
