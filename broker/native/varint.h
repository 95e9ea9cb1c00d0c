/* Bounded reading of records and their varints. Twins: read_varlong (broker/records/record_reader.py), _varint
 * (record_walk.py). */

#ifndef ROTUNDA_VARINT_H
#define ROTUNDA_VARINT_H

#include "native.h"

/* The most bits of a varint, and of the deltas that are read here; longer ones are left to the twins. */
#define VARINT_BITS 35
#define DELTA_BITS 63

/* Sums and differences of timestamps. */
typedef __int128 Delta;

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Cursor;

/* A record up to its key: its start and end, the place after its timestamp delta, and its deltas. */
typedef struct {
    const uint8_t *start, *rest, *stop;
    int64_t delta, offset_delta;
} Place;

/* Reads a signed number of at most so many bits. Twin: read_varlong. */
static inline bool read_number(Cursor *cursor, int64_t *value, int most_bits)
{
    const uint8_t *at = cursor->at, *end = cursor->end;
    uint64_t raw = 0;
    for (int shift = 0; shift < most_bits && at < end; shift += 7) {
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

/* Reads a signed number of at most 5 bytes. Twin: _varint. */
static inline bool read_varint(Cursor *cursor, int64_t *value)
{
    return read_number(cursor, value, VARINT_BITS);
}

/* Finds a field after its length. False if it is incomplete; null has a negative size. Twin: _read_bytes. */
static inline bool find_field(Cursor *cursor, const uint8_t **bytes, int64_t *size)
{
    if (!read_varint(cursor, size) || *size > cursor->end - cursor->at)
        return false;
    *bytes = cursor->at;
    if (*size > 0)
        cursor->at += *size;
    return true;
}

/* Finds the next record, up to its key; the cursor's end is the record's then. False if it is not one. Twin: the start
 * of _walk_any. */
static inline bool find_record(Cursor *cursor, Place *place)
{
    int64_t length;
    place->start = cursor->at;
    if (!read_varint(cursor, &length) || length <= 0 || length > cursor->end - cursor->at)
        return false;
    place->stop = cursor->end = cursor->at + length;
    cursor->at++; /* the record's attributes */
    if (!read_number(cursor, &place->delta, DELTA_BITS))
        return false;
    place->rest = cursor->at;
    return read_varint(cursor, &place->offset_delta);
}

#endif
