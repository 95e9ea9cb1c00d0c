/* The record walk: validates every record of a batch and finds its smallest and largest timestamp delta.
 *
 * Twin: broker/protocol/record_walk.py, which has the rules. Nothing here trusts the bytes: a read is preceded by a
 * comparison with their end, and no position is computed beyond it.
 */

#include "varint.h"

enum { PENDING = -1, RIGHT = 0, WRONG = 1 };

/* The budget of a step in records or headers of records; about a millisecond. */
#define RECORDS_AT_ONCE 65536
#define BATCH_HEADER_BYTES 61
#define NO_TIMESTAMP (-1)

#define FAR ((Delta)1 << 70)

/* A walk between two steps. Twin: RecordWalk. Positions are bytes from the start of the records. */
typedef struct {
    Py_ssize_t at, stop;
    int64_t count, index, left_headers;
    Delta least_delta, largest_delta;
    bool is_keyed;
} Walk;

/* Skips a field: its length, then as many bytes; a negative length is null. */
static inline bool skip_field(Cursor *cursor, int64_t *length)
{
    if (!read_varint(cursor, length) || *length > cursor->end - cursor->at)
        return false;
    if (*length > 0)
        cursor->at += *length;
    return true;
}

/* Reads a record up to its headers and notes its end. Twin: the first half of _walk_any. */
static inline bool begin_record(Walk *walk, Cursor *cursor, const uint8_t *data)
{
    int64_t length, offset, key, value;
    Delta delta;
    if (!read_varint(cursor, &length) || length <= 0 || length > cursor->end - cursor->at)
        return false;
    const uint8_t *stop = cursor->at + length;
    cursor->at++; /* the record's attributes */
    if (!read_delta(cursor, &delta) || !read_varint(cursor, &offset) || !skip_field(cursor, &key)
        || !skip_field(cursor, &value) || !read_varint(cursor, &walk->left_headers))
        return false;
    if (offset != walk->index || (key < 0 && walk->is_keyed) || walk->left_headers < 0
        || walk->left_headers > stop - cursor->at)
        return false;
    walk->stop = stop - data;
    if (delta < walk->least_delta)
        walk->least_delta = delta;
    if (delta > walk->largest_delta)
        walk->largest_delta = delta;
    return true;
}

/* Skips headers, within the budget. Twin: _behind_headers. */
static inline bool skip_headers(Walk *walk, Cursor *cursor, int64_t *budget)
{
    int64_t key, value;
    for (; walk->left_headers && *budget > 0; walk->left_headers--, (*budget)--)
        if (!skip_field(cursor, &key) || key < 0 || !skip_field(cursor, &value))
            return false;
    return true;
}

/* Walks on for a budget. Twin: RecordWalk.step. */
static int walk_records(Walk *walk, const uint8_t *data, Py_ssize_t size, int64_t budget)
{
    if (walk->at > size)
        return WRONG;
    Cursor cursor = {data + walk->at, data + size};
    while (walk->index < walk->count) {
        if (budget <= 0) {
            walk->at = cursor.at - data;
            return PENDING;
        }
        if (!walk->left_headers) {
            budget--;
            if (!begin_record(walk, &cursor, data))
                return WRONG;
        }
        if (!skip_headers(walk, &cursor, &budget))
            return WRONG;
        if (walk->left_headers)
            continue;
        if (cursor.at - data != walk->stop)
            return WRONG;
        walk->index++;
    }
    walk->at = cursor.at - data;
    return walk->at == size ? RIGHT : WRONG;
}

static Walk new_walk(int64_t count, bool is_keyed)
{
    return (Walk){.count = count, .least_delta = FAR, .largest_delta = -FAR, .is_keyed = is_keyed};
}

/* Returns whether records match their header. Twin: is_as_claimed, after its checks. */
static bool has_claimed_records(const Py_buffer *batch, int64_t count, int64_t base_timestamp, int64_t max_timestamp)
{
    Py_ssize_t header_bytes = batch->len < BATCH_HEADER_BYTES ? batch->len : BATCH_HEADER_BYTES;
    const uint8_t *records = (const uint8_t *)batch->buf + header_bytes;
    Walk walk = new_walk(count, false);
    return walk_records(&walk, records, batch->len - header_bytes, RECORDS_AT_ONCE) == RIGHT && walk.least_delta >= 0
        && base_timestamp + walk.largest_delta == max_timestamp;
}

/* is_as_claimed(batch, count, base_timestamp, max_timestamp) -> bool. Twin: is_as_claimed. */
static PyObject *is_as_claimed(PyObject *module, PyObject *const *arguments, Py_ssize_t argument_count)
{
    (void)module;
    if (argument_count != 4) {
        PyErr_SetString(PyExc_TypeError, "is_as_claimed takes batch, count, base_timestamp, max_timestamp");
        return NULL;
    }
    int64_t numbers[3];
    for (int place = 0; place < 3; place++) {
        numbers[place] = PyLong_AsLongLong(arguments[place + 1]);
        if (numbers[place] == -1 && PyErr_Occurred())
            return NULL;
    }
    if (numbers[0] > RECORDS_AT_ONCE || numbers[2] < NO_TIMESTAMP)
        return PyBool_FromLong(false);
    Py_buffer batch;
    if (PyObject_GetBuffer(arguments[0], &batch, PyBUF_SIMPLE) < 0)
        return NULL;
    bool is_so = has_claimed_records(&batch, numbers[0], numbers[1], numbers[2]);
    PyBuffer_Release(&batch);
    return PyBool_FromLong(is_so);
}

/* A walk as Python has it. Twin: RecordWalk. */
typedef struct {
    PyObject_HEAD
    PyObject *data;
    Walk walk;
} RecordWalk;

static PyObject *create(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    static char *names[] = {"data", "count", "is_keyed", NULL};
    PyObject *data;
    long long count;
    int is_keyed = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "OL|$p", names, &data, &count, &is_keyed))
        return NULL;
    RecordWalk *self = (RecordWalk *)PyType_GenericNew(type, NULL, NULL);
    if (self != NULL) {
        self->data = Py_NewRef(data);
        self->walk = new_walk(count, is_keyed);
    }
    return (PyObject *)self;
}

static void destroy(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((RecordWalk *)self)->data);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* step(budget=RECORDS_AT_ONCE) -> PENDING, RIGHT or WRONG. Twin: RecordWalk.step. */
static PyObject *step(RecordWalk *self, PyObject *const *arguments, Py_ssize_t argument_count)
{
    long long budget = argument_count ? PyLong_AsLongLong(arguments[0]) : RECORDS_AT_ONCE;
    if (budget == -1 && PyErr_Occurred())
        return NULL;
    Py_buffer data;
    if (PyObject_GetBuffer(self->data, &data, PyBUF_SIMPLE) < 0)
        return NULL;
    int verdict = walk_records(&self->walk, data.buf, data.len, budget);
    PyBuffer_Release(&data);
    return PyLong_FromLong(verdict);
}

/* Returns a delta as a Python number; those of more than 64 bits in two halves. */
static PyObject *delta_number(Delta delta)
{
    if (delta == (int64_t)delta)
        return PyLong_FromLongLong((int64_t)delta);
    PyObject *high = PyLong_FromLongLong((int64_t)(delta >> 32)), *shift = PyLong_FromLong(32);
    PyObject *low = PyLong_FromUnsignedLong((uint32_t)delta);
    PyObject *shifted = high && shift && low ? PyNumber_Lshift(high, shift) : NULL;
    PyObject *number = shifted ? PyNumber_Or(shifted, low) : NULL;
    Py_XDECREF(high);
    Py_XDECREF(shift);
    Py_XDECREF(low);
    Py_XDECREF(shifted);
    return number;
}

static PyObject *least_delta(RecordWalk *self, void *closure)
{
    (void)closure;
    return delta_number(self->walk.least_delta);
}

static PyObject *largest_delta(RecordWalk *self, void *closure)
{
    (void)closure;
    return delta_number(self->walk.largest_delta);
}

static PyMethodDef methods[] = {
    {"step", (PyCFunction)(void (*)(void))step, METH_FASTCALL, "Walk on for a budget of records."},
    {0}};

static PyGetSetDef deltas[] = {
    {"least_delta", (getter)least_delta, NULL, "The smallest timestamp delta so far.", NULL},
    {"largest_delta", (getter)largest_delta, NULL, "The largest timestamp delta so far.", NULL},
    {0}};

static PyType_Slot type_slots[] = {{Py_tp_doc, "A walk over uncompressed records."},
    {Py_tp_new, create},
    {Py_tp_dealloc, destroy},
    {Py_tp_methods, methods},
    {Py_tp_getset, deltas},
    {0, NULL}};

static PyType_Spec type_spec = {.name = "rotunda.broker.native.compiled.RecordWalk",
    .basicsize = sizeof(RecordWalk),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = type_slots};

static PyMethodDef functions[] = {
    {"is_as_claimed", (PyCFunction)(void (*)(void))is_as_claimed, METH_FASTCALL,
        "Return whether the records of an uncompressed batch are what its header claims."},
    {0}};

int add_record_walk(PyObject *module)
{
    PyTypeObject *type = add_type(module, &type_spec);
    Py_XDECREF((PyObject *)type);
    return type == NULL || PyModule_AddFunctions(module, functions) < 0
            || PyModule_AddIntConstant(module, "RECORDS_AT_ONCE", RECORDS_AT_ONCE) < 0
        ? -1
        : 0;
}
