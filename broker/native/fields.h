/* Objects whose attributes are read in C: base types of Python classes, with slots at known places.
 *
 * A list of names, FIELDS(FIELD), makes the indexes of the slots and their members. Twin: a class with these `__slots__`.
 */

#ifndef ROTUNDA_FIELDS_H
#define ROTUNDA_FIELDS_H

#include "native.h"

#include <stddef.h>
#include <structmember.h>

/* An object with slots; an empty slot is NULL. */
typedef struct {
    PyObject_HEAD
    PyObject *slots[];
} Fields;

#define FIELD_INDEX(name) name##_FIELD,
#define FIELD_MEMBER(name) {#name, T_OBJECT_EX, offsetof(Fields, slots) + sizeof(PyObject *) * name##_FIELD, 0, NULL},

/* Defines the functions for the garbage search of a type with slots at its start. */
#define DEFINE_FIELDS(prefix, count)                                                                                   \
    static int prefix##_traverse(PyObject *self, visitproc visit, void *arg)                                           \
    {                                                                                                                  \
        for (int field = 0; field < (count); field++)                                                                  \
            Py_VISIT(((Fields *)self)->slots[field]);                                                                  \
        return 0;                                                                                                      \
    }                                                                                                                  \
    static int prefix##_clear(PyObject *self)                                                                          \
    {                                                                                                                  \
        for (int field = 0; field < (count); field++)                                                                  \
            Py_CLEAR(((Fields *)self)->slots[field]);                                                                  \
        return 0;                                                                                                      \
    }                                                                                                                  \
    static void prefix##_destroy(PyObject *self)                                                                       \
    {                                                                                                                  \
        PyTypeObject *type = Py_TYPE(self);                                                                            \
        PyObject_GC_UnTrack(self);                                                                                     \
        prefix##_clear(self);                                                                                          \
        ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);                                                            \
        Py_DECREF(type);                                                                                               \
    }

/* Defines the spec of such a type, with more slots of the spec behind `destroy`. */
#define DEFINE_FIELDS_SPEC(prefix, type_name, bytes, members, destroy, ...)                                            \
    static PyType_Slot prefix##_slots[] = {{Py_tp_members, members}, {Py_tp_traverse, prefix##_traverse},              \
        {Py_tp_clear, prefix##_clear}, {Py_tp_dealloc, destroy}, __VA_ARGS__};                                         \
    static PyType_Spec prefix##_spec = {.name = "rotunda.broker.native.compiled." type_name,                           \
        .basicsize = bytes, .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,                    \
        .slots = prefix##_slots};

/* Returns whether all attributes are set, with AttributeError if not. */
static inline bool has_fields(const Fields *object, const PyMemberDef *members, int count)
{
    int field = 0;
    while (field < count && object->slots[field] != NULL)
        field++;
    if (field < count)
        PyErr_SetString(PyExc_AttributeError, members[field].name);
    return field == count;
}

/* Defines a base type that has only slots: its members and spec, and is_<prefix>, which raises TypeError if it is false. */
#define DEFINE_BASE(prefix, type_name, FIELDS, count, linkage, ...)                                                      \
    static PyMemberDef prefix##_members[] = {FIELDS(FIELD_MEMBER){0}};                                                 \
    DEFINE_FIELDS(prefix, count)                                                                                       \
    DEFINE_FIELDS_SPEC(prefix, type_name, sizeof(Fields) + (count) * sizeof(PyObject *), prefix##_members,             \
        prefix##_destroy, __VA_ARGS__)                                                                                  \
    static PyTypeObject *prefix##_type;                                                                                \
    linkage bool is_##prefix(PyObject *object)                                                                         \
    {                                                                                                                  \
        return is_of(object, prefix##_type) && has_fields((Fields *)object, prefix##_members, count);                  \
    }

/* Returns whether an attribute is None. */
static inline bool has_none(const Fields *object, int field)
{
    return object->slots[field] == Py_None;
}

/* Returns the number in a slot that is set; -1 with an exception if it is none. */
static inline long long number_in(const Fields *object, int field)
{
    return PyLong_AsLongLong(object->slots[field]);
}

/* Puts a new reference into a slot; fails without one. */
static inline bool put_in(Fields *object, int field, PyObject *value)
{
    if (value == NULL)
        return false;
    PyObject *former = object->slots[field];
    object->slots[field] = value;
    Py_XDECREF(former);
    return true;
}

#endif
