/* The attributes of a channel that are read in C. Twin: `ChannelFields` (broker/network/processor/channel.py). */

#ifndef ROTUNDA_CHANNEL_H
#define ROTUNDA_CHANNEL_H

#include "fields.h"

#define CHANNEL_FIELDS(FIELD)                                                                                          \
    FIELD(authenticator) FIELD(client) FIELD(client_prefix) FIELD(closing) FIELD(completions) FIELD(connection_id)     \
    FIELD(fd) FIELD(former_clients) FIELD(held) FIELD(inbox) FIELD(kept_bytes) FIELD(listener) FIELD(muted)            \
    FIELD(next_response) FIELD(next_sequence) FIELD(out) FIELD(read_bytes) FIELD(recv) FIELD(repeatable)               \
    FIELD(resend_count) FIELD(session) FIELD(tls) FIELD(unsent)

enum { CHANNEL_FIELDS(FIELD_INDEX) CHANNEL_FIELD_COUNT };

/* Bytes of copies of unanswered requests that a connection has of its own. Twin: OWN_BYTES (kept_requests.py). */
#define OWN_BYTES 8192

/* Returns whether an object is a channel, with TypeError if not. */
bool is_channel(PyObject *object);

/* Returns whether an attribute is set and empty: a list, bytes, or a number that is zero. */
static inline bool is_empty(const Fields *channel, int field)
{
    return channel->slots[field] != NULL && !PyObject_IsTrue(channel->slots[field]);
}

#endif
