/* The sender of responses: from the response rings to the sockets, for responses that need nothing else.
 *
 * Twin: broker/network/processor/response_reader.py. Responses are read from the rings first, in batches, and sent when
 * their number has been published; those of one connection leave together. Uncommon ones are left to the twin: early
 * and second responses, errors, files, muted connections, TLS, and unsent bytes.
 */

#include "channel.h"
#include "envelopes.h"
#include "ring.h"

#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* FILE_RANGE of shm/layout.py. */
typedef struct {
    int64_t inline_before, inode, position, length, path_bytes;
} FileRange;

/* The most responses of a connection in one system call, the most bytes of a file (WRITTEN_AT_ONCE_BYTES), and about the
 * most bytes before others are served, in a few milliseconds: the rest is left to the twin, which looks at the time. */
enum { SENT_AT_ONCE = 64, FILE_AT_ONCE_BYTES = 4 * 1024 * 1024, SENT_IN_ALL_BYTES = 16 * 1024 * 1024 };
enum { SEND_FLAGS = MSG_NOSIGNAL | MSG_DONTWAIT, NOBODY = -1 };

/* A response in the rings: `size` bytes of it, and behind `head` of them `length` bytes of a file, if it has one. `next`
 * is the place of the connection's next response. */
typedef struct {
    Fields *channel;
    PyObject *completion, *file;
    const uint8_t *bytes;
    int64_t size, head, position, length;
    int fd, file_fd, next;
    bool is_first;
} Response;

/* A connection: the places of its first and last response that are read and not sent, and the last read that left it a
 * frame. */
typedef struct {
    int first, last;
    unsigned left_in;
} Reading;

/* What the sender is given: a clock, rows and runs of CompletedRequests, SegmentFiles.known, ResponseReader.attach;
 * the frames that it has left to the twin; and the connection that an exception of `send` is of. */
#define SENDER_FIELDS(FIELD)                                                                                           \
    FIELD(clock_ns) FIELD(rows) FIELD(runs) FIELD(known_file) FIELD(attach) FIELD(left) FIELD(failed)

enum { SENDER_FIELDS(FIELD_INDEX) SENDER_FIELD_COUNT };

typedef struct {
    PyObject_HEAD
    PyObject *slots[SENDER_FIELD_COUNT];
    long long bytes;
    Response *responses;
    Reading *by_fd;
    unsigned reads;
    int count, sent, room, fd_room;
} ResponseSender;

static PyMemberDef members[] = {
    SENDER_FIELDS(FIELD_MEMBER){"bytes", T_LONGLONG, offsetof(ResponseSender, bytes), 0, NULL},
    {"count", T_INT, offsetof(ResponseSender, count), READONLY, NULL}, {0}};

/* Returns a connection's response after this one. */
static inline const Response *next_of(const ResponseSender *self, const Response *response)
{
    return response->next == NOBODY ? NULL : &self->responses[response->next];
}

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
        larger[before] = (Reading){NOBODY, NOBODY, 0};
    return &larger[fd];
}

/* Returns whether a response is the expected one of a connection without anything to do first. Twin: _take. */
static bool is_common(const Fields *channel, const ResponseEnvelope *envelope, int64_t frame_size, bool has_more)
{
    int64_t most = frame_size - (int64_t)sizeof *envelope;
    if (envelope->kind || envelope->range_count < 0 || envelope->range_count > 1 || envelope->size <= 0
        || envelope->size > most || number_in(channel, next_response_FIELD) != envelope->sequence)
        return false;
    return has_none(channel, tls_FIELD) && !has_none(channel, client_FIELD) && is_empty(channel, muted_FIELD)
        && is_empty(channel, held_FIELD) && is_empty(channel, closing_FIELD) && is_empty(channel, former_clients_FIELD)
        && (has_more
            || (is_empty(channel, out_FIELD) && is_empty(channel, unsent_FIELD) && is_empty(channel, completions_FIELD)))
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

/* Finds the parts of a response; returns whether it can be sent: its file, if it has one, must be open already.
 * Twin: ResponseReader._parts. */
static bool find_parts(ResponseSender *self, const ResponseEnvelope *envelope, int64_t frame_size, Response *response)
{
    response->bytes = (const uint8_t *)(envelope + 1);
    response->head = response->size = envelope->size;
    if (!envelope->range_count)
        return true;
    const FileRange *range = (const FileRange *)(envelope + 1);
    int64_t room = frame_size - (int64_t)(sizeof *envelope + sizeof *range) - envelope->size;
    if (room < 0 || range->path_bytes < 0 || range->path_bytes > room || range->inline_before < 0
        || range->inline_before > envelope->size || range->length <= 0 || range->length > FILE_AT_ONCE_BYTES)
        return false;
    response->bytes = (const uint8_t *)(range + 1) + range->path_bytes;
    response->head = range->inline_before;
    response->position = range->position;
    response->length = range->length;
    PyObject *file = PyObject_CallFunction(self->slots[known_file_FIELD], "L", (long long)range->inode);
    PyObject *number = file && file != Py_None ? PyObject_GetAttrString(file, "fd") : NULL;
    response->file_fd = number ? (int)PyLong_AsLong(number) : -1;
    Py_XDECREF(number);
    if (number == NULL)
        Py_CLEAR(file);
    response->file = file;
    return file != NULL && !PyErr_Occurred();
}

/* Adds a response to those to be sent. */
static bool add_response(
    ResponseSender *self, const Response *response, const ResponseEnvelope *envelope, PyObject *now_ns, Reading *reading)
{
    Response *larger = grown(self->responses, &self->room, self->count, sizeof *larger);
    if (larger == NULL)
        return false;
    self->responses = larger;
    Fields *channel = response->channel;
    PyObject *completion
        = Py_BuildValue("y#O", (const char *)&envelope->facts, (Py_ssize_t)sizeof envelope->facts, now_ns);
    if (completion == NULL || !drop_copy(channel, envelope->sequence)
        || !put_in(channel, next_response_FIELD, PyLong_FromLongLong(envelope->sequence + 1))
        || (response->file && !put_in(channel, resend_count_FIELD, PyLong_FromLong(0)))) {
        Py_XDECREF(completion);
        return false;
    }
    Py_INCREF((PyObject *)channel);
    larger[self->count] = *response;
    larger[self->count].completion = completion;
    larger[self->count].next = NOBODY;
    larger[self->count].is_first = reading->last == NOBODY;
    if (reading->last != NOBODY)
        larger[reading->last].next = self->count;
    else
        reading->first = self->count;
    reading->last = self->count++;
    self->bytes += response->size + response->length;
    return true;
}

/* Has the twin attach a connection's responses, of which some bytes are sent. Twin: ResponseReader.attach. */
static bool attach_rest(ResponseSender *self, Response *first, int64_t sent, PyObject *ready)
{
    PyObject *parts = PyList_New(0);
    bool done = parts != NULL;
    for (const Response *each = first; done && each != NULL; each = next_of(self, each)) {
        PyObject *part = Py_BuildValue("y#LOLLO", (const char *)each->bytes, (Py_ssize_t)each->size, (long long)each->head,
            each->file ? each->file : Py_None, (long long)each->position, (long long)each->length, each->completion);
        done = part != NULL && PyList_Append(parts, part) == 0;
        Py_XDECREF(part);
    }
    first->is_first = false;
    PyObject *attached = done ? PyObject_CallFunction(self->slots[attach_FIELD], "OOLO", first->channel, parts,
                                    (long long)sent, ready)
                              : NULL;
    Py_XDECREF(attached);
    Py_XDECREF(parts);
    return attached != NULL;
}

/* Adds a frame to those that are left to the twin, as all later ones of its connection are. What is read and unsent is
 * attached before. */
static bool leave_frame(ResponseSender *self, const Frame *frame, Reading *reading, PyObject *ready)
{
    if (reading != NULL)
        reading->left_in = self->reads;
    if (reading != NULL && reading->last != NOBODY) {
        reading->last = NOBODY;
        if (!attach_rest(self, &self->responses[reading->first], 0, ready))
            return false;
    }
    PyObject *entry = Py_BuildValue("LLL", (long long)frame->at, (long long)frame->size, (long long)frame->end);
    bool done = entry != NULL && PyList_Append(self->slots[left_FIELD], entry) == 0;
    Py_XDECREF(entry);
    return done;
}

/* Reads one response. Twin: a step of ResponseReader._take. */
static bool read_response(ResponseSender *self, const Ring *ring, const Frame *frame, PyObject *by_id, PyObject *ready,
    PyObject *now_ns)
{
    const ResponseEnvelope *envelope = (const ResponseEnvelope *)payload_of(ring, frame->at);
    if (frame->size < (int64_t)sizeof *envelope)
        return leave_frame(self, frame, NULL, ready);
    PyObject *number = PyLong_FromLongLong(envelope->connection_id);
    PyObject *object = number ? PyDict_GetItemWithError(by_id, number) : NULL;
    Py_XDECREF(number);
    if (PyErr_Occurred() || (object != NULL && !is_channel(object)))
        return false;
    if (object == NULL)
        return leave_frame(self, frame, NULL, ready);
    Fields *channel = (Fields *)object;
    long long fd = number_in(channel, fd_FIELD);
    Reading *reading = reading_of(self, fd);
    if (reading == NULL)
        return false;
    Response response = {.channel = channel, .fd = (int)fd};
    if (reading->left_in == self->reads || !is_common(channel, envelope, frame->size, reading->last != NOBODY)
        || !find_parts(self, envelope, frame->size, &response))
        return !PyErr_Occurred() && leave_frame(self, frame, reading, ready);
    bool done = add_response(self, &response, envelope, now_ns, reading);
    if (!done)
        Py_XDECREF(response.file);
    return done;
}

/* read(ring, most, by_id, ready) -> frames read; those for the twin are in `left`. Twin: ResponseReader._take. */
static PyObject *read_ring(ResponseSender *self, PyObject *arguments)
{
    PyObject *ring, *by_id, *ready;
    int most, count = 0, found = 0;
    if (!PyArg_ParseTuple(arguments, "OiO!O!", &ring, &most, &PyDict_Type, &by_id, &PyDict_Type, &ready)
        || !is_consumer(ring) || !has_fields((Fields *)self, members, SENDER_FIELD_COUNT))
        return NULL;
    RingConsumer *consumer = (RingConsumer *)ring;
    PyObject *now_ns = NULL;
    Frame frame;
    self->reads++;
    while (count < most && (found = read_frame(consumer, &frame)) > 0) {
        count++;
        if (now_ns == NULL && (now_ns = PyObject_CallNoArgs(self->slots[clock_ns_FIELD])) == NULL)
            return NULL;
        if (!read_response(self, &consumer->ring, &frame, by_id, ready, now_ns))
            break;
    }
    Py_XDECREF(now_ns);
    return found < 0 || PyErr_Occurred() ? NULL : PyLong_FromLong(count);
}

/* Sends a response with a file; returns the bytes sent. Twin: Channel.flush. */
static int64_t send_with_file(const Response *response)
{
    int64_t tail = response->size - response->head;
    ssize_t count = response->head ? send(response->fd, response->bytes, (size_t)response->head, SEND_FLAGS | MSG_MORE) : 0;
    if (count < response->head)
        return count < 0 ? 0 : count;
    off_t position = response->position;
    count = sendfile(response->fd, response->file_fd, &position, (size_t)response->length);
    if (count < response->length)
        return response->head + (count < 0 ? 0 : count);
    count = tail ? send(response->fd, response->bytes + response->head, (size_t)tail, SEND_FLAGS) : 0;
    return response->head + response->length + (count < 0 ? 0 : count);
}

/* Sends responses without files in one call, as many as it takes; returns the bytes sent, and the next response. */
static int64_t send_inline(const ResponseSender *self, const Response **each, int fd, int64_t *size)
{
    struct iovec parts[SENT_AT_ONCE];
    struct msghdr message = {.msg_iov = parts};
    *size = 0;
    while (*each != NULL && (*each)->file == NULL && message.msg_iovlen < SENT_AT_ONCE) {
        parts[message.msg_iovlen++] = (struct iovec){(void *)(*each)->bytes, (size_t)(*each)->size};
        *size += (*each)->size;
        *each = next_of(self, *each);
    }
    ssize_t count = message.msg_iovlen == 1 ? send(fd, parts[0].iov_base, parts[0].iov_len, SEND_FLAGS)
                                            : sendmsg(fd, &message, SEND_FLAGS);
    return count < 0 ? 0 : count;
}

/* Sends a connection's responses in as few calls as possible; returns the bytes sent. The socket never blocks. After a
 * failure the twin sends again and gets the error. */
static int64_t send_responses(const ResponseSender *self, const Response *first)
{
    int64_t sent = 0, size = 0, count = 0;
    const Response *each = first;
    while (each != NULL && count == size) {
        if (each->file == NULL)
            count = send_inline(self, &each, first->fd, &size);
        else {
            size = each->size + each->length;
            count = send_with_file(each);
            each = next_of(self, each);
        }
        sent += count;
    }
    return sent;
}

/* Adds the rows of completed requests. Twin: CompletedRequests.add_lone. */
static bool add_rows(const ResponseSender *self, const Response *first, PyObject *end_ns)
{
    long count = 0;
    for (const Response *each = first; each != NULL; each = next_of(self, each), count++)
        if (PyList_Append(self->slots[rows_FIELD], each->completion) < 0)
            return false;
    PyObject *place = PyObject_GetAttrString(first->channel->slots[client_FIELD], "place");
    PyObject *number = PyLong_FromLong(count);
    bool done = place != NULL && number != NULL && PyList_Append(self->slots[runs_FIELD], place) == 0
        && PyList_Append(self->slots[runs_FIELD], number) == 0 && PyList_Append(self->slots[runs_FIELD], end_ns) == 0;
    Py_XDECREF(place);
    Py_XDECREF(number);
    return done;
}

/* Calls `finish` for each response of a connection. Twin: ResponseReader.send_lone. */
static bool finish_each(const ResponseSender *self, const Response *first, PyObject *finish, PyObject *end_ns)
{
    bool done = true;
    for (const Response *each = first; done && each != NULL; each = next_of(self, each)) {
        PyObject *finished = PyObject_CallFunctionObjArgs(finish, each->channel, each->completion, end_ns, NULL);
        Py_XDECREF(finished);
        done = finished != NULL;
    }
    return done;
}

/* Sends the responses of one connection and completes their requests, or attaches the unsent bytes. */
static bool send_channel(ResponseSender *self, Response *first, PyObject *finish, PyObject *ready, int64_t *left_bytes)
{
    int64_t size = 0;
    for (const Response *each = first; each != NULL; each = next_of(self, each))
        size += each->size + each->length;
    int64_t sent = *left_bytes > 0 ? send_responses(self, first) : 0;
    *left_bytes -= sent;
    if (sent != size)
        return attach_rest(self, first, sent, ready);
    PyObject *end_ns = PyObject_CallNoArgs(self->slots[clock_ns_FIELD]);
    bool done = end_ns != NULL
        && (finish == Py_None ? add_rows(self, first, end_ns) : finish_each(self, first, finish, end_ns));
    Py_XDECREF(end_ns);
    return done;
}

/* Forgets all responses. */
static void clear_responses(ResponseSender *self)
{
    for (int place = 0; place < self->count; place++) {
        Response *each = &self->responses[place];
        self->by_fd[each->fd].last = NOBODY;
        Py_DECREF((PyObject *)each->channel);
        Py_DECREF(each->completion);
        Py_XDECREF(each->file);
    }
    self->count = self->sent = 0;
}

/* send(finish or None, ready): sends the responses read. After an exception, which is of the connection `failed`, the next
 * call sends the others. Twin: ResponseReader.send_lone. */
static PyObject *send_all(ResponseSender *self, PyObject *arguments)
{
    PyObject *finish, *ready;
    if (!PyArg_ParseTuple(arguments, "OO!", &finish, &PyDict_Type, &ready)
        || !has_fields((Fields *)self, members, SENDER_FIELD_COUNT))
        return NULL;
    int64_t left_bytes = SENT_IN_ALL_BYTES;
    while (self->sent < self->count) {
        Response *first = &self->responses[self->sent++];
        if (first->is_first && !send_channel(self, first, finish, ready, &left_bytes)) {
            put_in((Fields *)self, failed_FIELD, Py_NewRef((PyObject *)first->channel));
            return NULL;
        }
    }
    clear_responses(self);
    Py_RETURN_NONE;
}

DEFINE_FIELDS(fields, SENDER_FIELD_COUNT)

static void destroy(PyObject *object)
{
    ResponseSender *self = (ResponseSender *)object;
    PyObject_GC_UnTrack(object);
    clear_responses(self);
    free(self->responses);
    free(self->by_fd);
    fields_destroy(object);
}

static PyMethodDef methods[] = {{"read", (PyCFunction)(void (*)(void))read_ring, METH_VARARGS, "Read responses from a ring."},
    {"send", (PyCFunction)(void (*)(void))send_all, METH_VARARGS, "Send the responses read."}, {0}};

DEFINE_FIELDS_SPEC(fields, "ResponseSender", sizeof(ResponseSender), members, destroy, {Py_tp_methods, methods}, {0, NULL})

int add_response_sender(PyObject *module)
{
    PyTypeObject *type = add_type(module, &fields_spec);
    Py_XDECREF((PyObject *)type);
    return type == NULL ? -1 : 0;
}
