/* The two ends of a ring, for other parts of the module. Twin: shm/rings/ring.py, which has the protocol. */

#ifndef ROTUNDA_RING_H
#define ROTUNDA_RING_H

#include "native.h"

/* The result of a claim without room, and of one beyond max_payload. */
enum { NO_ROOM = -1, TOO_LARGE = -2 };

/* An end of a ring in shared memory, which it keeps mapped. The indexes are bytes from the start of the data. */
typedef struct {
    PyObject_HEAD
    Py_buffer view;
    PyObject *corrupt;
    int64_t *header;
    uint8_t *data;
    int64_t payload, capacity;
} Ring;

typedef struct {
    Ring ring;
    int64_t index, position, until, max_payload;
} RingProducer;

typedef struct {
    Ring ring;
    int64_t index, cursor;
} RingConsumer;

/* A frame that has been read; `at` is the offset of its payload in the view. */
typedef struct {
    int64_t at, size, end;
} Frame;

/* Returns whether an object is an end of a ring, with TypeError if not. */
bool is_producer(PyObject *object);
bool is_consumer(PyObject *object);

/* Starts a frame: returns the offset of its payload in the view, NO_ROOM or TOO_LARGE. Twin: RingProducer.claim. */
int64_t claim_frame(RingProducer *producer, int64_t size);

/* Reads one published frame: 1, 0 if there is none, or -1 with an exception. Twin: a step of RingConsumer.read. */
int read_frame(RingConsumer *consumer, Frame *frame);

/* Returns the bytes of a payload. */
static inline uint8_t *payload_of(const Ring *ring, int64_t at)
{
    return (uint8_t *)ring->view.buf + at;
}

#endif
