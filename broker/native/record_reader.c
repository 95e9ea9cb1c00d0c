/* Reads a number of records: whole ones for consumers and replays, and the parts needed by compaction.
 *
 * Twins: iterate_records in broker/protocol/record_reader.py, raw_records in broker/cleaner/raw_records.py. Reading ends
 * before the first record that is incomplete or out of order; the twin reads that one and raises its error.
 */

#include "varint.h"

/* The type of a record, a named tuple, and values of its batch header. */
typedef struct {
    PyTypeObject *type;
    int64_t base_offset, last_offset_delta, base_timestamp, append_time;
    bool has_append_time;
} Batch;

/* The kind of result: a whole record, the parts for compaction, or time and offset. */
typedef enum { WHOLE, RAW, TIME } Kind;

/* A record before it is converted: its start and end, and the positions in it. */
typedef struct {
    const uint8_t *start, *rest, *stop;
    Delta delta;
    int64_t offset_delta;
} Place;

/* Makes a record of its type; steals the reference to the fields, which may be NULL. */
static PyObject *new_record(PyTypeObject *type, PyObject *fields)
{
    if (fields == NULL)
        return NULL;
    newfunc new_tuple = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    PyObject *arguments = PyTuple_Pack(1, fields);
    PyObject *record = arguments ? new_tuple(type, arguments, NULL) : NULL;
    Py_XDECREF(arguments);
    Py_DECREF(fields);
    return record;
}

/* Finds the next record of a batch, up to its key. False if it is not one. */
static bool find_record(Cursor *cursor, int64_t last_offset_delta, Place *place)
{
    int64_t length;
    place->start = cursor->at;
    if (!read_varint(cursor, &length) || length <= 0 || length > cursor->end - cursor->at)
        return false;
    place->stop = cursor->end = cursor->at + length;
    cursor->at++; /* the record's attributes */
    if (!read_delta(cursor, &place->delta))
        return false;
    place->rest = cursor->at;
    return read_varint(cursor, &place->offset_delta) && place->offset_delta >= 0
        && place->offset_delta <= last_offset_delta;
}

/* Finds a field after its length. False if it is incomplete; null has no bytes. */
static bool find_field(Cursor *cursor, const uint8_t **bytes, int64_t *size)
{
    if (!read_varint(cursor, size) || *size > cursor->end - cursor->at)
        return false;
    *bytes = *size < 0 ? NULL : cursor->at;
    if (*size > 0)
        cursor->at += *size;
    return true;
}

/* Returns a field's bytes, or None. */
static PyObject *field_bytes(const uint8_t *bytes, int64_t size)
{
    return bytes == NULL ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)size);
}

/* Reads a header, a pair. NULL without an exception if it is not one. */
static PyObject *read_header(Cursor *cursor)
{
    const uint8_t *key, *value;
    int64_t key_size, value_size;
    if (!find_field(cursor, &key, &key_size) || key == NULL || !find_field(cursor, &value, &value_size))
        return NULL;
    PyObject *name = PyUnicode_DecodeUTF8((const char *)key, (Py_ssize_t)key_size, "surrogateescape");
    PyObject *data = name ? field_bytes(value, value_size) : NULL;
    PyObject *pair = data ? PyTuple_Pack(2, name, data) : NULL;
    Py_XDECREF(name);
    Py_XDECREF(data);
    return pair;
}

/* Reads the headers up to the end of the record. NULL without an exception if they are not there. */
static PyObject *read_headers(Cursor *cursor)
{
    int64_t count;
    if (!read_varint(cursor, &count) || count < 0 || count > (cursor->end - cursor->at) / 2)
        return NULL;
    PyObject *headers = PyTuple_New((Py_ssize_t)count);
    for (Py_ssize_t number = 0; headers && number < count; number++) {
        PyObject *pair = read_header(cursor);
        if (pair == NULL || PyTuple_SetItem(headers, number, pair) < 0)
            Py_CLEAR(headers);
    }
    if (headers && cursor->at != cursor->end)
        Py_CLEAR(headers);
    return headers;
}

/* Finds a record's offset and time. False if they are out of range. Twins: _offset_of, _time_of. */
static bool find_position(const Batch *batch, const Place *place, int64_t *offset, int64_t *time)
{
    Delta at = batch->has_append_time ? batch->append_time : batch->base_timestamp + place->delta;
    *time = (int64_t)at;
    return at >= -INT64_MAX && at <= INT64_MAX
        && !__builtin_add_overflow(batch->base_offset, place->offset_delta, offset);
}

/* Reads a record. NULL without an exception if it is not one. Twin: _read_record. */
static PyObject *read_record(Cursor *cursor, const Batch *batch)
{
    Place place;
    int64_t offset, time, key_size, value_size;
    const uint8_t *key, *value;
    if (!find_record(cursor, batch->last_offset_delta, &place) || !find_position(batch, &place, &offset, &time)
        || !find_field(cursor, &key, &key_size) || !find_field(cursor, &value, &value_size))
        return NULL;
    PyObject *headers = read_headers(cursor);
    if (headers == NULL)
        return NULL;
    return new_record(batch->type,
        Py_BuildValue("LLNNN", (long long)offset, (long long)time, field_bytes(key, key_size),
            field_bytes(value, value_size), headers));
}

/* Reads the parts of a record for compaction. NULL without an exception if it is not one. Twin: raw_records. */
static PyObject *read_raw_record(Cursor *cursor, const Batch *batch, const uint8_t *data)
{
    Place place;
    int64_t key_size, value_size;
    const uint8_t *key, *value;
    if (!find_record(cursor, batch->last_offset_delta, &place) || place.delta < -INT64_MAX || place.delta > INT64_MAX
        || !find_field(cursor, &key, &key_size) || !find_field(cursor, &value, &value_size) || cursor->at >= place.stop)
        return NULL;
    return new_record(batch->type,
        Py_BuildValue("nnnLLNN", (Py_ssize_t)(place.start - data), (Py_ssize_t)(place.rest - data),
            (Py_ssize_t)(place.stop - data), (long long)place.delta, (long long)place.offset_delta,
            field_bytes(key, key_size), PyBool_FromLong(value != NULL)));
}

/* Reads a record's time and offset. NULL without an exception if it is not one. Twin: record_times. */
static PyObject *read_time(Cursor *cursor, const Batch *batch)
{
    Place place;
    int64_t offset, time;
    if (!find_record(cursor, batch->last_offset_delta, &place) || !find_position(batch, &place, &offset, &time))
        return NULL;
    return Py_BuildValue("LL", (long long)time, (long long)offset);
}

/* Reads the next record as the requested kind. */
static PyObject *read_kind(Cursor *cursor, const Batch *batch, const uint8_t *data, Kind kind)
{
    switch (kind) {
    case WHOLE:
        return read_record(cursor, batch);
    case RAW:
        return read_raw_record(cursor, batch, data);
    default:
        return read_time(cursor, batch);
    }
}

/* Reads records from a position; returns (records, the position after them). */
static PyObject *read_list(const Py_buffer *data, Py_ssize_t at, Py_ssize_t most, const Batch *batch, Kind kind)
{
    const uint8_t *bytes = data->buf, *end = bytes + data->len;
    PyObject *records = at >= 0 && at <= data->len ? PyList_New(0) : NULL;
    if (records == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_IndexError, "no place in the records");
        return NULL;
    }
    while (PyList_Size(records) < most) {
        Cursor cursor = {bytes + at, end};
        PyObject *record = read_kind(&cursor, batch, bytes, kind);
        if (record == NULL)
            break;
        /* Only part of it is examined. */
        at = cursor.end - bytes;
        int failed = PyList_Append(records, record);
        Py_DECREF(record);
        if (failed)
            break;
    }
    if (PyErr_Occurred())
        Py_CLEAR(records);
    return records ? Py_BuildValue("Nn", records, at) : NULL;
}

/* Returns whether a type is one of named tuples, with TypeError if not. */
static bool is_tuple_type(PyObject *type)
{
    if (PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type))
        return true;
    PyErr_SetString(PyExc_TypeError, "a type of named tuples is needed");
    return false;
}

/* Reads records of a kind, with the arguments of read_records. */
static PyObject *read_positioned(PyObject *arguments, Kind kind)
{
    PyObject *type, *append_time;
    Py_buffer data;
    Py_ssize_t at, most;
    long long base_offset, last_offset_delta, base_timestamp;
    if (!PyArg_ParseTuple(arguments, "Oy*nnLLLO", &type, &data, &at, &most, &base_offset, &last_offset_delta,
            &base_timestamp, &append_time))
        return NULL;
    Batch batch = {.type = (PyTypeObject *)type,
        .base_offset = base_offset,
        .last_offset_delta = last_offset_delta,
        .base_timestamp = base_timestamp,
        .has_append_time = append_time != Py_None};
    if (batch.has_append_time)
        batch.append_time = PyLong_AsLongLong(append_time);
    PyObject *found = !PyErr_Occurred() && is_tuple_type(type) ? read_list(&data, at, most, &batch, kind) : NULL;
    PyBuffer_Release(&data);
    return found;
}

/* read_records(type, data, at, most, base_offset, last_offset_delta, base_timestamp, append_time or None)
 * -> (records, at). Twin: iterate_records. */
static PyObject *read_records(PyObject *module, PyObject *arguments)
{
    (void)module;
    return read_positioned(arguments, WHOLE);
}

/* read_times(tuple, data, and the others of read_records) -> (pairs of time and offset, at). Twin: record_times. */
static PyObject *read_times(PyObject *module, PyObject *arguments)
{
    (void)module;
    return read_positioned(arguments, TIME);
}

/* read_raw_records(type, data, at, most, last_offset_delta) -> (records, at). Twin: raw_records. */
static PyObject *read_raw_records(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *type;
    Py_buffer data;
    Py_ssize_t at, most;
    long long last_offset_delta;
    if (!PyArg_ParseTuple(arguments, "Oy*nnL", &type, &data, &at, &most, &last_offset_delta))
        return NULL;
    Batch batch = {.type = (PyTypeObject *)type, .last_offset_delta = last_offset_delta};
    PyObject *found = is_tuple_type(type) ? read_list(&data, at, most, &batch, RAW) : NULL;
    PyBuffer_Release(&data);
    return found;
}

static PyMethodDef functions[] = {
    {"read_records", read_records, METH_VARARGS, "Return records of a batch and the place behind them."},
    {"read_times", read_times, METH_VARARGS, "Return (time, offset) of records of a batch and the place behind them."},
    {"read_raw_records", read_raw_records, METH_VARARGS, "Return raw records of a batch and the place behind them."},
    {0}};

int add_record_reader(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
