#include "tensor_slots.h"

#include <descrobject.h>
namespace {

TensorSlots slots;

bool find_slots(PyTypeObject* type) {
    TensorSlots found;
    const struct {
        const char* name;
        Py_ssize_t* offset;
    } wanted[] = {
        {"_data", &found.data},     {"_lay", &found.layout}, {"dtype", &found.dtype},
        {"device", &found.device}, {"_grad", &found.grad},  {"_view", &found.view},
    };
    for (const auto& slot : wanted) {
        PyTypeObject* owner = nullptr;
        *slot.offset = slot_offset(type, slot.name, &owner);
        if (*slot.offset < 0 || (found.type != nullptr && owner != found.type)) return false;
        found.type = owner;
    }
    Py_INCREF(found.type);
    Py_XDECREF(slots.type);
    slots = found;
    return true;
}

}  // namespace

Py_ssize_t slot_offset(PyTypeObject* type, const char* name, PyTypeObject** owner) {
    PyObject* key = PyUnicode_InternFromString(name);
    PyObject* descriptor = key != nullptr ? _PyType_Lookup(type, key) : nullptr;
    Py_XDECREF(key);
    if (descriptor == nullptr || !Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return -1;
    if (owner != nullptr) *owner = PyDescr_TYPE(descriptor);
    return ((PyMemberDescrObject*)descriptor)->d_member->offset;
}

const TensorSlots* tensor_slots(PyObject* object) {
    PyTypeObject* type = Py_TYPE(object);
    if (type == slots.type || (slots.type != nullptr && PyType_IsSubtype(type, slots.type))) return &slots;
    return find_slots(type) ? &slots : nullptr;
}

bool learn_slots(PyTypeObject* type) { return find_slots(type); }

const TensorSlots& known_slots() { return slots; }

int ask_requires_grad(PyObject* tensor, const TensorSlots* slots) {
    PyObject* plain = PyObject_GetAttrString((PyObject*)slots->type, "requires_grad");
    if (plain == nullptr) return -1;
    PyObject* flag = Py_TYPE(plain)->tp_descr_get(plain, tensor, (PyObject*)slots->type);
    int result = flag != nullptr ? PyObject_IsTrue(flag) : -1;
    Py_XDECREF(flag);
    Py_DECREF(plain);
    return result;
}

PyArrayObject* array_of(PyObject* object) {
    if (PyArray_Check(object)) return (PyArrayObject*)object;
    const TensorSlots* slots = tensor_slots(object);
    if (slots == nullptr) {
        PyErr_Format(PyExc_TypeError, "expected a Tensor or a NumPy array, got %R", (PyObject*)Py_TYPE(object));
        return nullptr;
    }
    PyObject* data = read_slot(object, slots->data);
    if (data != nullptr && PyArray_CheckExact(data)) return (PyArrayObject*)data;
    if (data != nullptr && PyArray_Check(data)) {
        PyErr_SetString(PyExc_TypeError, "expected a tensor whose memory holds its elements, got a conjugate or negative view; "
                                         "call resolve_conj() or resolve_neg() first");
        return nullptr;
    }
    PyErr_SetString(PyExc_TypeError, data == nullptr || data == Py_None
                                         ? "expected a tensor with elements, got a fake one (shapes only)"
                                         : "expected a tensor on the CPU, got one of another device");
    return nullptr;
}
