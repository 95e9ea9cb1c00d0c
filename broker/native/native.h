/* Shared by the parts of the module: the limited API of Python 3.11, and their functions. */

#ifndef ROTUNDA_NATIVE_H
#define ROTUNDA_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* Add the parts to the module. Each returns 0, or -1 with an exception. */
int add_frame_receiver(PyObject *module);
int add_record_reader(PyObject *module);
int add_record_walk(PyObject *module);
int add_response_sender(PyObject *module);
int add_ring(PyObject *module);

/* Adds a type to the module by the last part of its name. Returns a new reference, or NULL with an exception. */
PyTypeObject *add_type(PyObject *module, PyType_Spec *spec);

/* Returns whether an object is of a type, with TypeError if not. */
bool is_of(PyObject *object, PyTypeObject *type);

#endif
