/* Rings: frames from one producing process to one consuming process.
 *
 * Twin: shm/rings/ring.py, which has the protocol. Each shared word keeps its one writer: the tail is the producer's, the
 * head the consumer's. Both are stored with release and loaded with acquire, so frames are written before the tail that
 * publishes them, and read before the head that frees them. Lengths in the ring are another process's: none is followed
 * beyond the capacity that was read when the end was opened.
 */

#include "ring.h"

#include <stddef.h>
#include <structmember.h>

/* RING_HEADER and FRAME_HEADER of shm/layout.py; the words are 64 bytes apart. */
enum { CAPACITY_WORD = 0, TAIL_WORD = 8, HEAD_WORD = 16, RING_HEADER_BYTES = 192 };
enum { FRAME_HEADER_BYTES = 8, CACHE_LINE_BYTES = 64 };

static PyTypeObject *producer_type, *consumer_type;
static char *opening[] = {"view", "base", "corrupt", NULL};

/* Shared words; aligned, so that none is torn. */
#define load_word(word) __atomic_load_n(word, __ATOMIC_ACQUIRE)
#define store_word(word, value) __atomic_store_n(word, value, __ATOMIC_RELEASE)

/* Returns the length word of the frame at an index. */
static inline int64_t *length_at(const Ring *ring, int64_t index)
{
    return (int64_t *)(ring->data + index);
}

/* Makes an end of a ring from view, base, corrupt=ValueError. Twin: _open. */
static Ring *open_ring(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    PyObject *view, *corrupt = PyExc_ValueError;
    long long base;
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "OL|O", opening, &view, &base, &corrupt))
        return NULL;
    Ring *ring = (Ring *)PyType_GenericNew(type, NULL, NULL);
    if (ring == NULL || PyObject_GetBuffer(view, &ring->view, PyBUF_WRITABLE) < 0)
        goto failed;
    ring->corrupt = Py_NewRef(corrupt);
    uint8_t *start = (uint8_t *)ring->view.buf + base;
    int64_t room = ring->view.len - base - RING_HEADER_BYTES;
    ring->header = (int64_t *)start;
    ring->data = start + RING_HEADER_BYTES;
    ring->payload = base + RING_HEADER_BYTES + FRAME_HEADER_BYTES;
    if (base >= 0 && base <= ring->view.len && room >= 0 && (uintptr_t)start % sizeof(int64_t) == 0) {
        ring->capacity = ring->header[CAPACITY_WORD];
        if (ring->capacity < CACHE_LINE_BYTES || ring->capacity % CACHE_LINE_BYTES)
            PyErr_Format(corrupt, "ring at %lld: capacity %lld", base, (long long)ring->capacity);
        else if (ring->capacity <= room)
            return ring;
    }
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "a ring at %lld: outside a view of %zd bytes", base, ring->view.len);
failed:
    Py_XDECREF((PyObject *)ring);
    return NULL;
}

/* Loads the head; returns the position up to which there is room. Twin: RingProducer._look. */
static int64_t look(RingProducer *self)
{
    int64_t free_end = load_word(&self->ring.header[HEAD_WORD]) + self->ring.capacity;
    int64_t here = free_end - self->position + self->index, most = self->ring.capacity - FRAME_HEADER_BYTES;
    self->until = here < most ? here : most;
    return free_end;
}

/* Loads the head again and wraps around where needed. Twin: RingProducer._claim_slowly. */
static int64_t claim_slowly(RingProducer *self, int64_t size)
{
    int64_t index = self->index, capacity = self->ring.capacity, taken = (size + FRAME_HEADER_BYTES + 7) & -8;
    int64_t padding = index + taken > capacity ? capacity - index : 0;
    if (self->position + padding + taken > look(self))
        return NO_ROOM;
    if (padding) {
        *length_at(&self->ring, index) = -padding;
        index = 0;
    }
    *length_at(&self->ring, index) = size + FRAME_HEADER_BYTES;
    self->index = index + taken == capacity ? 0 : index + taken;
    self->position += padding + taken;
    look(self);
    return self->ring.payload + index;
}

int64_t claim_frame(RingProducer *self, int64_t size)
{
    if (size < 0 || size > self->max_payload)
        return TOO_LARGE;
    int64_t index = self->index, taken = (size + FRAME_HEADER_BYTES + 7) & -8;
    if (index + taken > self->until)
        return claim_slowly(self, size);
    *length_at(&self->ring, index) = size + FRAME_HEADER_BYTES;
    self->index += taken;
    self->position += taken;
    return self->ring.payload + index;
}

/* Raises RingCorrupt. */
static int raise_corrupt(const RingConsumer *self, int64_t position, int64_t tail, int64_t length)
{
    PyErr_Format(self->ring.corrupt, "frame that ends at position %lld, tail %lld, capacity %lld: length %lld",
        (long long)position, (long long)tail, (long long)self->ring.capacity, (long long)length);
    return -1;
}

int read_frame(RingConsumer *self, Frame *frame)
{
    int64_t tail = load_word(&self->ring.header[TAIL_WORD]), capacity = self->ring.capacity;
    while (self->cursor < tail) {
        int64_t index = self->index, length = *length_at(&self->ring, index);
        bool is_padding = length < FRAME_HEADER_BYTES;
        int64_t room = capacity - index;
        if (is_padding ? length != -room : length > room)
            return raise_corrupt(self, self->cursor, tail, length);
        int64_t taken = is_padding ? room : (length + 7) & -8;
        if (taken > tail - self->cursor)
            return raise_corrupt(self, self->cursor + taken, tail, length);
        self->cursor += taken;
        self->index = index + taken == capacity ? 0 : index + taken;
        if (!is_padding) {
            *frame = (Frame){self->ring.payload + index, length - FRAME_HEADER_BYTES, self->cursor};
            return 1;
        }
    }
    return 0;
}

bool is_producer(PyObject *object)
{
    return is_of(object, producer_type);
}

bool is_consumer(PyObject *object)
{
    return is_of(object, consumer_type);
}

/* Returns the place of a position in the data. */
static int64_t index_of(const Ring *ring, int64_t position)
{
    return ((position % ring->capacity + ring->capacity) % ring->capacity) & -8;
}

/* RingProducer(view, base, corrupt=ValueError). Twin: RingProducer. */
static PyObject *create_producer(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    RingProducer *self = (RingProducer *)open_ring(type, arguments, named);
    if (self != NULL) {
        self->max_payload = self->ring.capacity / 2 - FRAME_HEADER_BYTES;
        self->position = self->ring.header[TAIL_WORD];
        self->index = index_of(&self->ring, self->position);
        look(self);
    }
    return (PyObject *)self;
}

/* RingConsumer(view, base, corrupt=ValueError). Twin: RingConsumer. */
static PyObject *create_consumer(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    RingConsumer *self = (RingConsumer *)open_ring(type, arguments, named);
    if (self != NULL) {
        self->cursor = self->ring.header[HEAD_WORD];
        self->index = index_of(&self->ring, self->cursor);
    }
    return (PyObject *)self;
}

static void destroy(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyBuffer_Release(&((Ring *)self)->view);
    Py_XDECREF(((Ring *)self)->corrupt);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* claim(bytes) -> offset in the view, or -1 when full. Twin: RingProducer.claim. */
static PyObject *claim(RingProducer *self, PyObject *bytes)
{
    long long size = PyLong_AsLongLong(bytes);
    if (size == -1 && PyErr_Occurred())
        return NULL;
    int64_t at = claim_frame(self, size);
    if (at == TOO_LARGE)
        return PyErr_Format(PyExc_ValueError, "a frame of %lld bytes; this ring takes 0 to %lld", size,
            (long long)self->max_payload);
    return PyLong_FromLongLong(at);
}

/* publish(). Twin: RingProducer.publish. */
static PyObject *publish(RingProducer *self, PyObject *nothing)
{
    (void)nothing;
    store_word(&self->ring.header[TAIL_WORD], self->position);
    Py_RETURN_NONE;
}

/* Defines a method that returns a number. Twins: those of the same name. */
#define NUMBER(name, type, number)                                                                                     \
    static PyObject *name(type *self, void *nothing)                                                                   \
    {                                                                                                                  \
        (void)nothing;                                                                                                 \
        return PyLong_FromLongLong(number);                                                                            \
    }

NUMBER(consumed, RingProducer, load_word(&self->ring.header[HEAD_WORD]))
NUMBER(pending, RingConsumer, load_word(&self->ring.header[TAIL_WORD]) - self->cursor)

/* read(limit) -> list of (payload offset, payload bytes, end position). Twin: RingConsumer.read. */
static PyObject *read_frames(RingConsumer *self, PyObject *most)
{
    long long limit = PyLong_AsLongLong(most);
    if (limit == -1 && PyErr_Occurred())
        return NULL;
    PyObject *frames = PyList_New(0);
    int64_t cursor = self->cursor, index = self->index;
    Frame frame;
    int found = 0;
    for (; frames && limit > 0 && (found = read_frame(self, &frame)) > 0; limit--) {
        PyObject *entry
            = Py_BuildValue("LLL", (long long)frame.at, (long long)frame.size, (long long)frame.end);
        if (entry == NULL || PyList_Append(frames, entry) < 0)
            Py_CLEAR(frames);
        Py_XDECREF(entry);
    }
    if (frames == NULL || found < 0) {
        /* Nothing has been read. */
        self->cursor = cursor;
        self->index = index;
        Py_CLEAR(frames);
    }
    return frames;
}

/* release_to(position). Twin: RingConsumer.release_to. */
static PyObject *release_to(RingConsumer *self, PyObject *end)
{
    long long value = PyLong_AsLongLong(end);
    if (value == -1 && PyErr_Occurred())
        return NULL;
    store_word(&self->ring.header[HEAD_WORD], value);
    Py_RETURN_NONE;
}

/* release(). Twin: RingConsumer.release. */
static PyObject *release(RingConsumer *self, PyObject *nothing)
{
    (void)nothing;
    store_word(&self->ring.header[HEAD_WORD], self->cursor);
    Py_RETURN_NONE;
}

#define METHOD(name, function, kind, text) {name, (PyCFunction)(void (*)(void))function, kind, text}

static PyMethodDef producer_methods[] = {METHOD("claim", claim, METH_O, "Start a frame."),
    METHOD("publish", publish, METH_NOARGS, "Make every claimed frame visible to the consumer."),
    METHOD("consumed", consumed, METH_NOARGS, "Return the shared head."), {0}};

static PyMemberDef producer_members[] = {
    {"capacity", T_LONGLONG, offsetof(RingProducer, ring.capacity), READONLY, NULL},
    {"max_payload", T_LONGLONG, offsetof(RingProducer, max_payload), READONLY, NULL},
    {"position", T_LONGLONG, offsetof(RingProducer, position), READONLY, NULL}, {0}};

static PyMethodDef consumer_methods[] = {METHOD("read", read_frames, METH_O, "Return newly published frames."),
    METHOD("release_to", release_to, METH_O, "Return the memory of frames to the producer."),
    METHOD("release", release, METH_NOARGS, "Release everything read so far."),
    METHOD("pending", pending, METH_NOARGS, "Return the bytes published and not yet read."), {0}};

static PyMemberDef consumer_members[] = {
    {"capacity", T_LONGLONG, offsetof(RingConsumer, ring.capacity), READONLY, NULL},
    {"cursor", T_LONGLONG, offsetof(RingConsumer, cursor), READONLY, NULL}, {0}};

static PyType_Slot producer_slots[]
    = {{Py_tp_doc, "The writing end of a ring."}, {Py_tp_new, create_producer}, {Py_tp_dealloc, destroy},
        {Py_tp_methods, producer_methods}, {Py_tp_members, producer_members}, {0, NULL}};

static PyType_Slot consumer_slots[]
    = {{Py_tp_doc, "The reading end of a ring."}, {Py_tp_new, create_consumer}, {Py_tp_dealloc, destroy},
        {Py_tp_methods, consumer_methods}, {Py_tp_members, consumer_members}, {0, NULL}};

static PyType_Spec producer_spec = {.name = "rotunda.broker.native.compiled.RingProducer",
    .basicsize = sizeof(RingProducer), .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, .slots = producer_slots};

static PyType_Spec consumer_spec = {.name = "rotunda.broker.native.compiled.RingConsumer",
    .basicsize = sizeof(RingConsumer), .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, .slots = consumer_slots};

int add_ring(PyObject *module)
{
    producer_type = add_type(module, &producer_spec);
    consumer_type = add_type(module, &consumer_spec);
    return producer_type == NULL || consumer_type == NULL ? -1 : 0;
}
