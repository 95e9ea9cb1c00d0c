/* The common requests of a handler, from ring to ring: a Produce by its log and after the commit, others at once.
 *
 * Twins: Produces.try_fast (broker/partitions/produce/produces.py), PartitionAppender._complete_fast, and for others the
 * users of ResponseWriter.try_repeat. A request is left to them, with nothing written, if a step fails, or unless it
 * equals the cached one of its connection: in all bytes, or in all but its records, which are one plain batch of no
 * idempotent producer that the log appends at once.
 */

#include "envelopes.h"
#include "fields.h"
#include "ring.h"
#include "varint.h"

/* Twins: LogFields (broker/log/committed_log.py), LimitFields (append_limits.py). */
#define LOG_FIELDS(FIELD) FIELD(next_offset) FIELD(leader_epoch) FIELD(_limits) FIELD(_segment)
#define LIMIT_FIELDS(FIELD)                                                                                            \
    FIELD(is_strict) FIELD(at_once_bytes) FIELD(most_records) FIELD(after_max_ms) FIELD(before_max_ms) FIELD(validates)
enum { LOG_FIELDS(FIELD_INDEX) LOG_COUNT };
enum { LIMIT_FIELDS(FIELD_INDEX) LIMIT_COUNT };
DEFINE_BASE(log, "LogFields", LOG_FIELDS, LOG_COUNT, static, {0, NULL})
DEFINE_BASE(limits, "LimitFields", LIMIT_FIELDS, LIMIT_COUNT, static, {0, NULL})

/* A cached request as it is compared here: the bytes of its prefix and session, and its response with the envelope. Of a
 * Produce the partition with log, list of appends and row, and the bytes before the base offset; else these are None, and
 * `again` is None or returns the present response, None if the twin makes it. Twins: CachedProduce, CachedFields. */
#define KNOWN_FIELDS(FIELD)                                                                                            \
    FIELD(owned) FIELD(log) FIELD(appends) FIELD(row) FIELD(version) FIELD(is_flexible) FIELD(prefix) FIELD(session)   \
    FIELD(response) FIELD(offset_at) FIELD(again)
enum { KNOWN_FIELDS(FIELD_INDEX) KNOWN_COUNT };
DEFINE_BASE(known, "KnownRequest", KNOWN_FIELDS, KNOWN_COUNT, static, {0, NULL})

/* The rings' memory, and of a handler its caches by API, slices, appender and ResponseWriter. Twin: RingRequests. */
#define REQUESTS_FIELDS(FIELD)                                                                                         \
    FIELD(view) FIELD(current) FIELD(request_at) FIELD(recent) FIELD(lanes) FIELD(clock_ns) FIELD(crc32c) FIELD(dirty) \
    FIELD(rings) FIELD(touched) FIELD(known_name)
enum { REQUESTS_FIELDS(FIELD_INDEX) REQUESTS_COUNT };
static PyObject *handle(Fields *self, PyObject *arguments), *respond(Fields *self, PyObject *arguments);

static PyMethodDef methods[] = {{"handle", (PyCFunction)(void (*)(void))handle, METH_VARARGS, "Handle requests."},
    {"respond", (PyCFunction)(void (*)(void))respond, METH_VARARGS, "Respond to committed Produces."}, {0}};

DEFINE_BASE(requests, "CachedRequests", REQUESTS_FIELDS, REQUESTS_COUNT, static, {Py_tp_methods, methods}, {0, NULL})

enum { NOTED = 1, PREFIX_AT = 8, CRC_AT = 21, SMALLEST_RECORD_BYTES = 7, TAG_BYTES = 3, START_AFTER = 16 };

/* A run ends after as many bytes of batches, at most half a millisecond, and with the first response after its end. */
enum { RUN_BYTES = 256 * 1024 };

/* A request's batch, and its envelope. */
typedef struct {
    PyObject *cached;
    Fields *known;
    RequestEnvelope *envelope;
    uint8_t *bytes;
    int64_t size, count, max_timestamp;
} Batch;

typedef struct {
    Fields *self;
    PyObject *ring, *processor, *dequeued_ns, *now_ns;
    Py_buffer view;
    long long now_ms, end_ns, left_bytes;
} Turn;

/* Finds the cached request of a connection without earlier ones in slices, and checks that it equals this one up to the
 * records; returns where its prefix ends, or NULL. Twin: RequestCache.find. */
static const uint8_t *find_known(const Turn *turn, Batch *batch)
{
    const RequestEnvelope *envelope = batch->envelope;
    PyObject *caches = turn->self->slots[recent_FIELD];
    bool is_cached = envelope->api_key >= 0 && envelope->api_key < PyList_Size(caches);
    PyObject *recent = is_cached ? PyList_GetItem(caches, envelope->api_key) : Py_None;
    PyObject *number = recent != Py_None ? PyLong_FromLongLong(envelope->connection_id) : NULL;
    if (number != NULL && PyDict_Contains(turn->self->slots[lanes_FIELD], number) == 0)
        batch->cached = PyDict_GetItemWithError(recent, number);
    Py_XDECREF(number);
    PyObject *known = batch->cached ? PyObject_GetAttr(batch->cached, turn->self->slots[known_name_FIELD]) : NULL;
    Py_XDECREF(known); /* The cached request keeps it. */
    if (known == NULL || known == Py_None || !is_known(known))
        return NULL;
    batch->known = (Fields *)known;
    const uint8_t *frame = (const uint8_t *)(envelope + 1), *prefix = frame + PREFIX_AT;
    PyObject **slots = batch->known->slots;
    bool is_alike = number_in(batch->known, version_FIELD) == envelope->api_version
        && starts_with(frame + envelope->size, envelope->session_bytes, slots[session_FIELD]) == envelope->session_bytes;
    Py_ssize_t prefix_bytes = starts_with(prefix, envelope->size - PREFIX_AT, slots[prefix_FIELD]);
    return is_alike && prefix_bytes >= 0 ? prefix + prefix_bytes : NULL;
}

/* Finds a request's records. False if they are not its last part. Twin: CachedProduce.varying. */
static bool find_records(Batch *batch, const uint8_t *at)
{
    bool is_flexible = batch->known->slots[is_flexible_FIELD] == Py_True;
    Cursor cursor = {at, (const uint8_t *)(batch->envelope + 1) + batch->envelope->size};
    if (is_flexible) {
        if (!read_varint(&cursor, &batch->size))
            return false;
        /* The number is unsigned, and one more than the length. */
        batch->size = ((int64_t)((uint64_t)batch->size << 1) ^ batch->size >> 63) - 1;
        cursor.end -= TAG_BYTES;
    } else {
        if (cursor.end - at < 4)
            return false;
        batch->size = (int32_t)big_endian(at, 4);
        cursor.at += 4;
    }
    batch->bytes = (uint8_t *)cursor.at;
    return batch->size >= BATCH_HEADER_BYTES && batch->size == cursor.end - cursor.at
        && (!is_flexible || memcmp(cursor.end, "\0\0\0", TAG_BYTES) == 0);
}

/* Returns whether a batch has its checksum. */
static bool is_intact(const Turn *turn, const Batch *batch)
{
    PyObject *sum = PyObject_CallFunction(turn->self->slots[crc32c_FIELD], "N",
        PyMemoryView_FromMemory((char *)batch->bytes + CRC_AT, batch->size - CRC_AT, PyBUF_READ));
    bool is_so = sum != NULL && PyLong_AsUnsignedLong(sum) == big_endian(batch->bytes + 17, 4);
    Py_XDECREF(sum);
    return is_so;
}

/* Reads a batch's header; returns whether the log takes it at once, without attributes or producer. Twins: validate
 * (broker/records/record_batch.py), the condition of PartitionLog.stage. */
static bool is_plain(const Turn *turn, const Fields *limits, Batch *batch)
{
    const uint8_t *at = batch->bytes;
    int64_t length = (int32_t)big_endian(at + 8, 4), delta = (int32_t)big_endian(at + 23, 4);
    int64_t base_timestamp = (int64_t)big_endian(at + 27, 8), count = batch->count = (int32_t)big_endian(at + 57, 4);
    int64_t max_timestamp = batch->max_timestamp = (int64_t)big_endian(at + 35, 8);
    return big_endian(at, 8) == 0 && length + 12 == batch->size && at[16] == 2 && big_endian(at + 21, 2) == 0
        && (int64_t)big_endian(at + 43, 8) < 0 && count > 0 && delta + 1 == count
        && count * SMALLEST_RECORD_BYTES <= batch->size - BATCH_HEADER_BYTES && limits->slots[is_strict_FIELD] == Py_False
        && limits->slots[validates_FIELD] == Py_True && batch->size <= number_in(limits, at_once_bytes_FIELD)
        && count <= number_in(limits, most_records_FIELD)
        && (Delta)max_timestamp - turn->now_ms <= number_in(limits, after_max_ms_FIELD)
        && (Delta)turn->now_ms - base_timestamp <= number_in(limits, before_max_ms_FIELD) && is_intact(turn, batch)
        && has_claimed_records(at, batch->size, count, base_timestamp, max_timestamp) && !PyErr_Occurred();
}

/* Stages a batch: writes its offset into it, which is the note, then marks it as one. The state is this process's own
 * word until the request is released. Twins: PartitionLog.stage, try_fast. */
static bool append_batch(const Turn *turn, Fields *log, const Batch *batch, PyObject *frame)
{
    PyObject **known = batch->known->slots, *appends = known[appends_FIELD];
    Py_ssize_t place = batch->bytes - (uint8_t *)turn->view.buf, appended = PyList_Size(appends);
    int64_t offset = number_in(log, next_offset_FIELD);
    uint64_t note = __builtin_bswap64((uint64_t)offset);
    uint32_t epoch = __builtin_bswap32((uint32_t)number_in(log, leader_epoch_FIELD));
    PyObject *next_offset = PyLong_FromLongLong(offset + batch->count), *staged = NULL;
    PyObject *chunk = PySequence_GetSlice(turn->self->slots[view_FIELD], place, place + batch->size);
    PyObject *entry = Py_BuildValue(
        "OOOOOOn", batch->cached, batch->known, turn->ring, frame, turn->processor, turn->dequeued_ns, place);
    if (!PyErr_Occurred() && PyList_Append(appends, entry) == 0) {
        if (PyObject_SetItem(turn->self->slots[dirty_FIELD], known[row_FIELD], known[owned_FIELD]) == 0)
            staged = PyObject_CallMethod(log->slots[_segment_FIELD], "try_stage", "OLLLL", chunk, (long long)batch->size,
                (long long)offset + batch->count - 1, (long long)batch->max_timestamp, turn->now_ms);
        if (staged == Py_True) {
            memcpy(batch->bytes, &note, sizeof note);
            memcpy(batch->bytes + 12, &epoch, sizeof epoch);
            __atomic_store_n(&batch->envelope->state, NOTED, __ATOMIC_RELEASE);
            put_in(log, next_offset_FIELD, Py_NewRef(next_offset));
        } else {
            PyList_SetSlice(appends, appended, appended + 1, NULL);
        }
    }
    Py_XDECREF(chunk);
    Py_XDECREF(entry);
    Py_XDECREF(next_offset);
    Py_XDECREF(staged);
    return staged == Py_True;
}

/* Writes a response with its envelope into the ring of a processor; returns its place, or NULL, perhaps with an exception,
 * if there is no room. Twin: ResponseWriter.try_put. */
static uint8_t *write_response(const Turn *turn, PyObject *response, const RequestEnvelope *request)
{
    char *wire;
    Py_ssize_t wire_bytes;
    int64_t place, dequeued_ns = PyLong_AsLongLong(turn->dequeued_ns), now_ns = PyLong_AsLongLong(turn->now_ns);
    PyObject **slots = turn->self->slots, *producer = PyList_GetItem(slots[rings_FIELD], PyLong_AsSsize_t(turn->processor));
    if (producer == NULL || !is_producer(producer) || PyBytes_AsStringAndSize(response, &wire, &wire_bytes) < 0
        || wire_bytes < (Py_ssize_t)sizeof(ResponseEnvelope) + 8 || PyErr_Occurred()
        || PySet_Add(slots[touched_FIELD], turn->processor) < 0
        || (place = claim_frame((RingProducer *)producer, wire_bytes)) < 0)
        return NULL;
    ResponseEnvelope *to = (ResponseEnvelope *)payload_of(&((RingProducer *)producer)->ring, place);
    uint32_t correlation_id = __builtin_bswap32((uint32_t)request->correlation_id);
    memcpy(to, wire, (size_t)wire_bytes);
    memcpy((uint8_t *)(to + 1) + 4, &correlation_id, sizeof correlation_id);
    to->connection_id = request->connection_id;
    to->sequence = request->sequence;
    to->facts.received_ns = request->received_ns;
    to->facts.dequeued_ns = dequeued_ns;
    to->facts.local_complete_ns = to->facts.response_complete_ns = now_ns;
    to->facts.correlation_id = request->correlation_id;
    to->facts.request_bytes = request->size;
    return (uint8_t *)to;
}

/* Sends a cached response, as it is now; false, perhaps with an exception, if it is left. Twin: try_repeat. */
static bool repeat_response(Turn *turn, const Batch *batch)
{
    PyObject **known = batch->known->slots, *again = known[again_FIELD], *response = known[response_FIELD];
    response = again == Py_None ? Py_NewRef(response) : PyObject_CallFunctionObjArgs(again, response, NULL);
    turn->now_ns = response && response != Py_None ? PyObject_CallNoArgs(turn->self->slots[clock_ns_FIELD]) : NULL;
    bool is_sent = turn->now_ns != NULL && write_response(turn, response, batch->envelope) != NULL;
    turn->left_bytes = is_sent && PyLong_AsLongLong(turn->now_ns) >= turn->end_ns ? 0 : turn->left_bytes;
    Py_XDECREF(turn->now_ns);
    Py_XDECREF(response);
    return is_sent;
}

/* Handles the request of a frame; false, perhaps with an exception, if it is left to the twin. */
static bool handle_frame(Turn *turn, PyObject *frame)
{
    long long at, room, end;
    if (!PyArg_ParseTuple(frame, "LLL", &at, &room, &end) || at < 0 || at % (int64_t)sizeof(int64_t)
        || room < (int64_t)sizeof(RequestEnvelope) || at > turn->view.len - room)
        return false;
    Batch batch = {.envelope = (RequestEnvelope *)((uint8_t *)turn->view.buf + at)};
    const RequestEnvelope *envelope = batch.envelope;
    room -= (int64_t)sizeof *envelope;
    if (envelope->area || envelope->state || envelope->size < PREFIX_AT || envelope->session_bytes < 0
        || (int64_t)envelope->size + envelope->session_bytes > room
        || PyObject_SetItem(turn->self->slots[current_FIELD], turn->self->slots[request_at_FIELD], PyTuple_GetItem(frame, 0)) < 0)
        return false;
    const uint8_t *rest = find_known(turn, &batch);
    turn->left_bytes -= room;
    if (rest == NULL || has_none(batch.known, log_FIELD))
        return rest == (const uint8_t *)(envelope + 1) + envelope->size && repeat_response(turn, &batch);
    Fields *log = (Fields *)batch.known->slots[log_FIELD];
    return find_records(&batch, rest) && is_log((PyObject *)log) && is_limits(log->slots[_limits_FIELD])
        && is_plain(turn, (Fields *)log->slots[_limits_FIELD], &batch) && append_batch(turn, log, &batch, frame);
}

/* Returns how many are done; the twin does the others, also after an error, which is logged; not at a process's exit. */
static PyObject *number_done(Turn *turn, Py_ssize_t number)
{
    PyBuffer_Release(&turn->view);
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_WriteUnraisable((PyObject *)turn->self);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(number);
}

/* handle(ring, processor, frames, first, dequeued_ns, now_ms, end_ns) -> number of the first frame that is left. */
static PyObject *handle(Fields *self, PyObject *arguments)
{
    Turn turn = {.self = self, .left_bytes = RUN_BYTES};
    PyObject *frames;
    Py_ssize_t number;
    if (!PyArg_ParseTuple(arguments, "OOO!nOLL", &turn.ring, &turn.processor, &PyList_Type, &frames, &number,
            &turn.dequeued_ns, &turn.now_ms, &turn.end_ns)
        || !is_requests((PyObject *)self) || PyObject_GetBuffer(self->slots[view_FIELD], &turn.view, PyBUF_WRITABLE) < 0)
        return NULL;
    while (turn.left_bytes > 0 && number >= 0 && number < PyList_Size(frames)
        && handle_frame(&turn, PyList_GetItem(frames, number)))
        number++;
    return number_done(&turn, number);
}

/* Responds to one Produce; false, perhaps with an exception, if there is no room. Twin: _complete_fast. */
static bool respond_to(Turn *turn, PyObject *entry, int64_t start_offset)
{
    PyObject *cached, *known, *ring;
    long long at, size, end, batch_at;
    if (!PyArg_ParseTuple(entry, "OOO(LLL)OOL", &cached, &known, &ring, &at, &size, &end, &turn->processor,
            &turn->dequeued_ns, &batch_at)
        || !is_known(known))
        return false;
    PyObject *response = ((Fields *)known)->slots[response_FIELD];
    int64_t offset_at = number_in((Fields *)known, offset_at_FIELD), length = turn->view.len;
    if (at < 0 || at > length - (int64_t)sizeof(RequestEnvelope) || batch_at < 0 || batch_at > length - BATCH_HEADER_BYTES
        || offset_at < (int64_t)sizeof(ResponseEnvelope) + 8 || offset_at > PyBytes_Size(response) - START_AFTER - 8)
        return false;
    const uint8_t *rings = turn->view.buf, *batch = rings + batch_at;
    uint8_t *to = write_response(turn, response, (const RequestEnvelope *)(rings + at));
    if (to == NULL)
        return false;
    uint64_t start = __builtin_bswap64((uint64_t)start_offset);
    memcpy(to + offset_at, batch, 8);
    memcpy(to + offset_at + START_AFTER, &start, sizeof start);
    ((ResponseEnvelope *)to)->facts.record_count = (int32_t)big_endian(batch + 57, 4);
    ((ResponseEnvelope *)to)->facts.record_bytes = (int64_t)big_endian(batch + 8, 4) + 12;
    return true;
}

/* respond(appends, now_ns, log_start_offset) -> number of responses sent. Twin: PartitionAppender._complete_fast. */
static PyObject *respond(Fields *self, PyObject *arguments)
{
    Turn turn = {.self = self};
    PyObject *appends;
    long long start_offset;
    if (!PyArg_ParseTuple(arguments, "O!OL", &PyList_Type, &appends, &turn.now_ns, &start_offset)
        || !is_requests((PyObject *)self) || PyObject_GetBuffer(self->slots[view_FIELD], &turn.view, PyBUF_SIMPLE) < 0)
        return NULL;
    Py_ssize_t number = 0;
    while (number < PyList_Size(appends) && respond_to(&turn, PyList_GetItem(appends, number), start_offset))
        number++;
    return number_done(&turn, number);
}

int add_cached_requests(PyObject *module)
{
    log_type = add_type(module, &log_spec);
    limits_type = add_type(module, &limits_spec);
    known_type = add_type(module, &known_spec);
    requests_type = add_type(module, &requests_spec);
    return log_type && limits_type && known_type && requests_type ? 0 : -1;
}
