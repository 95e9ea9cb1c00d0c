/* The headers of requests and responses in their rings, as in shm/layout.py. */

#ifndef ROTUNDA_ENVELOPES_H
#define ROTUNDA_ENVELOPES_H

#include <stdint.h>

/* REQUEST_ENVELOPE. */
typedef struct {
    int64_t connection_id, sequence, received_ns;
    int16_t api_key, api_version;
    int32_t correlation_id, size, session_bytes;
    int64_t address;
    int16_t listener, area;
    int32_t target_generation;
    int64_t state;
} RequestEnvelope;

/* The facts for the request log; those in `tail` are common to a connection's requests. */
typedef struct {
    int64_t received_ns, dequeued_ns, local_complete_ns, response_complete_ns;
    int32_t correlation_id, request_bytes, response_bytes, throttle_ms, record_count;
    int16_t codec, throttled_by;
    int64_t record_bytes, denial;
    uint8_t tail[32];
} Facts;

/* RESPONSE_ENVELOPE. */
typedef struct {
    int64_t connection_id, sequence, size;
    int32_t range_count;
    int16_t kind;
    Facts facts;
} ResponseEnvelope;

_Static_assert(sizeof(RequestEnvelope) == 64, "REQUEST_ENVELOPE has 64 bytes");
_Static_assert(sizeof(ResponseEnvelope) == 136, "RESPONSE_ENVELOPE has 136 bytes");

#endif
