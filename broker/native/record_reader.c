/* Reads a number of records: whole ones for consumers and replays, and the parts needed by compaction.
 *
 * Twins: iterate_records and record_times in broker/records/record_reader.py, raw_records in
 * broker/cleaner/raw_records.py. Reading ends before the first record that is incomplete, out of order or has a longer
 * delta; the twin reads that one or raises its error.
 */

#include "varint.h"

/* The type of a record, a named tuple, and values of its batch header. */
typedef struct {
    PyTypeObject *type;
    long long base_offset, last_offset_delta, base_timestamp, append_time;
    bool has_append_time;
} Batch;

/* The kind of result: a whole record, the parts for compaction, or time and offset. Twin: RecordKind. */
typedef enum { WHOLE = 0, RAW = 1, TIME = 2 } Kind;

/* Makes a record of its type; steals the reference to the fields, which may be NULL. */
static PyObject *new_record(PyTypeObject *type, PyObject *fields)
{
    if (fields == NULL || type == &PyTuple_Type)
        return fields;
    newfunc new_tuple = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    PyObject *arguments = PyTuple_Pack(1, fields);
    PyObject *record = arguments ? new_tuple(type, arguments, NULL) : NULL;
    Py_XDECREF(arguments);
    Py_DECREF(fields);
    return record;
}

/* Returns a field's bytes, or None. */
static PyObject *field_bytes(const uint8_t *bytes, int64_t size)
{
    return size < 0 ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)size);
}

/* Reads a header, a pair. NULL without an exception if it is not one. */
static PyObject *read_header(Cursor *cursor)
{
    const uint8_t *key, *value;
    int64_t key_size, value_size;
    if (!find_field(cursor, &key, &key_size) || key_size < 0 || !find_field(cursor, &value, &value_size))
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
static bool find_position(const Batch *batch, const Place *place, long long *offset, long long *time)
{
    Delta at = batch->has_append_time ? (Delta)batch->append_time : (Delta)batch->base_timestamp + place->delta;
    *time = (long long)at;
    return at >= -INT64_MAX && at <= INT64_MAX && place->offset_delta >= 0
        && place->offset_delta <= batch->last_offset_delta
        && !__builtin_add_overflow(batch->base_offset, place->offset_delta, offset);
}

/* Reads the fields of a record. NULL without an exception if it is not one. Twins: _read_record, raw_records,
 * record_times. */
static PyObject *read_fields(Cursor *cursor, const Batch *batch, const uint8_t *data, Kind kind)
{
    Place place;
    long long offset, time;
    int64_t key_size, value_size;
    const uint8_t *key, *value;
    if (!find_record(cursor, &place) || !find_position(batch, &place, &offset, &time))
        return NULL;
    if (kind == TIME)
        return Py_BuildValue("LL", time, offset);
    if (!find_field(cursor, &key, &key_size) || !find_field(cursor, &value, &value_size))
        return NULL;
    if (kind == RAW)
        return cursor->at == place.stop
            ? NULL
            : Py_BuildValue("nnnLLNN", (Py_ssize_t)(place.start - data), (Py_ssize_t)(place.rest - data),
                (Py_ssize_t)(place.stop - data), time, offset, field_bytes(key, key_size),
                PyBool_FromLong(value_size >= 0));
    PyObject *headers = read_headers(cursor);
    return headers == NULL ? NULL
                           : Py_BuildValue("LLNNN", offset, time, field_bytes(key, key_size),
                                 field_bytes(value, value_size), headers);
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
        PyObject *record = new_record(batch->type, read_fields(&cursor, batch, bytes, kind));
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

/* read_records(kind, type, data, at, most, base_offset, last_offset_delta, base_timestamp, append_time or None)
 * -> (records, at). Twins: iterate_records, raw_records, record_times. */
static PyObject *read_records(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *append_time;
    Py_buffer data;
    Py_ssize_t at, most;
    Batch batch;
    int kind;
    if (!PyArg_ParseTuple(arguments, "iO!y*nnLLLO", &kind, &PyType_Type, &batch.type, &data, &at, &most,
            &batch.base_offset, &batch.last_offset_delta, &batch.base_timestamp, &append_time))
        return NULL;
    batch.has_append_time = append_time != Py_None;
    batch.append_time = batch.has_append_time ? PyLong_AsLongLong(append_time) : 0;
    if (!PyType_IsSubtype(batch.type, &PyTuple_Type))
        PyErr_SetString(PyExc_TypeError, "a type of named tuples is needed");
    PyObject *found = PyErr_Occurred() ? NULL : read_list(&data, at, most, &batch, kind);
    PyBuffer_Release(&data);
    return found;
}

static PyMethodDef functions[] = {
    {"read_records", read_records, METH_VARARGS, "Return records of a batch and the place behind them."}, {0}};

int add_record_reader(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
