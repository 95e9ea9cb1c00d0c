/* Shared by the parts of the module: the limited API of Python 3.11, and their functions. */

#ifndef ROTUNDA_NATIVE_H
#define ROTUNDA_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* Adds the record walk to the module. Returns 0, or -1 with an exception. */
int add_record_walk(PyObject *module);

/* Adds the record reader to the module. Returns 0, or -1 with an exception. */
int add_record_reader(PyObject *module);

/* Adds the ends of rings to the module. Returns 0, or -1 with an exception. */
int add_ring(PyObject *module);

/* Adds the receiver of frames to the module. Returns 0, or -1 with an exception. */
int add_frame_receiver(PyObject *module);

/* Adds the sender of responses to the module. Returns 0, or -1 with an exception. */
int add_response_sender(PyObject *module);

/* Adds a type to the module by the last part of its name. Returns a new reference, or NULL with an exception. */
PyTypeObject *add_type(PyObject *module, PyType_Spec *spec);

#endif
