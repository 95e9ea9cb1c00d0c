/* Bounded reading of Kafka's varints. Twins: read_varlong (broker/protocol/record_reader.py), _varint (record_walk.py). */

#ifndef ROTUNDA_VARINT_H
#define ROTUNDA_VARINT_H

#include "native.h"

#define VARINT_BITS 35
#define VARLONG_BITS 70

/* A delta has up to 69 bits and a sign, and is added to a timestamp. */
typedef __int128 Delta;

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Cursor;

/* Reads a signed number of at most 5 bytes. Twin: _varint. */
static inline bool read_varint(Cursor *cursor, int64_t *value)
{
    const uint8_t *at = cursor->at, *end = cursor->end;
    uint64_t raw = 0;
    for (int shift = 0; shift < VARINT_BITS && at < end; shift += 7) {
        uint8_t byte = *at++;
        raw |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            cursor->at = at;
            return true;
        }
    }
    return false;
}

/* Reads a signed number of at most 10 bytes; most have fewer than 6. Twin: read_varlong. */
static inline bool read_delta(Cursor *cursor, Delta *value)
{
    int64_t small;
    if (read_varint(cursor, &small)) {
        *value = small;
        return true;
    }
    const uint8_t *at = cursor->at, *end = cursor->end;
    unsigned __int128 raw = 0;
    for (int shift = 0; shift < VARLONG_BITS && at < end; shift += 7) {
        uint8_t byte = *at++;
        raw |= (unsigned __int128)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (Delta)(raw >> 1) ^ -(Delta)(raw & 1);
            cursor->at = at;
            return true;
        }
    }
    return false;
}

#endif
