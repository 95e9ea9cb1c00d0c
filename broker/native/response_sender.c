/* The sender of responses: from the response rings to the sockets, for responses that need nothing else.
 *
 * Twin: broker/network/processor/response_reader.py. Responses are read from the rings first, in batches, and sent when
 * their number has been published; those of one connection leave together. Uncommon ones are left to the twin: early
 * and second responses, errors, files, muted connections, TLS, and unsent bytes.
 */

#include "channel.h"
#include "ring.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* RESPONSE_ENVELOPE of shm/layout.py; the facts for the request log are copied whole. */
typedef struct {
    int64_t connection_id, sequence, size;
    int32_t range_count;
    int16_t kind;
    uint8_t facts[104] __attribute__((aligned(8)));
} ResponseEnvelope;

_Static_assert(sizeof(ResponseEnvelope) == 136, "RESPONSE_ENVELOPE has 136 bytes");

/* The most responses of a connection in one system call. */
enum { SENT_AT_ONCE = 64, NOBODY = -1 };

/* A response in the rings. `next` is the place of the connection's next one. */
typedef struct {
    Fields *channel;
    PyObject *answered;
    const uint8_t *bytes;
    int64_t size;
    int next;
    bool is_first;
} Response;

/* A connection: the place of its last response that is read and not sent, and the last read that left it a frame. */
typedef struct {
    int last;
    unsigned left_in;
} Reading;

typedef struct {
    PyObject_HEAD
    PyObject *now_ns, *rows, *runs, *place, *left;
    long long bytes;
    Response *responses;
    Reading *by_fd;
    unsigned reads;
    int count, room, fd_room;
} ResponseSender;

/* Grows an array to hold an item at a place. */
static void *grown(void *array, int *room, int place, size_t size)
{
    int wanted = place < 512 ? 1024 : 2 * place;
    void *larger = place < *room ? array : realloc(array, (size_t)wanted * size);
    if (larger == NULL)
        PyErr_NoMemory();
    else if (place >= *room)
        *room = wanted;
    return larger;
}

/* Returns the record of a descriptor's connection; NULL with an exception. */
static Reading *reading_of(ResponseSender *self, long long fd)
{
    int before = self->fd_room;
    if (fd < 0 || fd > 1 << 24) {
        PyErr_SetString(PyExc_ValueError, "no descriptor");
        return NULL;
    }
    Reading *larger = grown(self->by_fd, &self->fd_room, (int)fd, sizeof *larger);
    if (larger == NULL)
        return NULL;
    self->by_fd = larger;
    for (; before < self->fd_room; before++)
        larger[before] = (Reading){NOBODY, 0};
    return &larger[fd];
}

/* Returns whether a response is the expected one of a connection without anything to do first. Twin: _take. */
static bool is_common(const Fields *channel, const ResponseEnvelope *envelope, int64_t frame_size, bool has_more)
{
    int64_t most = frame_size - (int64_t)sizeof *envelope;
    if (envelope->kind || envelope->range_count || envelope->size <= 0 || envelope->size > most
        || number_in(channel, next_answer_FIELD) != envelope->sequence)
        return false;
    return has_none(channel, tls_FIELD) && !has_none(channel, client_FIELD) && is_empty(channel, muted_FIELD)
        && is_empty(channel, held_FIELD) && is_empty(channel, closing_FIELD) && is_empty(channel, former_clients_FIELD)
        && (has_more
            || (is_empty(channel, out_FIELD) && is_empty(channel, unsent_FIELD) && is_empty(channel, answered_FIELD)))
        && number_in(channel, kept_bytes_FIELD) <= OWN_BYTES;
}

/* Drops the copy of an answered request, if there is one. Twin: _take. */
static bool drop_copy(Fields *channel, int64_t sequence)
{
    PyObject *copies = channel->slots[repeatable_FIELD];
    if (PyDict_Size(copies) <= 0)
        return !PyErr_Occurred();
    PyObject *number = PyLong_FromLongLong(sequence);
    PyObject *copy = number ? PyDict_GetItemWithError(copies, number) : NULL;
    bool done = !PyErr_Occurred();
    if (copy != NULL) {
        PyObject *frame = PyTuple_GetItem(copy, 2);
        Py_ssize_t size = frame ? PyObject_Size(frame) : -1;
        done = size >= 0 && PyDict_DelItem(copies, number) == 0
            && put_in(channel, kept_bytes_FIELD, PyLong_FromLongLong(number_in(channel, kept_bytes_FIELD) - size));
    }
    Py_XDECREF(number);
    return done;
}

/* Adds a response to those to be sent. */
static bool add_response(ResponseSender *self, Fields *channel, const ResponseEnvelope *envelope, const uint8_t *bytes,
    PyObject *now_ns, Reading *reading)
{
    Response *larger = grown(self->responses, &self->room, self->count, sizeof *larger);
    if (larger == NULL)
        return false;
    self->responses = larger;
    PyObject *answered
        = Py_BuildValue("y#O", (const char *)envelope->facts, (Py_ssize_t)sizeof envelope->facts, now_ns);
    if (answered == NULL || !drop_copy(channel, envelope->sequence)
        || !put_in(channel, next_answer_FIELD, PyLong_FromLongLong(envelope->sequence + 1))) {
        Py_XDECREF(answered);
        return false;
    }
    larger[self->count] = (Response){(Fields *)Py_NewRef((PyObject *)channel), answered, bytes, envelope->size, NOBODY,
        reading->last == NOBODY};
    if (reading->last != NOBODY)
        larger[reading->last].next = self->count;
    reading->last = self->count++;
    self->bytes += envelope->size;
    return true;
}

/* Moves unsent responses to their channel, before anything else there, for the usual write. */
static bool attach_rest(ResponseSender *self, Response *first, int64_t sent, PyObject *ready)
{
    Fields *channel = first->channel;
    PyObject *pieces = PyList_New(0), *answered = PyList_New(0);
    bool done = pieces != NULL && answered != NULL;
    for (Response *each = first; done; each = &self->responses[each->next]) {
        int64_t skipped = sent < each->size ? sent : each->size;
        sent -= skipped;
        PyObject *piece = PyBytes_FromStringAndSize((const char *)each->bytes + skipped, each->size - skipped);
        done = piece != NULL && (skipped == each->size || PyList_Append(pieces, piece) == 0)
            && PyList_Append(answered, each->answered) == 0;
        Py_XDECREF(piece);
        each->size = 0;
        if (each->next == NOBODY)
            break;
    }
    first->is_first = false;
    PyObject *joined = done ? PyBytes_FromStringAndSize(NULL, 0) : NULL;
    PyObject *piece = joined ? PyObject_CallMethod(joined, "join", "O", pieces) : NULL;
    done = piece != NULL && PyList_Insert(channel->slots[out_FIELD], 0, piece) == 0
        && PyList_SetSlice(channel->slots[answered_FIELD], 0, 0, answered) == 0
        && PyObject_SetItem(ready, channel->slots[fd_FIELD], (PyObject *)channel) == 0;
    Py_XDECREF(joined);
    Py_XDECREF(piece);
    Py_XDECREF(pieces);
    Py_XDECREF(answered);
    return done;
}

/* Adds a frame to those that are left to the twin, as all later ones of its connection are. What is read and unsent is
 * attached before. */
static bool leave_frame(ResponseSender *self, Fields *channel, const Frame *frame, Reading *reading, PyObject *ready)
{
    if (reading != NULL)
        reading->left_in = self->reads;
    if (reading != NULL && reading->last != NOBODY) {
        int first = reading->last;
        while (!self->responses[first].is_first || self->responses[first].channel != channel)
            first--;
        reading->last = NOBODY;
        if (!attach_rest(self, &self->responses[first], 0, ready))
            return false;
    }
    PyObject *entry = Py_BuildValue("LLL", (long long)frame->at, (long long)frame->size, (long long)frame->end);
    bool done = entry != NULL && PyList_Append(self->left, entry) == 0;
    Py_XDECREF(entry);
    return done;
}

/* Reads one response. Twin: a step of ResponseReader._take. */
static bool read_response(ResponseSender *self, const Ring *ring, const Frame *frame, PyObject *by_id, PyObject *ready,
    PyObject *now_ns)
{
    const ResponseEnvelope *envelope = (const ResponseEnvelope *)payload_of(ring, frame->at);
    if (frame->size < (int64_t)sizeof *envelope)
        return leave_frame(self, NULL, frame, NULL, ready);
    PyObject *number = PyLong_FromLongLong(envelope->connection_id);
    PyObject *object = number ? PyDict_GetItemWithError(by_id, number) : NULL;
    Py_XDECREF(number);
    if (PyErr_Occurred() || (object != NULL && !is_channel(object)))
        return false;
    if (object == NULL)
        return leave_frame(self, NULL, frame, NULL, ready);
    Fields *channel = (Fields *)object;
    Reading *reading = reading_of(self, number_in(channel, fd_FIELD));
    if (reading == NULL)
        return false;
    if (reading->left_in == self->reads || !is_common(channel, envelope, frame->size, reading->last != NOBODY))
        return !PyErr_Occurred() && leave_frame(self, channel, frame, reading, ready);
    return add_response(self, channel, envelope, (const uint8_t *)(envelope + 1), now_ns, reading);
}

/* read(ring, most, by_id, ready) -> frames read; those for the twin are in `left`. Twin: ResponseReader._take. */
static PyObject *read_ring(ResponseSender *self, PyObject *arguments)
{
    PyObject *ring, *by_id, *ready;
    int most, count = 0, found = 0;
    if (!PyArg_ParseTuple(arguments, "OiO!O!", &ring, &most, &PyDict_Type, &by_id, &PyDict_Type, &ready)
        || !is_consumer(ring))
        return NULL;
    RingConsumer *consumer = (RingConsumer *)ring;
    PyObject *now_ns = NULL;
    Frame frame;
    self->reads++;
    while (count < most && (found = read_frame(consumer, &frame)) > 0) {
        count++;
        if (now_ns == NULL && (now_ns = PyObject_CallNoArgs(self->now_ns)) == NULL)
            return NULL;
        if (!read_response(self, &consumer->ring, &frame, by_id, ready, now_ns))
            break;
    }
    Py_XDECREF(now_ns);
    return found < 0 || PyErr_Occurred() ? NULL : PyLong_FromLong(count);
}

/* Sends a connection's responses in as few calls as possible; returns the bytes sent. Twin: Channel.flush. */
static int64_t send_responses(const ResponseSender *self, const Response *first, int fd)
{
    int64_t sent = 0;
    const Response *each = first;
    while (each != NULL) {
        struct iovec parts[SENT_AT_ONCE];
        struct msghdr message = {.msg_iov = parts};
        int64_t size = 0;
        while (each != NULL && message.msg_iovlen < SENT_AT_ONCE) {
            parts[message.msg_iovlen++] = (struct iovec){(void *)each->bytes, (size_t)each->size};
            size += each->size;
            each = each->next == NOBODY ? NULL : &self->responses[each->next];
        }
        /* The socket never blocks. After a failure the twin sends again and gets the error. */
        ssize_t count = message.msg_iovlen == 1 ? send(fd, parts[0].iov_base, parts[0].iov_len, MSG_NOSIGNAL)
                                                : sendmsg(fd, &message, MSG_NOSIGNAL);
        if (count > 0)
            sent += count;
        if (count != size)
            break;
    }
    return sent;
}

/* Adds the rows of completed requests. Twin: CompletedRequests.add_lone. */
static bool add_rows(const ResponseSender *self, const Response *first, PyObject *end_ns)
{
    long count = 0;
    const Response *each = first;
    while (each != NULL) {
        if (PyList_Append(self->rows, each->answered) < 0)
            return false;
        count++;
        each = each->next == NOBODY ? NULL : &self->responses[each->next];
    }
    PyObject *place = PyObject_GetAttr(first->channel->slots[client_FIELD], self->place);
    PyObject *number = PyLong_FromLong(count);
    bool done = place != NULL && number != NULL && PyList_Append(self->runs, place) == 0
        && PyList_Append(self->runs, number) == 0 && PyList_Append(self->runs, end_ns) == 0;
    Py_XDECREF(place);
    Py_XDECREF(number);
    return done;
}

/* Calls `finish` for each response of a connection. Twin: ResponseReader.send_lone. */
static bool finish_each(const ResponseSender *self, const Response *first, PyObject *finish, PyObject *end_ns)
{
    for (const Response *each = first;; each = &self->responses[each->next]) {
        PyObject *done = PyObject_CallFunctionObjArgs(finish, each->channel, each->answered, end_ns, NULL);
        Py_XDECREF(done);
        if (done == NULL || each->next == NOBODY)
            return done != NULL;
    }
}

/* Sends the responses of one connection and completes their requests, or attaches the unsent bytes. */
static bool send_channel(ResponseSender *self, Response *first, PyObject *finish, PyObject *ready)
{
    int64_t size = 0;
    for (const Response *each = first;; each = &self->responses[each->next]) {
        size += each->size;
        if (each->next == NOBODY)
            break;
    }
    long long fd = number_in(first->channel, fd_FIELD);
    if (fd < 0)
        return false;
    int64_t sent = send_responses(self, first, (int)fd);
    if (sent != size)
        return attach_rest(self, first, sent, ready);
    PyObject *end_ns = PyObject_CallNoArgs(self->now_ns);
    bool done = end_ns != NULL
        && (finish == Py_None ? add_rows(self, first, end_ns) : finish_each(self, first, finish, end_ns));
    Py_XDECREF(end_ns);
    return done;
}

/* Closes a connection with a fault, which is the exception. */
static void report_fault(PyObject *fault, PyObject *channel)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyErr_SetHandledException(value);
    PyObject *done = PyObject_CallFunctionObjArgs(fault, channel, NULL);
    if (done == NULL)
        PyErr_WriteUnraisable(fault);
    PyErr_SetHandledException(NULL);
    Py_XDECREF(done);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

/* Forgets all responses. */
static void clear_responses(ResponseSender *self)
{
    for (int place = 0; place < self->count; place++) {
        Response *each = &self->responses[place];
        long long fd = number_in(each->channel, fd_FIELD);
        if (fd >= 0 && fd < self->fd_room)
            self->by_fd[fd].last = NOBODY;
        PyErr_Clear();
        Py_DECREF((PyObject *)each->channel);
        Py_DECREF(each->answered);
    }
    self->count = 0;
}

/* send(finish or None, fault, ready) -> responses sent. Twin: ResponseReader.send_lone. */
static PyObject *send_all(ResponseSender *self, PyObject *arguments)
{
    PyObject *finish, *fault, *ready;
    if (!PyArg_ParseTuple(arguments, "OOO!", &finish, &fault, &PyDict_Type, &ready))
        return NULL;
    Py_ssize_t before = PyList_Size(self->rows);
    for (int place = 0; place < self->count; place++) {
        Response *first = &self->responses[place];
        if (first->is_first && !send_channel(self, first, finish, ready))
            report_fault(fault, (PyObject *)first->channel);
    }
    clear_responses(self);
    return PyLong_FromSsize_t(PyList_Size(self->rows) - before);
}

/* ResponseSender(now_ns, rows, runs): rows and runs of completed requests are added to these lists. */
static PyObject *create(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    PyObject *now_ns, *rows, *runs;
    if ((named && PyDict_Size(named))
        || !PyArg_ParseTuple(arguments, "OO!O!", &now_ns, &PyList_Type, &rows, &PyList_Type, &runs))
        return NULL;
    ResponseSender *self = (ResponseSender *)PyType_GenericNew(type, NULL, NULL);
    if (self == NULL)
        return NULL;
    self->now_ns = Py_NewRef(now_ns);
    self->rows = Py_NewRef(rows);
    self->runs = Py_NewRef(runs);
    self->place = PyUnicode_InternFromString("place");
    self->left = PyList_New(0);
    if (self->place != NULL && self->left != NULL)
        return (PyObject *)self;
    Py_DECREF((PyObject *)self);
    return NULL;
}

static void destroy(PyObject *object)
{
    ResponseSender *self = (ResponseSender *)object;
    PyTypeObject *type = Py_TYPE(object);
    clear_responses(self);
    free(self->responses);
    free(self->by_fd);
    Py_XDECREF(self->now_ns);
    Py_XDECREF(self->rows);
    Py_XDECREF(self->runs);
    Py_XDECREF(self->place);
    Py_XDECREF(self->left);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {{"read", (PyCFunction)(void (*)(void))read_ring, METH_VARARGS, "Read responses from a ring."},
    {"send", (PyCFunction)(void (*)(void))send_all, METH_VARARGS, "Send the responses read."}, {0}};

static PyMemberDef members[] = {{"bytes", T_LONGLONG, offsetof(ResponseSender, bytes), 0, NULL},
    {"count", T_INT, offsetof(ResponseSender, count), READONLY, NULL},
    {"left", T_OBJECT_EX, offsetof(ResponseSender, left), READONLY, NULL}, {0}};

static PyType_Slot type_slots[] = {{Py_tp_doc, "Sends the responses of channels."}, {Py_tp_new, create},
    {Py_tp_dealloc, destroy}, {Py_tp_methods, methods}, {Py_tp_members, members}, {0, NULL}};

static PyType_Spec type_spec = {.name = "rotunda.broker.native.compiled.ResponseSender",
    .basicsize = sizeof(ResponseSender),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = type_slots};

int add_response_sender(PyObject *module)
{
    PyTypeObject *type = add_type(module, &type_spec);
    Py_XDECREF((PyObject *)type);
    return type == NULL ? -1 : 0;
}
