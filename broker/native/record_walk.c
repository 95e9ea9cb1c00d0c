/* The record walk: validates every record of a batch and finds its smallest and largest timestamp delta.
 *
 * Twin: broker/log/validation/record_walk.py, which has the rules. Nothing here trusts the bytes: a read is preceded by a
 * comparison with their end, and no position is computed beyond it.
 */

#include "varint.h"

/* The verdicts; of a record that is LEFT, the twin has the verdict. */
enum { PENDING = -1, RIGHT = 0, WRONG = 1, LEFT = 2 };

/* The budget of a step in records or headers of records; about a millisecond. */
#define RECORDS_AT_ONCE 65536
#define NO_TIMESTAMP (-1)

/* A step of a walk. Twin: RecordWalk. Positions are bytes from the start of the records; the deltas are the step's. */
typedef struct {
    long long at, stop, count, index, left_headers, least_delta, largest_delta;
    int is_keyed;
} Walk;

/* Reads a record up to its headers and notes its end. Twin: the first half of _walk_any. */
static inline bool begin_record(Walk *walk, Cursor *cursor, const uint8_t *data)
{
    Place place;
    const uint8_t *field;
    int64_t key, value, headers;
    if (!find_record(cursor, &place) || !find_field(cursor, &field, &key) || !find_field(cursor, &field, &value)
        || !read_varint(cursor, &headers))
        return false;
    if (place.offset_delta != walk->index || (key < 0 && walk->is_keyed) || headers < 0
        || headers > place.stop - cursor->at)
        return false;
    walk->left_headers = headers;
    walk->stop = place.stop - data;
    if (place.delta < walk->least_delta)
        walk->least_delta = place.delta;
    if (place.delta > walk->largest_delta)
        walk->largest_delta = place.delta;
    return true;
}

/* Skips headers, within the budget. Twin: _after_headers. */
static inline bool skip_headers(Walk *walk, Cursor *cursor, int64_t *budget)
{
    const uint8_t *field;
    int64_t key, value;
    for (; walk->left_headers && *budget > 0; walk->left_headers--, (*budget)--)
        if (!find_field(cursor, &field, &key) || key < 0 || !find_field(cursor, &field, &value))
            return false;
    return true;
}

/* Walks on for a budget. Twin: RecordWalk.step. */
static int walk_records(Walk *walk, const uint8_t *data, Py_ssize_t size, int64_t budget)
{
    if (walk->at < 0 || walk->at > size)
        return WRONG;
    Cursor cursor = {data + walk->at, data + size};
    while (walk->index < walk->count) {
        walk->at = cursor.at - data;
        if (budget <= 0)
            return PENDING;
        if (!walk->left_headers) {
            budget--;
            if (!begin_record(walk, &cursor, data))
                return LEFT;
        }
        cursor.end = data + size;
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

bool has_claimed_records(const uint8_t *batch, int64_t size, int64_t count, int64_t base_timestamp, int64_t max_timestamp)
{
    if (count > RECORDS_AT_ONCE || max_timestamp < NO_TIMESTAMP)
        return false;
    int64_t header_bytes = size < BATCH_HEADER_BYTES ? size : BATCH_HEADER_BYTES;
    Walk walk = {.count = count, .least_delta = INT64_MAX, .largest_delta = INT64_MIN};
    return walk_records(&walk, batch + header_bytes, size - header_bytes, RECORDS_AT_ONCE) == RIGHT
        && walk.least_delta >= 0 && walk.largest_delta >= 0
        && (Delta)base_timestamp + walk.largest_delta == max_timestamp;
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
    Py_buffer batch;
    if (PyObject_GetBuffer(arguments[0], &batch, PyBUF_SIMPLE) < 0)
        return NULL;
    bool is_so = has_claimed_records(batch.buf, batch.len, numbers[0], numbers[1], numbers[2]);
    PyBuffer_Release(&batch);
    return PyBool_FromLong(is_so);
}

/* walk_records(data, count, is_keyed, budget, at, stop, index, left_headers) -> (verdict, at, stop, index, left_headers,
 * the least and largest delta of the step). Twin: RecordWalk.step. */
static PyObject *walk_step(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer data;
    long long budget;
    Walk walk = {.least_delta = INT64_MAX, .largest_delta = INT64_MIN};
    if (!PyArg_ParseTuple(arguments, "y*LpLLLLL", &data, &walk.count, &walk.is_keyed, &budget, &walk.at, &walk.stop,
            &walk.index, &walk.left_headers))
        return NULL;
    int verdict = walk_records(&walk, data.buf, data.len, budget);
    PyBuffer_Release(&data);
    return Py_BuildValue("iLLLLLL", verdict, walk.at, walk.stop, walk.index, walk.left_headers, walk.least_delta,
        walk.largest_delta);
}

static PyMethodDef functions[] = {
    {"is_as_claimed", (PyCFunction)(void (*)(void))is_as_claimed, METH_FASTCALL,
        "Return whether the records of an uncompressed batch are what its header claims."},
    {"walk_records", walk_step, METH_VARARGS, "Walk on for a budget of records."}, {0}};

int add_record_walk(PyObject *module)
{
    return PyModule_AddFunctions(module, functions) < 0
            || PyModule_AddIntConstant(module, "RECORDS_AT_ONCE", RECORDS_AT_ONCE) < 0
        ? -1
        : 0;
}
