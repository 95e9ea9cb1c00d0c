/* requests: what kload sends, and where an answer's error code stands.
 *
 * Versions used: CreateTopics 2, Produce 7, Fetch 11, ListOffsets 4, Metadata 8, OffsetCommit 7, FindCoordinator 1,
 * JoinGroup 2, SyncGroup 1, Heartbeat 1, LeaveGroup 1, ApiVersions 0 (all served by Kafka 2.3 to 4.x). */
#pragma once
#include "wire.h"

enum {
  PRODUCE = 0, FETCH = 1, LIST_OFFSETS = 2, METADATA = 3, OFFSET_COMMIT = 8, FIND_COORDINATOR = 10, JOIN_GROUP = 11,
  HEARTBEAT = 12, LEAVE_GROUP = 13, SYNC_GROUP = 14, API_VERSIONS = 18, CREATE_TOPICS = 19
};
enum { NO_ERROR = 0, UNKNOWN_TOPIC = 3, LOADING = 14, NOT_AVAILABLE = 15, NOT_COORDINATOR = 16, TOPIC_EXISTS = 36 };
enum { MAX_NAME = 250, MAX_MEMBER_ID = 256, SESSION_MS = 30000, RETRY_US = 10000 };

static void put_record(buf_t *b, int index, const uint8_t *value, int value_bytes) {
  buf_t record = {0};
  put_i8(&record, 0);          /* attributes */
  put_varint(&record, 0);      /* timestamp delta */
  put_varint(&record, index);  /* offset delta */
  put_varint(&record, -1);     /* no key */
  put_varint(&record, value_bytes);
  put(&record, value, value_bytes);
  put_varint(&record, 0);      /* no headers */
  put_varint(b, record.size);
  put(b, record.bytes, record.size);
  free(record.bytes);
}

/* A record batch: magic 2, no compression, no producer id. */
static buf_t record_batch(int records, int record_bytes) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  int64_t wall_ms = t.tv_sec * 1000LL + t.tv_nsec / 1000000;
  uint8_t *value = malloc(record_bytes + 1);
  for (int i = 0; i < record_bytes; i++) value[i] = 'a' + (i * 31 + i / 7) % 26;
  buf_t body = {0};            /* what the CRC covers: from attributes on */
  put_i16(&body, 0);           /* attributes */
  put_i32(&body, records - 1); /* last offset delta */
  put_i64(&body, wall_ms);     /* base timestamp */
  put_i64(&body, wall_ms);     /* max timestamp */
  put_i64(&body, -1);          /* producer id */
  put_i16(&body, -1);          /* producer epoch */
  put_i32(&body, -1);          /* base sequence */
  put_i32(&body, records);
  for (int i = 0; i < records; i++) put_record(&body, i, value, record_bytes);
  buf_t batch = {0};
  put_i64(&batch, 0);                          /* base offset */
  put_i32(&batch, 4 + 1 + 4 + body.size);      /* batch length */
  put_i32(&batch, -1);                         /* partition leader epoch */
  put_i8(&batch, 2);                           /* magic */
  put_i32(&batch, crc32c(body.bytes, body.size));
  put(&batch, body.bytes, body.size);
  free(body.bytes);
  free(value);
  return batch;
}

static buf_t begin(int api_key, int api_version) {
  buf_t b = {0};
  put_i32(&b, 0); /* size: written by finish() */
  put_i16(&b, api_key);
  put_i16(&b, api_version);
  put_i32(&b, 0); /* correlation id */
  put_string(&b, "kload");
  return b;
}

static buf_t finish(buf_t b) {
  uint32_t size = htobe32(b.size - 4);
  memcpy(b.bytes, &size, 4);
  return b;
}

static buf_t produce_request(const char *topic, int partition, buf_t batch, int acks) {
  buf_t b = begin(PRODUCE, 7);
  put_i16(&b, -1); /* no transactional id */
  put_i16(&b, acks);
  put_i32(&b, 30000); /* timeout ms */
  put_i32(&b, 1);
  put_string(&b, topic);
  put_i32(&b, 1);
  put_i32(&b, partition);
  put_i32(&b, batch.size);
  put(&b, batch.bytes, batch.size);
  return finish(b);
}

static buf_t fetch_request(const char *topic, int partition, int64_t offset, int max_bytes, int max_wait_ms) {
  buf_t b = begin(FETCH, 11);
  put_i32(&b, -1); /* replica id: a consumer */
  put_i32(&b, max_wait_ms);
  put_i32(&b, 1); /* min bytes */
  put_i32(&b, max_bytes);
  put_i8(&b, 0);   /* read uncommitted */
  put_i32(&b, 0);  /* session id */
  put_i32(&b, -1); /* session epoch: no session */
  put_i32(&b, 1);
  put_string(&b, topic);
  put_i32(&b, 1);
  put_i32(&b, partition);
  put_i32(&b, -1); /* leader epoch unknown */
  put_i64(&b, offset);
  put_i64(&b, -1); /* log start offset */
  put_i32(&b, max_bytes);
  put_i32(&b, 0);     /* no forgotten topics */
  put_string(&b, ""); /* rack */
  return finish(b);
}

/* The name of one topic of many. */
static const char *numbered(const char *topic, int number) {
  static char name[MAX_NAME + 16];
  snprintf(name, sizeof name, "%s-%d", topic, number);
  return name;
}

static buf_t create_topic_request(const char *topic, int partitions) {
  buf_t b = begin(CREATE_TOPICS, 2);
  put_i32(&b, 1);
  put_string(&b, topic);
  put_i32(&b, partitions);
  put_i16(&b, 1);     /* replication factor */
  put_i32(&b, 0);     /* no assignment */
  put_i32(&b, 0);     /* no configs */
  put_i32(&b, 30000); /* timeout ms */
  put_i8(&b, 0);      /* not validate-only */
  return finish(b);
}

static buf_t metadata_request(const char *topic, int topics) {
  buf_t b = begin(METADATA, 8);
  put_i32(&b, topics);
  for (int i = 0; i < topics; i++) put_string(&b, numbered(topic, i));
  put_i8(&b, 0); /* create none */
  put_i8(&b, 0); /* no authorized operations of the cluster */
  put_i8(&b, 0); /* nor of topics */
  return finish(b);
}

static buf_t list_offsets_request(const char *topic, int partition) {
  buf_t b = begin(LIST_OFFSETS, 4);
  put_i32(&b, -1); /* replica id: a consumer */
  put_i8(&b, 0);   /* read uncommitted */
  put_i32(&b, 1);
  put_string(&b, topic);
  put_i32(&b, 1);
  put_i32(&b, partition);
  put_i32(&b, -1); /* leader epoch unknown */
  put_i64(&b, -1); /* the latest */
  return finish(b);
}

/* ---- members of groups ---- */

/* The only member of a group. */
typedef struct {
  char group[32], id[MAX_MEMBER_ID];
  int32_t generation;
} member_t;

static void put_member(buf_t *b, const member_t *member) {
  put_string(b, member->group);
  put_i32(b, member->generation);
  put_string(b, member->id);
}

static buf_t heartbeat_request(const member_t *member) {
  buf_t b = begin(HEARTBEAT, 1);
  put_member(&b, member);
  return finish(b);
}

/* The committed offset, which no two commits share, stands at `offset_at`. */
static buf_t commit_request(const member_t *member, const char *topic, int partition, size_t *offset_at) {
  buf_t b = begin(OFFSET_COMMIT, 7);
  put_member(&b, member);
  put_i16(&b, -1); /* no static member */
  put_i32(&b, 1);
  put_string(&b, topic);
  put_i32(&b, 1);
  put_i32(&b, partition);
  *offset_at = b.size;
  put_i64(&b, 0);
  put_i32(&b, -1); /* leader epoch unknown */
  put_string(&b, "");
  return finish(b);
}

static int is_passing(int error) { return error == LOADING || error == NOT_AVAILABLE || error == NOT_COORDINATOR; }

/* Calls until the coordinator, whose topic may have to be created first, is there. Answers begin with their id. */
static buf_t call_coordinator(int fd, buf_t request) {
  double begun = now();
  for (;;) {
    buf_t answer = call(fd, request);
    int error = get_i16(answer.bytes + 8);
    if (!error) return answer;
    if (!is_passing(error) || now() - begun > SESSION_MS / 1000) die_of_error_code(error);
    free(answer.bytes);
    usleep(RETRY_US);
  }
}

static void join(int fd, member_t *member, int number) {
  snprintf(member->group, sizeof member->group, "kload-%d", number);
  buf_t find = begin(FIND_COORDINATOR, 1);
  put_string(&find, member->group);
  put_i8(&find, 0); /* of a group */
  call_coordinator(fd, finish(find));
  buf_t asked = begin(JOIN_GROUP, 2);
  put_string(&asked, member->group);
  put_i32(&asked, SESSION_MS);
  put_i32(&asked, SESSION_MS);
  put_string(&asked, ""); /* no member id yet */
  put_string(&asked, "consumer");
  put_i32(&asked, 1);
  put_string(&asked, "range");
  put_i32(&asked, 0);
  const uint8_t *joined = call_coordinator(fd, finish(asked)).bytes + 10;
  member->generation = get_u32(joined);
  const uint8_t *leader = joined + 4 + 2 + get_i16(joined + 4); /* the protocol's name comes first */
  const uint8_t *id = leader + 2 + get_i16(leader);
  if (get_i16(id) < 0 || get_i16(id) >= MAX_MEMBER_ID) die("a member id of a strange size");
  memcpy(member->id, id + 2, get_i16(id));
  buf_t sync = begin(SYNC_GROUP, 1);
  put_member(&sync, member);
  put_i32(&sync, 1);
  put_string(&sync, member->id);
  put_i32(&sync, 0);
  call_coordinator(fd, finish(sync));
}

/* Leaves by a connection of its own: the member's has answers under way. */
static void leave(int port, const member_t *member) {
  buf_t b = begin(LEAVE_GROUP, 1);
  put_string(&b, member->group);
  put_string(&b, member->id);
  int fd = dial(port);
  call_coordinator(fd, finish(b));
  close(fd);
}

/* ---- answers ---- */

static const uint8_t *skip_string(const uint8_t *p) {
  int bytes = get_i16(p);
  return p + 2 + (bytes > 0 ? bytes : 0);
}

/* Where the first topic's error code stands depends on what the cluster and its brokers are called. */
static size_t metadata_error_offset(int port, buf_t request) {
  int fd = dial(port);
  buf_t answer = call(fd, request);
  close(fd);
  const uint8_t *p = answer.bytes + 4 + 4; /* correlation id, throttle time */
  int brokers = get_u32(p);
  for (p += 4; brokers--; p = skip_string(skip_string(p + 4) + 4)) continue; /* id, host, port, rack */
  return skip_string(p) - answer.bytes + 4 + 4 + 4; /* cluster id; controller, topic count; the size was taken off */
}

/* Where the first error code stands in a whole answer frame. */
static size_t error_offset(int api_key, const char *topic) {
  size_t in_partition = 4 + 2 + strlen(topic) + 4 + 4; /* topic count, name, partition count, index */
  if (api_key == PRODUCE || api_key == API_VERSIONS) return 8 + (api_key == PRODUCE ? in_partition : 0);
  if (api_key == HEARTBEAT) return 8 + 4; /* the throttle time comes first */
  if (api_key == FETCH) return 8 + 4 + 2 + 4 + in_partition; /* throttle time, error, session id come first */
  return 8 + 4 + in_partition;
}
