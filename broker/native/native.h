/* Shared by the parts of the module: the limited API of Python 3.11, and their functions. */

#ifndef ROTUNDA_NATIVE_H
#define ROTUNDA_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "fields of messages are stored with their bytes swapped: other machines use the twins"
#endif

#define BATCH_HEADER_BYTES 61

/* Add the parts to the module. Each returns 0, or -1 with an exception. */
int add_cached_requests(PyObject *module);
int add_frame_receiver(PyObject *module);
int add_record_reader(PyObject *module);
int add_record_walk(PyObject *module);
int add_response_sender(PyObject *module);
int add_ring(PyObject *module);

/* Adds a type to the module by the last part of its name. Returns a new reference, or NULL with an exception. */
PyTypeObject *add_type(PyObject *module, PyType_Spec *spec);

/* Returns whether an object is of a type, with TypeError if not. */
bool is_of(PyObject *object, PyTypeObject *type);

/* Returns whether an uncompressed batch has the records that its header claims. Twin: is_as_claimed. */
bool has_claimed_records(const uint8_t *batch, int64_t size, int64_t count, int64_t base_timestamp, int64_t max_timestamp);

/* Returns a number of some bytes. */
static inline uint64_t big_endian(const uint8_t *at, int size)
{
    uint64_t value = 0;
    for (int place = 0; place < size; place++)
        value = value << 8 | at[place];
    return value;
}

/* Returns the length of an object, bytes, if memory starts with it; else -1. */
static inline Py_ssize_t starts_with(const uint8_t *at, int64_t room, PyObject *bytes)
{
    char *data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(bytes, &data, &size) == 0)
        return size <= room && memcmp(at, data, (size_t)size) == 0 ? size : -1;
    PyErr_Clear();
    return -1;
}

#endif
