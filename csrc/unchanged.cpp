// Unchanged: is what a guard looked at still as it was when the guard last held?
//
// Every dict has a version (versions.h), and no two states of any two dicts of a process ever have the same one. A guard over a
// model reads its modules' dicts; while their versions are those of the last time, it reads the same objects again, and need
// not. Nothing here keeps a module alive: the arguments lead to the first dict, a dict with the version of the last time
// holds the very objects of the last time, these lead to the next dicts, and so on in the order of the plan. So each pointer has
// been proved good by those before it when it is followed.
//
// Not in a dict, and so looked at each time: classes of objects, elements of lists, closure cells, and what a tensor is like.
// Where a version has changed, the entries that the guard reads are looked up and compared (a counter beside the parameters); a
// tensor in the place of another will do if it is alike (a state that each call leaves to the next).
#include "guards.h"
#include "versions.h"

#include <memory>
#include <utility>
#include <vector>

namespace {

// The instance dict of `object`, borrowed; null if it has none.
PyObject* dict_of(PyObject* object) {
    PyObject** place = _PyObject_GetDictPtr(object);
    return place != nullptr ? *place : nullptr;
}

// From 3.12 on an instance's dict may share the instance's own fields, and a write to these leaves its version as it was. A dict
// that something has been popped from has a table of its own from then on.
bool separate(PyObject* dict) {
#if PY_VERSION_HEX >= 0x030C0000
    if (((PyDictObject*)dict)->ma_values == nullptr) return true;
    bool empty = PyDict_GET_SIZE(dict) == 0;
    if (empty && PyDict_SetItemString(dict, "", Py_None) < 0) return false;
    PyObject* last = PyObject_CallMethod(dict, "popitem", nullptr);
    if (last == nullptr) return false;
    bool good = empty || PyDict_SetItem(dict, PyTuple_GET_ITEM(last, 0), PyTuple_GET_ITEM(last, 1)) == 0;
    Py_DECREF(last);
    return good && ((PyDictObject*)dict)->ma_values == nullptr;
#else
    (void)dict;
    return true;
#endif
}

// ------------------------------------------------------------------------------------------------------------- the plan
// What a child of a node is to be.
enum class Goal { absent, node, tensor, value, object };

struct Child {
    PyObject* key;     // of a dict or class; null for
    Py_ssize_t index;  // the place in a list or tuple; of a function: -1, its code; even, a cell; odd, a default
    Goal goal;
    size_t node;     // which node it is
    PyObject* spec;  // what the tensor is to be like
    bool fixed;      // it has to be the very tensor of the last time
};

enum class Kind { object, dict, sequence, function, type };

struct Node {
    Kind kind;
    Py_ssize_t root;     // the argument that it is, or -1
    PyObject* constant;  // the object that it is, or null
    bool whole;          // the guard depends on all keys
    bool leads;          // to tensors
    size_t first, last;  // its children
};

struct Plan {
    std::vector<Node> nodes;  // parents before children
    std::vector<Child> children;
    std::vector<size_t> tensors;  // which children
    Py_ssize_t roots = 0;
};

// Does it lead to tensors?
bool leads(const Plan& plan, const Child& child) {
    return child.goal == Goal::tensor || (child.goal == Goal::node && plan.nodes[child.node].leads);
}

// ----------------------------------------------------------------------------------------------------------- the memory
struct Found {
    PyObject* object;  // borrowed, as all pointers here but `values`
    PyTypeObject* type;
    PyObject* dict;
    uint64_t version;
    Py_ssize_t size;
};

// One time that the guard held.
struct Memory {
    std::vector<PyObject*> roots;
    std::vector<Found> nodes;
    std::vector<PyObject*> children;
    std::vector<PyObject*> values;  // numbers, texts and the like, which have to stay the ones at these addresses

    ~Memory() {
        for (PyObject* value : values) Py_DECREF(value);
    }
};

using Shared = std::shared_ptr<Memory>;

struct Unchanged {
    PyObject_HEAD
    Plan* plan;
    std::vector<Shared>* memories;
    std::vector<std::vector<PyObject*>>* promising;  // roots for which the guard held, but nobody looked
    size_t oldest;
    vectorcallfunc vectorcall;
};

// Many modules of one class may be served by one guard; for more than this the oldest is forgotten.
constexpr size_t most_memories = 256;

// What `child` of an object is now, borrowed. Null: nothing, or an error is set.
PyObject* read_child(Kind kind, PyObject* object, PyObject* dict, const Child& child) {
    if (kind == Kind::type) return _PyType_Lookup((PyTypeObject*)object, child.key);
    if (child.key != nullptr) return dict != nullptr ? PyDict_GetItemWithError(dict, child.key) : nullptr;
    if (kind == Kind::sequence) {
        Py_ssize_t size = PyList_CheckExact(object) ? PyList_GET_SIZE(object) : PyTuple_GET_SIZE(object);
        if (child.index >= size) return nullptr;
        return PyList_CheckExact(object) ? PyList_GET_ITEM(object, child.index) : PyTuple_GET_ITEM(object, child.index);
    }
    if (child.index < 0) return PyFunction_GET_CODE(object);
    bool is_default = child.index % 2;
    PyObject* items = is_default ? PyFunction_GET_DEFAULTS(object) : PyFunction_GET_CLOSURE(object);
    if (items == nullptr || child.index / 2 >= PyTuple_GET_SIZE(items)) return nullptr;
    PyObject* item = PyTuple_GET_ITEM(items, child.index / 2);
    return is_default ? item : PyCell_GET(item);
}

bool is_kind(Kind kind, PyObject* object) {
    switch (kind) {
        case Kind::object: return true;
        case Kind::dict: return PyDict_Check(object);
        case Kind::sequence: return PyList_CheckExact(object) || PyTuple_CheckExact(object);
        case Kind::function: return PyFunction_Check(object);
        default: return PyType_Check(object);
    }
}

// What to look at: all, or what leads to tensors.
enum class Scope { all, tensors };

// Looks at everything in the plan. Null where it leads nowhere (perhaps with an error set).
Shared look(const Plan& plan, PyObject* const* roots, Scope scope = Scope::all) {
    Shared memory = std::make_shared<Memory>();
    memory->roots.assign(roots, roots + plan.roots);
    memory->nodes.resize(plan.nodes.size());
    memory->children.resize(plan.children.size());
    std::vector<PyObject*> reached;  // kept alive while we look: making an instance's dict may run the garbage collector
    bool good = true;
    for (size_t i = 0; good && i < plan.nodes.size(); i++) {
        const Node& node = plan.nodes[i];
        Found& found = memory->nodes[i];
        if (scope == Scope::tensors && !node.leads) continue;
        if (node.root >= 0) found.object = roots[node.root];
        if (node.constant != nullptr) found.object = node.constant;
        reached.push_back(Py_NewRef(found.object));
        if (!is_kind(node.kind, found.object)) good = false;
        else found.type = Py_TYPE(found.object), found.size = Py_SIZE(found.object);
        bool reads = node.whole || node.first < node.last;
        if (good && reads && (node.kind == Kind::object || node.kind == Kind::dict)) {
            found.dict = node.kind == Kind::object ? dict_of(found.object) : found.object;
            good = found.dict != nullptr && separate(found.dict);
            if (good) found.version = version_of(found.dict);
        }
        for (size_t c = node.first; good && c < node.last; c++) {
            const Child& child = plan.children[c];
            if (scope == Scope::tensors && !leads(plan, child)) continue;
            PyObject* value = memory->children[c] = read_child(node.kind, found.object, found.dict, child);
            good = (value == nullptr) == (child.goal == Goal::absent) && !PyErr_Occurred();
            if (good && child.goal == Goal::node) memory->nodes[child.node].object = value;
            if (good && child.goal == Goal::value) memory->values.push_back(Py_NewRef(value));
        }
    }
    for (PyObject* object : reached) Py_DECREF(object);
    return good ? memory : nullptr;
}

// 1, 0, or -1 with an error set. `strict`: nothing at all may have been written since.
int still_there(const Plan& plan, Memory& memory, bool strict, Scope scope = Scope::all) {
    for (size_t i = 0; i < plan.nodes.size(); i++) {
        const Node& node = plan.nodes[i];
        Found& found = memory.nodes[i];
        if (scope == Scope::tensors && !node.leads) continue;
        if (Py_TYPE(found.object) != found.type) return 0;
        uint64_t version = 0;
        if (found.dict != nullptr) {
            if (node.kind == Kind::object && dict_of(found.object) != found.dict) return 0;
            version = version_of(found.dict);
            if (version == found.version) continue;
            if (strict || node.whole) return 0;
        } else if (node.kind == Kind::sequence && Py_SIZE(found.object) != found.size) {
            return 0;
        }
        for (size_t c = node.first; c < node.last; c++) {
            const Child& child = plan.children[c];
            PyObject* value = read_child(node.kind, found.object, found.dict, child);
            if (value == memory.children[c]) continue;
            if (PyErr_Occurred()) return -1;
            if (strict || value == nullptr || child.goal != Goal::tensor || child.fixed) return 0;
            memory.children[c] = value;
        }
        if (PyErr_Occurred()) return -1;
        found.version = version;
    }
    return 1;
}

// The same for the tensors. Asking a view whether it requires a gradient is Python, so all are kept alive meanwhile.
int tensors_fit(const Plan& plan, const Memory& memory) {
    std::vector<PyObject*> tensors;
    tensors.reserve(plan.tensors.size());
    for (size_t c : plan.tensors) tensors.push_back(Py_NewRef(memory.children[c]));
    int fit = 1;
    for (size_t i = 0; fit == 1 && i < tensors.size(); i++) fit = tensor_fits(plan.children[plan.tensors[i]].spec, tensors[i]);
    for (PyObject* tensor : tensors) Py_DECREF(tensor);
    return fit;
}

bool same_roots(const std::vector<PyObject*>& known, PyObject* const* roots) {
    for (size_t i = 0; i < known.size(); i++)
        if (known[i] != roots[i]) return false;
    return true;
}

// --------------------------------------------------------------------------------------------------- the Python surface
bool right_count(Unchanged* self, Py_ssize_t count, const char* function) {
    if (count == self->plan->roots) return true;
    PyErr_Format(PyExc_TypeError, "%s: %zd arguments expected, got %zd", function, self->plan->roots, count);
    return false;
}

void forget(Unchanged* self, const Shared& memory) {
    for (Shared& each : *self->memories) {
        if (each != memory) continue;
        Shared last = std::move(each);
        each = std::move(self->memories->back());
        self->memories->pop_back();
        return;
    }
}

Shared remembered(Unchanged* self, PyObject* const* roots) {
    for (const Shared& memory : *self->memories)
        if (same_roots(memory->roots, roots)) return memory;
    return nullptr;
}

PyObject* unchanged_call(PyObject* object, PyObject* const* roots, size_t flags, PyObject*) {
    Unchanged* self = (Unchanged*)object;
    if (!right_count(self, PyVectorcall_NARGS(flags), "Unchanged()")) return nullptr;
    Shared memory = remembered(self, roots);  // another thread may forget it meanwhile
    if (memory == nullptr) Py_RETURN_FALSE;
    int good = still_there(*self->plan, *memory, false);
    if (good == 1) good = tensors_fit(*self->plan, *memory);
    if (good == 0) forget(self, memory);
    return good < 0 ? nullptr : PyBool_FromLong(good);
}

// The memory of what leads to tensors as it is now. They are good until Python runs.
Shared tensors_now(Unchanged* self, PyObject* const* roots) {
    Shared memory = remembered(self, roots);
    int good = memory != nullptr ? still_there(*self->plan, *memory, true, Scope::tensors) : 0;
    if (good == 0) memory = look(*self->plan, roots, Scope::tensors);
    if (memory == nullptr && !PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "a model was changed by another thread during a call of its compiled form");
    return good < 0 ? nullptr : memory;
}

// The tensor of that number, borrowed.
PyObject* numbered(Unchanged* self, const Memory& memory, PyObject* numbers, Py_ssize_t i) {
    size_t number = PyLong_AsSize_t(PyTuple_GET_ITEM(numbers, i));
    if (number < self->plan->tensors.size()) return memory.children[self->plan->tensors[number]];
    if (!PyErr_Occurred()) PyErr_Format(PyExc_IndexError, "there is no tensor number %zu", number);
    return nullptr;
}

PyObject* unchanged_fetch(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    Unchanged* self = (Unchanged*)object;
    if (!right_count(self, count - 1, "fetch()")) return nullptr;
    PyObject* numbers = arguments[0];
    if (!PyTuple_Check(numbers)) return PyErr_SetString(PyExc_TypeError, "fetch(): numbers must be a tuple"), nullptr;
    PyObject* made = PyTuple_New(PyTuple_GET_SIZE(numbers));
    Shared memory = made != nullptr ? tensors_now(self, arguments + 1) : nullptr;
    if (memory == nullptr) Py_CLEAR(made);
    for (Py_ssize_t i = 0; made != nullptr && i < PyTuple_GET_SIZE(numbers); i++) {
        PyObject* tensor = numbered(self, *memory, numbers, i);
        if (tensor == nullptr) Py_CLEAR(made);
        else PyTuple_SET_ITEM(made, i, Py_NewRef(tensor));
    }
    return made;
}

PyObject* unchanged_apart(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    Unchanged* self = (Unchanged*)object;
    if (!right_count(self, count - 2, "apart()")) return nullptr;
    PyObject *others = arguments[0], *numbers = arguments[1];
    if (!PyTuple_Check(others) || !PyTuple_Check(numbers))
        return PyErr_SetString(PyExc_TypeError, "apart(): others and numbers must be tuples"), nullptr;
    Shared memory = tensors_now(self, arguments + 2);
    if (memory == nullptr) return nullptr;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(numbers); i++) {
        PyObject* tensor = numbered(self, *memory, numbers, i);
        if (tensor == nullptr) return nullptr;
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(others); k++)
            if (PyTuple_GET_ITEM(others, k) == tensor) Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

const char memory_name[] = "flambeau._C.Unchanged.memory";

void release_memory(PyObject* capsule) { delete (Shared*)PyCapsule_GetPointer(capsule, memory_name); }

PyObject* unchanged_look(PyObject* object, PyObject* const* roots, Py_ssize_t count) {
    Unchanged* self = (Unchanged*)object;
    if (!right_count(self, count, "look()")) return nullptr;
    for (const std::vector<PyObject*>& known : *self->promising) {
        if (!same_roots(known, roots)) continue;
        Shared memory = look(*self->plan, roots);
        if (memory != nullptr) return PyCapsule_New(new Shared(memory), memory_name, release_memory);
        if (PyErr_Occurred()) return nullptr;
        break;
    }
    Py_RETURN_NONE;
}

PyObject* unchanged_keep(PyObject* object, PyObject* const* arguments, Py_ssize_t count) {
    Unchanged* self = (Unchanged*)object;
    PyObject* const* roots = arguments + 1;
    if (!right_count(self, count - 1, "keep()")) return nullptr;
    auto& promising = *self->promising;
    if (arguments[0] == Py_None) {
        for (const std::vector<PyObject*>& known : promising)
            if (same_roots(known, roots)) Py_RETURN_NONE;
        if (promising.size() >= most_memories) promising.erase(promising.begin());
        promising.emplace_back(roots, roots + count - 1);
        Py_RETURN_NONE;
    }
    Shared* seen = (Shared*)PyCapsule_GetPointer(arguments[0], memory_name);
    if (seen == nullptr) return nullptr;
    if (!same_roots((*seen)->roots, roots)) Py_RETURN_NONE;
    int good = still_there(*self->plan, **seen, true);
    if (good < 0) return nullptr;
    if (good == 0) Py_RETURN_NONE;
    for (size_t i = 0; i < promising.size(); i++)
        if (same_roots(promising[i], roots)) promising.erase(promising.begin() + i--);
    auto& memories = *self->memories;
    if (memories.size() < most_memories) {
        memories.push_back(*seen);
    } else {
        Shared old = std::exchange(memories[self->oldest++ % most_memories], *seen);
    }
    Py_RETURN_NONE;
}

// One child as Python gives it: (key or index, goal), where the goal is None, the number of a node, a TensorSpec, such a one in a
// tuple (a fixed tensor), True (a value) or False (an object that something else keeps alive).
bool read_plan_child(Plan& plan, const Node& node, PyObject* pair) {
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) return false;
    PyObject *key = PyTuple_GET_ITEM(pair, 0), *goal = PyTuple_GET_ITEM(pair, 1);
    Child child{nullptr, -1, Goal::absent, 0, nullptr, PyTuple_Check(goal) && PyTuple_GET_SIZE(goal) == 1};
    if (child.fixed) goal = PyTuple_GET_ITEM(goal, 0);
    if (node.kind == Kind::object || node.kind == Kind::dict || node.kind == Kind::type) {
        if (!PyUnicode_CheckExact(key) && !PyLong_CheckExact(key)) return false;
        child.key = key;
    } else {
        child.index = PyLong_Check(key) ? PyLong_AsSsize_t(key) : -1;
        if (child.index < (node.kind == Kind::function ? -1 : 0)) return false;
    }
    if (PyBool_Check(goal)) {
        child.goal = goal == Py_True ? Goal::value : Goal::object;
    } else if (PyLong_Check(goal)) {
        child.goal = Goal::node;
        child.node = PyLong_AsSize_t(goal);
        if (child.node <= plan.nodes.size()) return false;  // not a later one
    } else if (is_tensor_spec(goal)) {
        child.goal = Goal::tensor;
        child.spec = goal;
        plan.tensors.push_back(plan.children.size());
    } else if (goal != Py_None) {
        return false;
    }
    Py_XINCREF(child.key);
    Py_XINCREF(child.spec);
    plan.children.push_back(child);
    return true;
}

// One node: (kind, root number or None, constants in a tuple of at most one, whole, children).
bool read_plan_node(Plan& plan, PyObject* tuple) {
    static const char* kinds[] = {"object", "dict", "sequence", "function", "type"};
    PyObject *kind, *root, *constant, *children;
    int whole;
    if (!PyTuple_Check(tuple) ||
        !PyArg_ParseTuple(tuple, "UOO!pO!", &kind, &root, &PyTuple_Type, &constant, &whole, &PyTuple_Type, &children))
        return false;
    Node node{Kind::object, -1, nullptr, whole != 0, false, plan.children.size(), 0};
    int known = 0;
    while (known < 5 && PyUnicode_CompareWithASCIIString(kind, kinds[known]) != 0) known++;
    if (known == 5) return false;
    node.kind = (Kind)known;
    if (root != Py_None) {
        node.root = PyLong_AsSsize_t(root);
        if (node.root < 0) return false;
        plan.roots = node.root >= plan.roots ? node.root + 1 : plan.roots;
    }
    if (PyTuple_GET_SIZE(constant) > 0) node.constant = Py_NewRef(PyTuple_GET_ITEM(constant, 0));
    bool good = true;
    for (Py_ssize_t i = 0; good && i < PyTuple_GET_SIZE(children); i++)
        good = read_plan_child(plan, node, PyTuple_GET_ITEM(children, i));
    node.last = plan.children.size();
    plan.nodes.push_back(node);
    return good;
}

// Does every node have exactly one origin?
bool is_connected(const Plan& plan) {
    std::vector<int> origins(plan.nodes.size());
    for (size_t i = 0; i < plan.nodes.size(); i++)
        origins[i] = (plan.nodes[i].root >= 0) + (plan.nodes[i].constant != nullptr);
    for (const Child& child : plan.children) {
        if (child.goal != Goal::node) continue;
        if (child.node >= origins.size()) return false;
        origins[child.node]++;
    }
    for (int count : origins)
        if (count != 1) return false;
    return true;
}

void mark_leading(Plan& plan) {
    for (size_t i = plan.nodes.size(); i-- > 0;)
        for (size_t c = plan.nodes[i].first; c < plan.nodes[i].last; c++)
            if (leads(plan, plan.children[c])) plan.nodes[i].leads = true;
}

PyObject* unchanged_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
    PyObject* nodes;
    if (keywords != nullptr && PyDict_GET_SIZE(keywords) > 0)
        return PyErr_SetString(PyExc_TypeError, "Unchanged() takes no keyword arguments"), nullptr;
    if (!PyArg_ParseTuple(arguments, "O!:Unchanged", &PyTuple_Type, &nodes)) return nullptr;
    Unchanged* self = (Unchanged*)type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    self->plan = new Plan;
    self->memories = new std::vector<Shared>;
    self->promising = new std::vector<std::vector<PyObject*>>;
    self->vectorcall = unchanged_call;
    bool good = true;
    for (Py_ssize_t i = 0; good && i < PyTuple_GET_SIZE(nodes); i++) {
        good = read_plan_node(*self->plan, PyTuple_GET_ITEM(nodes, i));
        if (!good && !PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "Unchanged(): node %zd can't be read: %R", i, PyTuple_GET_ITEM(nodes, i));
    }
    if (good && !is_connected(*self->plan)) {
        PyErr_SetString(PyExc_ValueError, "Unchanged(): each node has to be an argument, a constant or the child of one node");
        good = false;
    }
    if (good) mark_leading(*self->plan);
    else Py_CLEAR(self);
    return (PyObject*)self;
}

int unchanged_traverse(PyObject* object, visitproc visit, void* arg) {
    Unchanged* self = (Unchanged*)object;
    Py_VISIT(Py_TYPE(object));
    for (const Node& node : self->plan->nodes) Py_VISIT(node.constant);
    for (const Child& child : self->plan->children) {
        Py_VISIT(child.key);
        Py_VISIT(child.spec);
    }
    return 0;
}

int unchanged_clear(PyObject* object) {
    Unchanged* self = (Unchanged*)object;
    Plan plan = std::exchange(*self->plan, Plan{});
    self->memories->clear();
    self->promising->clear();
    for (Node& node : plan.nodes) Py_CLEAR(node.constant);
    for (Child& child : plan.children) {
        Py_CLEAR(child.key);
        Py_CLEAR(child.spec);
    }
    return 0;
}

void unchanged_dealloc(PyObject* object) {
    Unchanged* self = (Unchanged*)object;
    PyObject_GC_UnTrack(object);
    unchanged_clear(object);
    delete self->plan;
    delete self->memories;
    delete self->promising;
    free_object(object);
}

PyMethodDef unchanged_methods[] = {
    {"look", (PyCFunction)(void (*)(void))unchanged_look, METH_FASTCALL,
     "look(*roots) -> object\n\nHow everything is now, for `keep`; None for roots that the guard hasn't held for yet."},
    {"keep", (PyCFunction)(void (*)(void))unchanged_keep, METH_FASTCALL,
     "keep(seen, *roots)\n\nThe guard holds for these roots. `seen` is what `look` answered before it was asked: what the calls\n"
     "to come are compared with, unless something was written meanwhile."},
    {"fetch", (PyCFunction)(void (*)(void))unchanged_fetch, METH_FASTCALL,
     "fetch(numbers, *roots) -> tuple\n\nThe tensors of these numbers: their places among all of the plan's."},
    {"apart", (PyCFunction)(void (*)(void))unchanged_apart, METH_FASTCALL,
     "apart(others, numbers, *roots) -> bool\n\nIs no object of the tuple `others` one of the tensors of these numbers?"},
    {nullptr},
};

const char unchanged_doc[] =
    "Unchanged(nodes)\n--\n\n"
    "Whether what a guard reads is as it was when the guard last held: `unchanged(*roots) -> bool`, without reading it again.\n"
    "`nodes` is a tuple of (kind, root, constant, whole, children), parents first. kind: 'object' (an instance, with its\n"
    "__dict__), 'dict', 'sequence' (a list or tuple), 'function' or 'type' (with what it inherits). root: the argument's number,\n"
    "or None. constant: () or (object,). whole: every key matters. children: pairs of a key or place - of a function -1 is the\n"
    "code, 2i the i-th cell, 2i + 1 the i-th default - and what is found there: None, nothing; the number of a later node; a\n"
    "TensorSpec, in a tuple if it has to be the same tensor; True, a value, such as a number or text; False, another object whose\n"
    "identity is all that matters.";

PyType_Slot unchanged_slots[] = {
    {Py_tp_doc, (void*)unchanged_doc},         {Py_tp_new, (void*)unchanged_new},
    {Py_tp_dealloc, (void*)unchanged_dealloc}, {Py_tp_traverse, (void*)unchanged_traverse},
    {Py_tp_clear, (void*)unchanged_clear},     {Py_tp_call, (void*)PyVectorcall_Call},
    {Py_tp_methods, unchanged_methods},        {Py_tp_members, vectorcall_alone<Unchanged>},
    {0, nullptr},
};

PyType_Spec unchanged_spec = {
    "flambeau._C.Unchanged", sizeof(Unchanged), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, unchanged_slots,
};

}  // namespace

void add_unchanged(PyObject* module) { add_type(module, unchanged_spec); }
