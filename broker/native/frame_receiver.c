/* The receiver: from a socket into the request rings, for the frames that need nothing else.
 *
 * Twin: broker/network/processor/request_reader.py. Uncommon frames are left to it, with all bytes that have not been
 * sent on: large and incomplete frames, authentication, the copies of long requests, full rings.
 */

#include "channel.h"
#include "envelopes.h"
#include "ring.h"

#include <sys/socket.h>

/* The most bytes of one receive (SMALL_READ_BYTES), of a frame's size and header, and of the size alone. */
enum { RECEIVED_BYTES = 64 * 1024, FRAME_START_BYTES = 12, SIZE_BYTES = 4, SMALLEST_BYTES = 8, CLIENT_ID_AT = 8 };
/* From SOFTWARE_FROM on an ApiVersions request names its client's software. */
enum { PRODUCE_KEY = 0, API_VERSIONS_KEY = 18, SOFTWARE_FROM = 3 };

/* The receiver's arguments: of the sender its rings, generations and touched targets; RequestReader._target_of; a
 * clock; MuteCause.PIPELINE; and by API key, whether it is routed: those beyond its end are. */
#define RECEIVER_FIELDS(FIELD)                                                                                         \
    FIELD(rings) FIELD(generations) FIELD(touched) FIELD(target_of) FIELD(clock_ns) FIELD(pipeline_cause)              \
    FIELD(is_routed)

enum { RECEIVER_FIELDS(FIELD_INDEX) RECEIVER_FIELD_COUNT };

typedef struct {
    PyObject_HEAD
    PyObject *slots[RECEIVER_FIELD_COUNT];
    long long requests, bytes, most_bytes, pipeline_max;
    uint8_t received[RECEIVED_BYTES];
} FrameReceiver;

typedef struct {
    const uint8_t *bytes;
    int32_t size, correlation_id;
    int16_t api_key, api_version;
} RequestFrame;

static PyMemberDef members[] = {
    RECEIVER_FIELDS(FIELD_MEMBER){"requests", T_LONGLONG, offsetof(FrameReceiver, requests), 0, NULL},
    {"bytes", T_LONGLONG, offsetof(FrameReceiver, bytes), 0, NULL},
    {"most_bytes", T_LONGLONG, offsetof(FrameReceiver, most_bytes), 0, NULL},
    {"pipeline_max", T_LONGLONG, offsetof(FrameReceiver, pipeline_max), 0, NULL}, {0}};

/* The result for a frame: left to the twin, sent, or an exception. */
enum { LEFT = 0, SENT = 1, FAILED = -1 };

/* Finds the next frame of some bytes, if it is whole and small. Twin: the loop of RequestReader._take. */
static bool next_frame(const FrameReceiver *self, const uint8_t *bytes, Py_ssize_t size, RequestFrame *frame)
{
    if (size < FRAME_START_BYTES)
        return false;
    frame->size = (int32_t)big_endian(bytes, 4);
    if (frame->size < SMALLEST_BYTES || frame->size > self->most_bytes || frame->size > size - SIZE_BYTES)
        return false;
    frame->bytes = bytes + SIZE_BYTES;
    frame->api_key = (int16_t)big_endian(frame->bytes, 2);
    frame->api_version = (int16_t)big_endian(frame->bytes + 2, 2);
    frame->correlation_id = (int32_t)big_endian(frame->bytes + 4, 4);
    return true;
}

/* Returns the target of a frame, -1 if it must wait, or -2 with an exception. Twin: RequestReader._try_send. */
static long target_of(const FrameReceiver *self, Fields *channel, const RequestFrame *frame)
{
    PyObject *is_routed = self->slots[is_routed_FIELD];
    if (frame->api_key >= 0 && frame->api_key < PyBytes_Size(is_routed) && !PyBytes_AsString(is_routed)[frame->api_key])
        return 0;
    PyObject *found = PyObject_CallFunction(self->slots[target_of_FIELD], "Oy#ii", channel, frame->bytes,
        (Py_ssize_t)frame->size, frame->api_key, frame->api_version);
    long target = found ? PyLong_AsLong(found) : -2;
    Py_XDECREF(found);
    return target == -1 && PyErr_Occurred() ? -2 : target;
}

/* Writes an envelope, a frame and its session into a ring. Twin: RequestSender.try_send. */
static int write_frame(
    RingProducer *ring, RequestEnvelope *envelope, const RequestFrame *frame, PyObject *session)
{
    char *session_data;
    Py_ssize_t session_bytes;
    if (PyBytes_AsStringAndSize(session, &session_data, &session_bytes) < 0)
        return FAILED;
    envelope->session_bytes = (int32_t)session_bytes;
    int64_t at = claim_frame(ring, (int64_t)sizeof *envelope + frame->size + session_bytes);
    if (at < 0)
        return LEFT;
    uint8_t *payload = payload_of(&ring->ring, at);
    memcpy(payload, envelope, sizeof *envelope);
    memcpy(payload + sizeof *envelope, frame->bytes, (size_t)frame->size);
    memcpy(payload + sizeof *envelope + frame->size, session_data, (size_t)session_bytes);
    return SENT;
}

/* Keeps the copy of a request that is sent again if its target dies. Twin: RequestReader._try_send. */
static int keep_copy(Fields *channel, const RequestEnvelope *envelope, PyObject *target, const RequestFrame *frame)
{
    long long kept_bytes = number_in(channel, kept_bytes_FIELD);
    if (kept_bytes < 0 || channel->slots[repeatable_FIELD] == NULL)
        return FAILED;
    PyObject *sequence = PyLong_FromLongLong(envelope->sequence);
    PyObject *copy
        = Py_BuildValue("LOy#", (long long)envelope->received_ns, target, frame->bytes, (Py_ssize_t)frame->size);
    int failed = sequence == NULL || copy == NULL
        || PyObject_SetItem(channel->slots[repeatable_FIELD], sequence, copy) < 0
        || !put_in(channel, kept_bytes_FIELD, PyLong_FromLongLong(kept_bytes + frame->size));
    Py_XDECREF(sequence);
    Py_XDECREF(copy);
    return failed ? FAILED : SENT;
}

/* Fills the envelope of a channel's next request; returns whether there was no exception. */
static bool fill_envelope(RequestEnvelope *envelope, const Fields *channel, const RequestFrame *frame, int64_t now_ns)
{
    *envelope = (RequestEnvelope){
        .connection_id = number_in(channel, connection_id_FIELD),
        .sequence = number_in(channel, next_sequence_FIELD),
        .received_ns = now_ns,
        .api_key = frame->api_key,
        .api_version = frame->api_version,
        .correlation_id = frame->correlation_id,
        .size = frame->size,
        .address = -1,
        .listener = (int16_t)number_in(channel, listener_FIELD),
    };
    return !PyErr_Occurred();
}

/* Returns the ring of a target; NULL if there is none now, or with an exception. */
static RingProducer *ring_to(const FrameReceiver *self, Py_ssize_t target, RequestEnvelope *envelope)
{
    PyObject *ring = PyList_GetItem(self->slots[rings_FIELD], target);
    PyObject *generation = ring ? PyList_GetItem(self->slots[generations_FIELD], target) : NULL;
    if (generation == NULL || ring == Py_None || !is_producer(ring))
        return NULL;
    envelope->target_generation = (int32_t)PyLong_AsLong(generation);
    return PyErr_Occurred() ? NULL : (RingProducer *)ring;
}

/* Sends one frame on. Twin: RequestReader._try_send. */
static int send_frame(FrameReceiver *self, Fields *channel, const RequestFrame *frame, int64_t now_ns)
{
    bool is_produce = frame->api_key == PRODUCE_KEY;
    if ((frame->api_key == API_VERSIONS_KEY && frame->api_version >= SOFTWARE_FROM)
        || starts_with(frame->bytes + CLIENT_ID_AT, frame->size - CLIENT_ID_AT, channel->slots[client_prefix_FIELD]) < 0)
        return LEFT;
    if (!is_produce && number_in(channel, kept_bytes_FIELD) + frame->size > OWN_BYTES)
        return LEFT;
    RequestEnvelope envelope;
    if (!fill_envelope(&envelope, channel, frame, now_ns))
        return FAILED;
    long target = target_of(self, channel, frame);
    if (target < 0)
        return target == -1 ? LEFT : FAILED;
    RingProducer *ring = ring_to(self, target, &envelope);
    if (ring == NULL)
        return PyErr_Occurred() ? FAILED : LEFT;
    int done = write_frame(ring, &envelope, frame, channel->slots[session_FIELD]);
    if (done != SENT)
        return done;
    PyObject *number = PyLong_FromLong(target);
    if (number == NULL || PySet_Add(self->slots[touched_FIELD], number) < 0
        || !put_in(channel, next_sequence_FIELD, PyLong_FromLongLong(envelope.sequence + 1)))
        done = FAILED;
    else if (!is_produce)
        done = keep_copy(channel, &envelope, number, frame);
    Py_XDECREF(number);
    self->requests++;
    return done;
}

/* Mutes a channel with as many requests in flight as are allowed. Twin: RequestReader._try_send. */
static bool mute_if_enough(const FrameReceiver *self, Fields *channel)
{
    long long in_flight = number_in(channel, next_sequence_FIELD) - number_in(channel, next_response_FIELD);
    return in_flight < self->pipeline_max
        || put_in(channel, muted_FIELD, PyNumber_Or(channel->slots[muted_FIELD], self->slots[pipeline_cause_FIELD]));
}

/* Sends on the frames at the start of some bytes, up to one that is left; returns their length, or -1. */
static Py_ssize_t send_frames(FrameReceiver *self, Fields *channel, const uint8_t *bytes, Py_ssize_t size)
{
    PyObject *time = PyObject_CallNoArgs(self->slots[clock_ns_FIELD]);
    long long now_ns = time ? PyLong_AsLongLong(time) : -1;
    Py_XDECREF(time);
    if (PyErr_Occurred())
        return -1;
    Py_ssize_t done = 0;
    RequestFrame frame;
    while (next_frame(self, bytes + done, size - done, &frame)) {
        int sent = send_frame(self, channel, &frame, now_ns);
        if (sent == FAILED || (sent == SENT && !mute_if_enough(self, channel)))
            return -1;
        if (sent == LEFT)
            break;
        done += SIZE_BYTES + frame.size;
        if (!is_empty(channel, muted_FIELD))
            break;
    }
    if (done && !put_in(channel, read_bytes_FIELD, PyLong_FromLong(RECEIVED_BYTES)))
        return -1;
    return done;
}

/* Receives once into the receiver's memory. Returns the bytes, or -1 with OSError. */
static Py_ssize_t receive_bytes(FrameReceiver *self, Fields *channel)
{
    long long most = number_in(channel, read_bytes_FIELD), fd = number_in(channel, fd_FIELD);
    if (PyErr_Occurred())
        return -1;
    if (most < 0 || most > RECEIVED_BYTES)
        most = RECEIVED_BYTES;
    /* This never blocks, so the interpreter's lock is kept. */
    ssize_t count = recv((int)fd, self->received, (size_t)most, MSG_DONTWAIT);
    if (count < 0)
        PyErr_SetFromErrno(PyExc_OSError);
    return count;
}

/* Sends on the common frames of some bytes; returns the rest, or NULL with an exception. */
static PyObject *handle_bytes(FrameReceiver *self, Fields *channel, const uint8_t *bytes, Py_ssize_t size)
{
    self->bytes += size;
    bool is_usual = is_empty(channel, inbox_FIELD) && is_empty(channel, muted_FIELD)
        && has_none(channel, authenticator_FIELD);
    Py_ssize_t done = is_usual ? send_frames(self, channel, bytes, size) : 0;
    return done < 0 ? NULL : PyBytes_FromStringAndSize((const char *)bytes + done, size - done);
}

/* receive(channel) -> the bytes received and not sent on; None at their end. Twin: RequestReader._receive. */
static PyObject *receive(FrameReceiver *self, PyObject *object)
{
    if (!is_channel(object) || !has_fields((Fields *)self, members, RECEIVER_FIELD_COUNT))
        return NULL;
    Fields *channel = (Fields *)object;
    if (has_none(channel, tls_FIELD)) {
        Py_ssize_t count = receive_bytes(self, channel);
        if (count < 0)
            return NULL;
        return count ? handle_bytes(self, channel, self->received, count) : Py_NewRef(Py_None);
    }
    char *bytes;
    Py_ssize_t count;
    PyObject *data = PyObject_CallFunctionObjArgs(channel->slots[recv_FIELD], channel->slots[read_bytes_FIELD], NULL);
    PyObject *rest = NULL;
    if (data != NULL && PyBytes_AsStringAndSize(data, &bytes, &count) == 0)
        rest = count ? handle_bytes(self, channel, (const uint8_t *)bytes, count) : Py_NewRef(Py_None);
    Py_XDECREF(data);
    return rest;
}

DEFINE_FIELDS(receiver, RECEIVER_FIELD_COUNT)

static PyMethodDef methods[]
    = {{"receive", (PyCFunction)(void (*)(void))receive, METH_O, "Receive, and send frames on."}, {0}};

DEFINE_FIELDS_SPEC(receiver, "FrameReceiver", sizeof(FrameReceiver), members, receiver_destroy, {Py_tp_methods, methods},
    {0, NULL})

DEFINE_BASE(channel, "ChannelFields", CHANNEL_FIELDS, CHANNEL_FIELD_COUNT, , {0, NULL})

int add_frame_receiver(PyObject *module)
{
    PyTypeObject *type = add_type(module, &receiver_spec);
    channel_type = add_type(module, &channel_spec);
    Py_XDECREF((PyObject *)type);
    return type == NULL || channel_type == NULL ? -1 : 0;
}
